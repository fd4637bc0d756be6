# cython: language_level=3, boundscheck=False, wraparound=False
"""Tokens out of plain Python sequences."""

from cpython.list cimport PyList_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.number cimport PyNumber_AsSsize_t
from cpython.tuple cimport PyTuple_CheckExact
from libc.stdint cimport int64_t, uint32_t

import numpy as np


cdef int64_t as_token(object item, object items) except -1:
    cdef int overflow = 0
    cdef int64_t token
    if PyLong_CheckExact(item):
        token = PyLong_AsLongLongAndOverflow(item, &overflow)
        if 0 <= token < 0xffffffff and overflow == 0:
            return token
    if isinstance(item, bool):
        raise TypeError(f"tokens must be integers, got {item}")
    token = -1
    try:
        token = PyNumber_AsSsize_t(item, OverflowError)
    except OverflowError:
        pass
    except TypeError:
        raise TypeError(
            f"tokens must be integers, got {item!r:.50} ({type(item).__name__}) "
            f"in {items!r:.80}"
        ) from None
    if not 0 <= token < 0xffffffff:
        shown = repr(items) if len(items) <= 20 else \
            f"{list(items[:20])} and {len(items) - 20} more"
        raise ValueError(f"token {item} in {shown} is out of range (0..2**32 - 2)")
    return token


def flatten(list sequences):
    """Tokens and offsets of lists or tuples of plain ints that are tokens; None if one is not.

    The caller then takes the slower road, which also says what was wrong where.

    Returns
    -------
    tokens : uint32, offsets : int64 [len(sequences) + 1], or None
    """
    cdef Py_ssize_t i, n = len(sequences), used = 0
    cdef int64_t token
    cdef int overflow = 0
    offsets_array = np.zeros(n + 1, np.int64)
    cdef int64_t[::1] offsets = offsets_array
    for i in range(n):
        row = sequences[i]
        if not (PyTuple_CheckExact(row) or PyList_CheckExact(row)):
            return None
        offsets[i + 1] = offsets[i] + len(row)
    tokens_array = np.empty(offsets[n], np.uint32)
    cdef uint32_t[::1] tokens = tokens_array
    for i in range(n):
        row = sequences[i]
        if offsets[i + 1] - offsets[i] != len(row):
            return None
        for item in row:
            if not PyLong_CheckExact(item):
                return None
            token = PyLong_AsLongLongAndOverflow(item, &overflow)
            if overflow or not 0 <= token < 0xffffffff:
                return None
            tokens[used] = <uint32_t>token
            used += 1
    return tokens_array, offsets_array


def has_bool(items):
    """Whether there is a bool in a list or tuple, or in one inside it; numpy takes it for 0 or 1
    among integers."""
    for item in items:
        if item is True or item is False:
            return True
        if (PyTuple_CheckExact(item) or PyList_CheckExact(item)) and has_bool(item):
            return True
    return False

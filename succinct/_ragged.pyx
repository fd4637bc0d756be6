# cython: language_level=3, boundscheck=False, wraparound=False
"""Plain Python sequences as one ragged array."""

from cpython.list cimport PyList_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.tuple cimport PyTuple_CheckExact
from libc.stdint cimport int64_t, uint32_t

import numpy as np


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

# cython: language_level=3, boundscheck=False, wraparound=False
# cython: embedsignature=True, embedsignature.format=python
"""The questions that an index is asked most, one at a time or in arrays.

A single key or state is answered here without a Python frame in between: its arguments are read,
and the compiled part of the index called, in C.
"""

from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.long cimport PyLong_AsUnsignedLongLong, PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from succinct._ragged cimport as_token

import numpy as np

from succinct import _args

cdef extern from "Python.h":
    PyObject *PyTuple_GET_ITEM(object, Py_ssize_t)
    PyObject *PyList_GET_ITEM(object, Py_ssize_t)

cdef extern from "succinct/token.h":
    int64_t small_token(object) noexcept

cdef enum:
    SHORT = 64  # tokens that are read at a time

cdef uint64_t DEAD = 0xffffffffffffffff
cdef object uint64 = np.uint64

# Reading an element is by far the quickest way to a numpy scalar.
cdef object cell = np.zeros((), np.uint64)
cdef uint64_t[::1] cell_view = cell.reshape(1)


cdef inline object as_scalar(uint64_t state):
    cell_view[0] = state
    return cell[()]


cdef bint plain_state(object x, uint64_t *state) except -1:
    """Read a state from an int or np.uint64; False for whatever else, and what is none at all."""
    cdef int64_t small = small_token(x)
    if small >= 0:
        state[0] = <uint64_t>small
        return True
    if type(x) is uint64:
        x = x.__index__()
    elif not PyLong_CheckExact(x):
        return False
    try:
        state[0] = PyLong_AsUnsignedLongLong(x)
    except OverflowError:
        return False
    return True


cdef Py_ssize_t read_tokens(object items, Py_ssize_t begin, uint32_t *tokens) except -1:
    """Read up to SHORT tokens of a list or tuple; returns how many."""
    cdef bint is_tuple = PyTuple_CheckExact(items)
    cdef Py_ssize_t n = 0
    cdef int64_t token
    while n < SHORT:
        # The length is asked for anew, since what an item does may change a list.
        if begin + n >= (PyTuple_GET_SIZE(items) if is_tuple else PyList_GET_SIZE(items)):
            break
        item = <object>(PyTuple_GET_ITEM(items, begin + n) if is_tuple
                        else PyList_GET_ITEM(items, begin + n))
        token = small_token(item)
        if token < 0:
            token = as_token(item, items)
        tokens[n] = <uint32_t>token
        n += 1
    return n


cdef class Core:
    """Navigation through the arrays of an index; see _walker.pxd for what a kind adds.

    Methods for Python take arrays of the right type, checked by the caller; of states only
    `bad_state` takes any.
    """

    cdef bint is_state(self, uint64_t state) noexcept nogil:
        return state == DEAD

    cdef uint64_t step(self, uint64_t state, uint64_t token) noexcept nogil:
        return DEAD

    cdef uint64_t walk(self, uint64_t state, const uint32_t *tokens, uint64_t n) noexcept nogil:
        cdef uint64_t i
        for i in range(n):
            if state == DEAD:
                break
            state = self.step(state, tokens[i])
        return state

    cdef bint ends_key(self, uint64_t state) noexcept nogil:
        return False

    cdef int64_t key_number(self, uint64_t state) noexcept nogil:
        return -1

    cdef int64_t degree(self, uint64_t state) noexcept nogil:
        return 0

    cdef void list_children(self, uint64_t state, uint32_t *tokens,
                            uint64_t *children) noexcept nogil:
        pass

    cdef int64_t find(self, const uint32_t *tokens, uint64_t n) noexcept nogil:
        return self.key_number(self.walk(0, tokens, n))

    def bad_state(self, const uint64_t[::1] states):
        """The place of the first number that is no state and not DEAD, or -1."""
        cdef Py_ssize_t i, bad = -1
        with nogil:
            for i in range(states.shape[0]):
                if not self.is_state(states[i]):
                    bad = i
                    break
        return bad

    def is_terminal(self, const uint64_t[::1] states, uint8_t[::1] out):
        """Whether each state is that of a key."""
        cdef Py_ssize_t i
        with nogil:
            for i in range(states.shape[0]):
                out[i] = self.ends_key(states[i])

    def key_numbers(self, const uint64_t[::1] states, int64_t[::1] out):
        """The number of the key that each state stands for, or -1."""
        cdef Py_ssize_t i
        with nogil:
            for i in range(states.shape[0]):
                out[i] = self.key_number(states[i])

    def degrees(self, const uint64_t[::1] states, int64_t[::1] out):
        """The number of continuations of each state."""
        cdef Py_ssize_t i
        with nogil:
            for i in range(states.shape[0]):
                out[i] = self.degree(states[i])

    def children(self, const uint64_t[::1] states, const int64_t[::1] offsets,
                 uint32_t[::1] tokens, uint64_t[::1] children):
        """Write the continuations of state i to [offsets[i], offsets[i + 1])."""
        cdef Py_ssize_t i
        with nogil:
            for i in range(states.shape[0]):
                if offsets[i] < offsets[i + 1]:
                    self.list_children(states[i], &tokens[offsets[i]], &children[offsets[i]])


cdef class Walker:
    """The base class of :class:`succinct.index.Index`."""

    def __cinit__(self, *args, **kwargs):
        self._core = Core()  # until __init__ has a better one

    def __init__(self, Core core not None):
        self._core = core

    cdef uint64_t _walk(self, object sequence, str what) except? 0xdead:
        """The state of a prefix; all of its tokens are checked."""
        cdef uint32_t tokens[SHORT]
        cdef const uint32_t[::1] array
        cdef Py_ssize_t n, begin = 0
        cdef uint64_t state = 0
        if not (PyTuple_CheckExact(sequence) or PyList_CheckExact(sequence)):
            array = _args.sequence(sequence, what)
            return self._core.walk(0, &array[0], array.shape[0]) if array.shape[0] else 0
        while True:
            n = read_tokens(sequence, begin, tokens)
            state = self._core.walk(state, tokens, n)
            begin += n
            if n < SHORT:
                return state

    cdef int64_t _find(self, object sequence) except? -2:
        """The number of a sequence, or -1."""
        cdef uint32_t tokens[SHORT]
        if PyTuple_CheckExact(sequence) and PyTuple_GET_SIZE(sequence) < SHORT:
            return self._core.find(tokens, read_tokens(sequence, 0, tokens))
        return self._core.key_number(self._walk(sequence, "sequence"))

    def _states(self, states):
        """States as an array, checked."""
        array = _args.values64(states, "states")
        bad = self._core.bad_state(array.reshape(-1))
        if bad >= 0:
            raise ValueError(
                f"states{_args.place(array, bad)} = {array.flat[bad]} is no state of this index"
            )
        return array

    def walk(self, prefix):
        """The state of a prefix, or ``DEAD``. O(len(prefix) * log(continuations)).

        Parameters
        ----------
        prefix : sequence of int, or integer array [length]

        Returns
        -------
        np.uint64

        Examples
        --------
        >>> from succinct import DEAD, KeyTable, StepMap
        >>> index = StepMap.build(KeyTable.from_sequences([(1, 2), (1, 3)]))
        >>> index.walk(()) == index.root, index.walk((1, 4)) == DEAD
        (np.True_, np.True_)
        """
        return as_scalar(self._walk(prefix, "prefix"))

    def advance(self, states, tokens):
        """The states behind `tokens`, or ``DEAD`` where a token does not continue its prefix.

        Parameters
        ----------
        states, tokens : integers or arrays of integers
            Broadcast against each other.

        Returns
        -------
        np.uint64 or uint64 array of the common shape

        Examples
        --------
        >>> from succinct import KeyTable, StepMap
        >>> index = StepMap.build(KeyTable.from_sequences([(1, 2), (1, 3)]))
        >>> index.advance(index.root, 1) == index.walk((1,))
        np.True_
        >>> (index.advance(index.walk((1,)), [2, 3]) == [index.walk((1, 2)), index.walk((1, 3))]).all()
        np.True_
        """
        cdef uint64_t state
        cdef int64_t token = small_token(tokens)
        if token >= 0 and plain_state(states, &state) and self._core.is_state(state):
            return as_scalar(self._core.step(state, token))
        left, right = np.broadcast_arrays(self._states(states), _args.tokens(tokens, "tokens"))
        out = np.empty(left.size, np.uint64)
        self._core.advance(
            np.ascontiguousarray(left).reshape(-1), np.ascontiguousarray(right).reshape(-1), out
        )
        return out.reshape(left.shape)[()]

    def is_terminal(self, states):
        """Whether the prefix of a state is a key: a bool, or a bool array.

        Parameters
        ----------
        states : integer or array of integers
        """
        cdef uint64_t state
        if plain_state(states, &state) and self._core.is_state(state):
            return self._core.ends_key(state)
        array = self._states(states)
        out = np.empty(array.size, np.bool_)
        self._core.is_terminal(array.reshape(-1), out.view(np.uint8))
        return out.reshape(array.shape) if array.ndim else bool(out[0])

    def __contains__(self, sequence):
        try:
            return self._find(sequence) >= 0
        except ValueError:
            return False

    def key_id(self, sequence):
        """The number of a key. O(len(sequence) * log(continuations)).

        Parameters
        ----------
        sequence : sequence of int, or integer array [length]

        Returns
        -------
        int

        Raises
        ------
        KeyError
            If the sequence is not a key.
        """
        cdef int64_t number
        if not PyTuple_CheckExact(sequence):
            sequence = _args.listed(sequence, "sequence")
        number = self._find(sequence)
        if number < 0:
            raise KeyError(tuple([int(token) for token in sequence]))
        return number

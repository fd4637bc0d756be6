# cython: language_level=3, boundscheck=False, wraparound=False
# cython: embedsignature=True, embedsignature.format=python
"""The questions that an index is asked most, one at a time or in arrays.

A single key or state is answered here without a Python frame in between: its arguments are read,
and the compiled part of the index called, in C.
"""

from cpython.list cimport PyList_CheckExact, PyList_GET_SIZE
from cpython.long cimport PyLong_AsUnsignedLongLong, PyLong_CheckExact
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_CheckExact, PyTuple_GET_SIZE, PyTuple_New, PyTuple_SET_ITEM
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


cdef tuple as_tuple(const uint32_t *tokens, Py_ssize_t n):
    cdef tuple key = PyTuple_New(n)
    cdef Py_ssize_t i
    for i in range(n):
        token = <object>tokens[i]
        Py_INCREF(token)
        PyTuple_SET_ITEM(key, i, token)
    return key


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

    cdef int64_t key_length(self, int64_t number) noexcept nogil:
        return -1

    cdef void read_key(self, int64_t number, uint32_t *end) noexcept nogil:
        pass

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


cdef class Completions:
    """An iterator over the keys that begin with a prefix, lexicographic.

    The continuations of every prefix on the path lie one after another on a stack; `places` has
    where those of each depth begin, go on and end. The depth is bounded whatever a file says.
    """

    def __init__(self, Core core not None, prefix, uint64_t state, int64_t max_length):
        self.core, self.state, self.entered = core, state, True
        self.base = self.depth = len(prefix)
        self.max_length = max_length
        self.path = np.zeros(max(self.base, max_length) + 1, np.uint32)
        np.asarray(self.path)[: self.base] = prefix
        self.places = np.zeros((max(self.base, max_length) + 1, 3), np.int64)
        self.tokens, self.states = np.empty(256, np.uint32), np.empty(256, np.uint64)
        self.size = 256

    cdef int push(self, int64_t n) except -1:
        """Put the `n` continuations of the state on the stack."""
        cdef int64_t begin = 0
        if self.depth > self.base:
            begin = self.places[self.depth - 1, 2]
        if begin + n > self.size:
            self.size = 2 * (begin + n)
            more = np.empty(self.size, np.uint32)
            more[:begin] = self.tokens[:begin]
            self.tokens = more
            more = np.empty(self.size, np.uint64)
            more[:begin] = self.states[:begin]
            self.states = more
        if n:
            self.core.list_children(self.state, &self.tokens[begin], &self.states[begin])
        self.places[self.depth, 0] = self.places[self.depth, 1] = begin
        self.places[self.depth, 2] = begin + n
        return 0

    def __iter__(self):
        return self

    def __next__(self):
        cdef int64_t at
        while True:
            if self.entered:
                self.entered = False
                self.push(self.core.degree(self.state) if self.depth < self.max_length else 0)
                if self.core.ends_key(self.state):
                    return as_tuple(&self.path[0], self.depth)
            at = self.places[self.depth, 1]
            if at < self.places[self.depth, 2]:
                self.places[self.depth, 1] = at + 1
                if self.states[at] != DEAD:
                    self.path[self.depth] = self.tokens[at]
                    self.state = self.states[at]
                    self.depth += 1
                    self.entered = True
            elif self.depth == self.base:
                raise StopIteration
            else:
                self.depth -= 1


cdef class Walker:
    """The base class of :class:`succinct.index.Index`."""

    def __cinit__(self, *args, **kwargs):
        self._core = Core()  # until __init__ has a better one
        self.known = DEAD
        self.number_of_keys = -1

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

    cdef bint _is_state(self, uint64_t state):
        # The check takes its time far into a tail.
        return state == self.known or self._core.is_state(state)

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
        self.known = self._walk(prefix, "prefix")
        return as_scalar(self.known)

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
        if token >= 0 and plain_state(states, &state) and self._is_state(state):
            self.known = self._core.step(state, token)
            return as_scalar(self.known)
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
        if plain_state(states, &state) and self._is_state(state):
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

    def key(self, number):
        """The tokens of a key from its number; a list of tuples for an array of numbers.

        Raises
        ------
        IndexError
            If a number is not in 0…n_keys - 1.
        FormatError
            If the index came from a damaged file and the key cannot be read.

        Examples
        --------
        >>> from succinct import KeyTable, StepMap
        >>> index = StepMap.build(KeyTable.from_sequences([(1, 2), (1, 3)]))
        >>> index.key(1), index.key([0, 1])
        ((1, 3), [(1, 2), (1, 3)])
        """
        cdef uint32_t tokens[SHORT]
        cdef uint64_t wanted
        cdef int64_t length
        if self.number_of_keys < 0:
            self.number_of_keys = self.n_keys
        if plain_state(number, &wanted) and wanted < <uint64_t>self.number_of_keys:
            length = self._core.key_length(wanted)
            if 0 <= length <= SHORT:
                self._core.read_key(wanted, tokens + length)
                return as_tuple(tokens, length)
        array = _args.positions(number, self.number_of_keys, "key number")
        values, offsets = self.key_tokens(array.reshape(-1))
        tokens_of, bounds = values.tolist(), offsets.tolist()
        keys = [tuple(tokens_of[a:b]) for a, b in zip(bounds, bounds[1:])]
        return keys if array.ndim else keys[0]

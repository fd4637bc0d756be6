# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=True, embedsignature.format=python
"""Sorted integers in quasi-succinct space."""

from libc.stdint cimport int64_t, uint64_t

from succinct.bits.bitvector cimport (
    BitVector, bits_kernels_t, is_scalar, kernels_in_use, mark_t, marks_fill, marks_shift,
    marks_size, marks_t, plain_int,
)
from succinct.bits.packed cimport PackedArray

import operator

import numpy as np

from succinct._args import checked_out, plain_positions, positions, values64

NONE = 2**64 - 1


cdef class EliasFano:
    """A non-decreasing sequence of integers in about 2 + log2(u / n) bits each.

    The low bits of every value lie in a :class:`PackedArray`; the high bits are a unary coded
    bit-vector in which value i sets bit ``(value >> low) + i`` (Elias, DOI 10.1145/321812.321820;
    Fano 1971; Vigna, DOI 10.1145/2433396.2433409).

    Parameters
    ----------
    sorted_values : array_like of integers, shape (n,)
        Non-decreasing, from 0 to 2**64 - 2.

    Raises
    ------
    ValueError
        If the values are not sorted, or one is negative or too large.
    TypeError
        If they are not integers.

    Notes
    -----
    Access and rank are one select, which marks answer from one word (64 bits each, for every 160 to
    320 of the high ones: about a bit a value), and a binary search among the values that share their
    high bits. Scalars give ``int``, arrays give arrays of the same shape.

    Examples
    --------
    >>> from succinct import EliasFano
    >>> values = EliasFano([2, 3, 5, 1000])
    >>> values[3], values.rank(5), values.next_geq(6)
    (1000, 2, 1000)
    """

    def __init__(self, sorted_values):
        array = values64(sorted_values, "sorted_values")
        if array.ndim != 1:
            raise ValueError(f"expected one dimension of values, got shape {array.shape}")
        n = array.size
        falls = np.flatnonzero(array[1:] < array[: n - 1]) if n else ()
        if len(falls):
            bad = int(falls[0]) + 1
            raise ValueError(
                f"values must be sorted: [{bad}] = {array[bad]} follows {array[bad - 1]}"
            )
        if n and array[n - 1] == NONE:
            raise ValueError(f"values must be at most 2**64 - 2, got {array[n - 1]}")
        top = int(array[n - 1]) if n else 0
        width = max(0, (top // n).bit_length() - 1) if n else 0
        self.low = PackedArray(array & np.uint64((1 << width) - 1), width)
        at = (array >> np.uint64(width)) + np.arange(n, dtype=np.uint64)
        self.high = BitVector.from_indices(at, n + (top >> width) + 1 if n else 0)
        self._view()

    cdef int _view(self) except -1:
        self.e.high, self.e.low = self.high.v, self.low.p
        self.marks = (
            self._mark(self.high.v.ones, 0, &self.e.ones),
            self._mark(self.high.v.length - self.high.v.ones, 1, &self.e.zeros),
        )
        return 0

    cdef object _mark(self, uint64_t count, int zeros, marks_t *marks):
        """The marks of the ones or the zeros of the high bits (marks.h)."""
        cdef uint64_t length = self.high.v.length
        cdef uint64_t shift = marks_shift(length, count) if count else 0
        words = np.empty(marks_size(length, count, shift) if count else 0, np.uint64)
        cdef uint64_t[::1] view = words
        marks.mark, marks.shift = NULL, shift
        if view.shape[0]:
            with nogil:
                marks_fill(&self.high.v, 0, length, zeros, shift, <mark_t *>&view[0])
            marks.mark = <mark_t *>&view[0]
        return words

    def __len__(self):
        return len(self.low)

    @property
    def nbytes(self):
        """Bytes of both parts with their directories."""
        return self.high.nbytes + self.low.nbytes + sum(marks.nbytes for marks in self.marks)

    def __getitem__(self, i):
        return self.access(i)

    def access(self, i, out=None):
        """Value i, or the values at an array of positions; negative integers count back.

        Parameters
        ----------
        i : int, slice or array_like of integers
        out : uint64 array, optional
            C-contiguous, of the shape of `i`; it is filled and returned. After an error its
            contents are undefined.
        """
        cdef const bits_kernels_t *kernels = kernels_in_use()
        cdef uint64_t place = plain_int(i)
        if place < self.e.low.length and out is None:
            return kernels.ef_get(&self.e, place)
        if is_scalar(i) and out is None:
            at = operator.index(i)
            if at < 0:
                at += len(self)
            if not 0 <= at < len(self):
                raise IndexError(f"position {i} is out of range for {len(self)} values")
            return kernels.ef_get(&self.e, at)
        if isinstance(i, slice):
            i = np.arange(*i.indices(len(self)))
        array = plain_positions(i, self.e.low.length)
        if out is None:
            result = np.empty(array.shape, np.uint64)
        else:
            result = checked_out(out, array, np.uint64)
            if np.may_share_memory(result, array):
                array = array.copy()  # they are read again when some values have been written
        cdef const int64_t[::1] q = array.reshape(-1)
        cdef uint64_t[::1] o = result.reshape(-1)
        cdef size_t n = q.shape[0]
        cdef size_t done = 0
        if n:
            with nogil:
                done = kernels.ef_get_batch(&self.e, &q[0], &o[0], n)
        if done < n:
            positions(array, self.e.low.length)  # raises and names the place
        return result if array.ndim or out is not None else result[()].item()

    def rank(self, x):
        """How many values are smaller than x (an integer or an array of them)."""
        array = values64(x, "x")
        out = np.empty(array.shape, np.int64)
        cdef const uint64_t[::1] q = array.reshape(-1)
        cdef uint64_t[::1] o = out.view(np.uint64).reshape(-1)
        cdef const bits_kernels_t *kernels = kernels_in_use()
        if q.shape[0]:
            with nogil:
                kernels.ef_rank_batch(&self.e, &q[0], &o[0], q.shape[0])
        return out if array.ndim else out[()].item()

    def next_geq(self, x, out=None):
        """The smallest value >= x (an integer or an array); 2**64 - 1 where there is none.

        `out` as in :meth:`access`.
        """
        array = values64(x, "x")
        result = np.empty(array.shape, np.uint64) if out is None \
            else checked_out(out, array, np.uint64)
        cdef const uint64_t[::1] q = array.reshape(-1)
        cdef uint64_t[::1] o = result.reshape(-1)
        cdef const bits_kernels_t *kernels = kernels_in_use()
        if q.shape[0]:
            with nogil:
                kernels.ef_next_batch(&self.e, &q[0], &o[0], q.shape[0])
        return result if array.ndim or out is not None else result[()].item()

    def __eq__(self, other):
        if not isinstance(other, EliasFano):
            return NotImplemented
        return len(self) == len(other) and bool((self[:] == other[:]).all())

    __hash__ = None

    def __reduce__(self):
        return _of, (self.high, self.low)

    def __repr__(self):
        return f"EliasFano({len(self)} values, {8 * self.nbytes / max(1, len(self)):.2f} bits each)"


def _of(BitVector high not None, PackedArray low not None):
    """A sequence from its parts, for pickles and copies."""
    if high.v.ones != low.p.length:
        raise ValueError(f"{len(low)} low parts do not belong to {high.count()} high ones")
    cdef EliasFano self = EliasFano.__new__(EliasFano)
    self.high, self.low = high, low
    self._view()
    return self

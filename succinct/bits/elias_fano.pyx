# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=True, embedsignature.format=python
"""Sorted integers in quasi-succinct space."""

from cpython.number cimport PyNumber_AsSsize_t
from libc.stdint cimport int64_t, uint64_t

from succinct.bits.bitvector cimport (
    BitVector, bits_select0, bits_select1, bitvector_t, is_scalar, packed_get, packed_t,
)
from succinct.bits.packed cimport PackedArray

import numpy as np

from succinct._args import positions, values64

NONE = 2**64 - 1


cdef inline uint64_t ef_get(const bitvector_t *high, const packed_t *low, uint64_t i) \
        noexcept nogil:
    return ((bits_select1(high, i) - i) << low.width) | packed_get(low, i)


cdef inline uint64_t ef_rank(const bitvector_t *high, const packed_t *low, uint64_t x) \
        noexcept nogil:
    """Values smaller than x: those of lower buckets, then a binary search in the bucket of x."""
    cdef uint64_t n = low.length
    cdef uint64_t bucket = x >> low.width
    cdef uint64_t buckets = high.length - high.ones
    cdef uint64_t begin, end, mid, rest
    if bucket >= buckets:
        return n
    begin = bits_select0(high, bucket - 1) - (bucket - 1) if bucket else 0
    end = bits_select0(high, bucket) - bucket
    rest = x & low.mask
    while begin < end:
        mid = (begin + end) >> 1
        if packed_get(low, mid) < rest:
            begin = mid + 1
        else:
            end = mid
    return begin


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
    Access is one select; rank and next_geq are two selects and a binary search among the values
    that share their high bits. Scalars give ``int``, arrays give arrays of the same shape.

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

    def __len__(self):
        return len(self.low)

    @property
    def nbytes(self):
        """Bytes of both parts with their directories."""
        return self.high.nbytes + self.low.nbytes

    def __getitem__(self, i):
        cdef int64_t at, n = len(self.low)
        if is_scalar(i):
            at = PyNumber_AsSsize_t(i, IndexError)
            if at < 0:
                at += n
            if not 0 <= at < n:
                raise IndexError(f"position {i} is out of range for {n} values")
            return ef_get(&self.high.v, &self.low.p, at)
        if isinstance(i, slice):
            i = np.arange(*i.indices(n))
        array = positions(i, n)
        out = np.empty(array.size, np.uint64)
        cdef const int64_t[::1] q = array.reshape(-1)
        cdef uint64_t[::1] o = out
        cdef Py_ssize_t k
        with nogil:
            for k in range(q.shape[0]):
                o[k] = ef_get(&self.high.v, &self.low.p, q[k])
        return out.reshape(array.shape) if array.ndim else out[0].item()

    def access(self, i):
        """Value i: the same as ``self[i]``."""
        return self[i]

    def rank(self, x):
        """How many values are smaller than x (an integer or an array of them)."""
        array = values64(x, "x")
        out = np.empty(array.size, np.int64)
        cdef const uint64_t[::1] q = array.reshape(-1)
        cdef int64_t[::1] o = out
        cdef Py_ssize_t k
        with nogil:
            for k in range(q.shape[0]):
                o[k] = <int64_t>ef_rank(&self.high.v, &self.low.p, q[k])
        return out.reshape(array.shape) if array.ndim else out[0].item()

    def next_geq(self, x):
        """The smallest value >= x (an integer or an array); 2**64 - 1 where there is none."""
        array = values64(x, "x")
        out = np.empty(array.size, np.uint64)
        cdef const uint64_t[::1] q = array.reshape(-1)
        cdef uint64_t[::1] o = out
        cdef uint64_t i
        cdef Py_ssize_t k
        with nogil:
            for k in range(q.shape[0]):
                i = ef_rank(&self.high.v, &self.low.p, q[k])
                o[k] = ef_get(&self.high.v, &self.low.p, i) if i < self.low.p.length \
                    else <uint64_t>-1
        return out.reshape(array.shape) if array.ndim else out[0].item()

    def __repr__(self):
        return f"EliasFano({len(self)} values, {8 * self.nbytes / max(1, len(self)):.2f} bits each)"

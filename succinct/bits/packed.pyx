# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=True, embedsignature.format=python
"""Integers of a fixed number of bits."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from succinct.bits.bitvector cimport (
    bits_kernels_t, is_scalar, kernels_in_use, packed_get, packed_put, plain_int,
)

import operator

import numpy as np

from succinct._args import checked_out, plain_positions, values64
from succinct._args import positions as all_positions
from succinct.bits.lanes import PackedLanes


def words_for(length, width):
    """Words of a packed array: those that the values fill and one more, so that reading is
    always two words wide."""
    return (length * width + 63) // 64 + 1


cdef class PackedArray:
    """An immutable array of unsigned integers, each of `width` bits.

    Value i is bits ``[i * width, (i + 1) * width)`` of little-endian 64-bit words.

    Parameters
    ----------
    values : array_like of integers, shape (n,)
        Non-negative.
    width : int, optional
        Bits a value, 0 to 64; by default what the largest value needs (0 if all are zero).

    Raises
    ------
    ValueError
        If a value is negative or does not fit the width, or the width is not in 0..64.
    TypeError
        If the values are not integers.

    Notes
    -----
    Space: n * width bits. Access: O(1), two words read. ``array[i]`` is an ``int`` for an
    integer (negative ones count back) and a uint64 array for an array of positions or a slice.

    Examples
    --------
    >>> from succinct import PackedArray
    >>> packed = PackedArray([5, 0, 7])
    >>> packed.width, packed[2], packed[[0, 1]].tolist()
    (3, 7, [5, 0])
    """

    def __init__(self, values, width=None):
        array = values64(values, "values")
        if array.ndim != 1:
            raise ValueError(f"expected one dimension of values, got shape {array.shape}")
        top = int(array.max()) if array.size else 0
        if width is None:
            width = top.bit_length()
        _check_width(width)
        width = int(width)
        if top.bit_length() > width:
            bad = int(np.flatnonzero(array >> np.uint64(width))[0])
            raise ValueError(f"values[{bad}] = {array[bad]} does not fit into {width} bits")
        packed = np.zeros(words_for(array.size, width), np.uint64)
        cdef const uint64_t[::1] source = array
        cdef uint64_t[::1] words = packed
        cdef uint32_t w = width
        cdef Py_ssize_t i
        if width:
            with nogil:
                for i in range(source.shape[0]):
                    packed_put(&words[0], w, i, source[i])
        self._view(packed, array.size, width)

    @staticmethod
    def from_storage(words, length, width):
        """A view of packed words as a file holds them, without a copy.

        ``ValueError`` if the number of words does not fit `length` values of `width` bits.
        The caller does not change the words afterwards.
        """
        _check_width(width)
        want = words_for(length, width)
        if words.dtype != np.uint64 or words.shape != (want,) or not words.flags.c_contiguous:
            raise ValueError(
                f"{length} values of {width} bits need {want} contiguous uint64 words, "
                f"got {words.dtype} of shape {words.shape}"
            )
        cdef PackedArray self = PackedArray.__new__(PackedArray)
        self._view(words, length, width)
        return self

    cdef int _view(self, object words, object length, object width) except -1:
        cdef const uint64_t[::1] w = words
        self.words = words
        self.words.flags.writeable = False
        self.p.words = &w[0]
        self.p.length = length
        self.p.width = width
        self.p.mask = (1 << width) - 1
        return 0

    @property
    def width(self):
        """Bits a value."""
        return self.p.width

    @property
    def nbytes(self):
        """Bytes of the words."""
        return self.words.nbytes

    def __len__(self):
        return self.p.length

    def __getitem__(self, i):
        cdef uint64_t place = plain_int(i)
        if place < self.p.length:
            return packed_get(&self.p, place)
        if is_scalar(i):
            at = operator.index(i)
            if at < 0:
                at += len(self)
            if not 0 <= at < len(self):
                raise IndexError(f"position {i} is out of range for {len(self)} values")
            return packed_get(&self.p, at)
        if isinstance(i, slice):
            i = np.arange(*i.indices(len(self)))
        return self.get(i)

    def get(self, positions, out=None):
        """The values at an array of positions, none of them negative.

        Parameters
        ----------
        positions : array_like of integers
        out : uint64 array, optional
            C-contiguous, of the shape of `positions`; it is filled and returned. After an error
            its contents are undefined.
        """
        array = plain_positions(positions, self.p.length)
        result = np.empty(array.shape, np.uint64) if out is None \
            else checked_out(out, array, np.uint64)
        cdef const int64_t[::1] q = array.reshape(-1)
        cdef uint64_t[::1] o = result.reshape(-1)
        cdef const bits_kernels_t *kernels = kernels_in_use()
        cdef size_t n = q.shape[0]
        cdef size_t done = 0
        if n:
            with nogil:
                done = kernels.packed_batch(&self.p, &q[0], &o[0], n)
        if done < n:
            all_positions(array, self.p.length)  # raises and names the place
        return result if array.ndim or out is not None else result[()].item()

    def lane_arrays(self):
        """The arrays behind the values, for functions that numba compiles."""
        return PackedLanes(self.words, np.int64(self.p.width))

    def __eq__(self, other):
        if not isinstance(other, PackedArray):
            return NotImplemented
        return len(self) == len(other) and bool((self[:] == other[:]).all())

    __hash__ = None

    def __reduce__(self):
        return PackedArray.from_storage, (self.words, len(self), self.width)

    def __repr__(self):
        return f"PackedArray({len(self)} values of {self.width} bits)"


def _check_width(width):
    if not is_scalar(width):
        raise TypeError(f"width must be an integer, got {width!r}")
    if not 0 <= width <= 64:
        raise ValueError(f"width must be in 0..64, got {width}")

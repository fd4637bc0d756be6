# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
# cython: embedsignature=True, embedsignature.format=python
"""A bit-vector with rank and select."""

from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.number cimport PyIndex_Check, PyNumber_AsSsize_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

import os

import numpy as np

from succinct._args import checked_out, integers, plain_positions, positions
from succinct.bits.lanes import BitLanes


def zero_words(length):
    """Zeros for `length` bits in whole blocks, each of them in one line of the cache."""
    n = BLOCK_WORDS * (length // 512 + 1)
    array = np.zeros(n + BLOCK_WORDS - 1, np.uint64)
    skip = -array.ctypes.data // 8 % BLOCK_WORDS
    return array[skip : skip + n]


cdef bint is_scalar(object x):
    return PyIndex_Check(x) and not isinstance(x, np.ndarray)


cdef uint64_t plain_int(object i) noexcept:
    cdef int overflow = 0
    cdef int64_t value
    if not PyLong_CheckExact(i):
        return <uint64_t>-1
    value = PyLong_AsLongLongAndOverflow(i, &overflow)
    return <uint64_t>value if value >= 0 else <uint64_t>-1


cdef const bits_kernels_t *kernels = NULL


cdef const bits_kernels_t *kernels_in_use() noexcept:
    return kernels


def use_isa(name=None):
    """Choose the instruction set of rank and select, or the best one that the processor runs.

    Parameters
    ----------
    name : {"portable", "x86-64-v3", "avx512"}, optional

    Returns
    -------
    str
        The name of the one in use.

    Raises
    ------
    ValueError
        If the processor does not run it; what was in use stays in use.

    Notes
    -----
    Called at import with the environment variable ``SUCCINCT_ISA``. For tests and measurements:
    the choice holds for the whole process and changes no result.
    """
    global kernels
    cdef bytes wanted = (name or "").encode()
    cdef const bits_kernels_t *found = kernels_for(<const char *>wanted if wanted else NULL)
    if found == NULL:
        runs = [n for n in ("portable", "x86-64-v3", "avx512") if kernels_for(n.encode()) != NULL]
        raise ValueError(f"instruction set must be one of {', '.join(runs)}, got {name!r}")
    kernels = found
    return isa()


def isa():
    """The name of the instruction set in use."""
    return isa_names[kernels.level].decode()


use_isa(os.environ.get("SUCCINCT_ISA"))


cdef enum:
    SHORT = 1 << 20


cdef uint32_t sample_shift(uint64_t count, uint64_t length):
    """The smallest shift that puts samples about SAMPLE_SPACING bits apart or farther; 0.9 of it
    is near enough, so that densities around a power of two do not double the distance.

    Short vectors have samples farther apart: what is padded is a larger share of them, and what is
    searched between two samples is at hand in a cache."""
    cdef uint32_t shift = 0
    cdef double spacing = SAMPLE_SPACING
    if length < SHORT:
        spacing *= 4 if length < SHORT // 8 else 2
    while (<double>length) * (1 << shift) < 0.9 * spacing * <double>count:
        shift += 1
    return shift


cdef uint64_t n_samples(uint64_t count, uint32_t shift):
    return ((count + (<uint64_t>1 << shift) - 1) >> shift) + 1


cdef samples_of(const bitvector_t *v, bint zeros):
    """Samples of the ones or zeros of v, whose blocks are filled, and their shift."""
    cdef uint64_t count = v.length - v.ones if zeros else v.ones
    cdef uint32_t shift = sample_shift(count, v.length)
    samples = np.empty(n_samples(count, shift), np.uint32)
    cdef uint32_t[::1] view = samples
    with nogil:
        bits_fill_samples(v, zeros, shift, &view[0])
    return samples, shift


def count_blocks(const uint64_t[::1] words, uint64_t first, uint32_t[::1] ones):
    """Add the ones of words, of which the first is word `first` of a vector, to those of its
    blocks."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(words.shape[0]):
            ones[(first + i) // BLOCK_WORDS] += popcount64(words[i])


def directory(uint32_t[::1] ones, length):
    """The `BitLanes`, without words, of a vector whose blocks have so many ones; `ones` becomes
    one of their arrays."""
    cdef uint64_t total = 0, base = 0, b, count, n_blocks = ones.shape[0]
    cdef uint64_t[::1] supers = np.empty(((n_blocks - 1) >> SUPER_SHIFT) + 1, np.uint64)
    cdef bitvector_t v
    for b in range(n_blocks):
        if b & ((<uint64_t>1 << SUPER_SHIFT) - 1) == 0:
            supers[b >> SUPER_SHIFT] = base = total
        count = ones[b]
        ones[b] = <uint32_t>(total - base)
        total += count
    v.blocks, v.supers, v.length, v.ones = &ones[0], &supers[0], length, total
    samples1, shift1 = samples_of(&v, 0)
    samples0, shift0 = samples_of(&v, 1)
    return BitLanes(
        np.empty(0, np.uint64), ones.base, supers.base, samples1, samples0, np.int64(shift1),
        np.int64(shift0),
    )


cdef class BitVector:
    """A sequence of bits with rank and select in (almost) constant time.

    The bits lie in plain 64-bit words. A 32-bit count for every block of 512 bits serves rank
    (the layout of Zhou, Andersen and Kaminsky's poppy, DOI 10.1007/978-3-642-38527-8_15, with
    one level less); select starts from the block of a sampled one or zero, a sample about every
    4096 bits at any density, fewer in short vectors, and scans the few blocks up to the next one.

    Make one with :meth:`from_bools`, :meth:`from_indices` or :meth:`from_words`.

    Notes
    -----
    Space: the bits, 6.25 % for rank, at most 1.6 % for both selects. Time: O(1) for access and
    rank; select is O(1) where ones are spread evenly and O(log n) at worst. Lengths beyond
    2**32 bits are fine.

    Every query takes an integer and returns an ``int``, or takes an array of integers of any
    shape and returns an int64 array of that shape. Positions and numbers out of range raise
    ``IndexError``, non-integers ``TypeError``.

    Examples
    --------
    >>> from succinct import BitVector
    >>> bits = BitVector.from_bools([1, 0, 1, 1])
    >>> len(bits), bits.count(), bits[1]
    (4, 3, False)
    >>> bits.rank1(3), bits.select1(2), bits.select0(0)
    (2, 3, 1)
    >>> bits.rank1([0, 4]).tolist()
    [0, 3]
    """

    def __init__(self, *_):
        raise TypeError(
            "make a BitVector with from_bools(bools), from_indices(indices, length) "
            "or from_words(words, length)"
        )

    cdef int _build(self, object words, uint64_t length) except -1:
        """Take padded words and build the directory."""
        cdef uint64_t n_blocks = (length >> BLOCK_SHIFT) + 1
        cdef uint64_t count
        cdef const uint64_t[::1] w = words
        cdef uint32_t[::1] blocks = np.empty(n_blocks, np.uint32)
        cdef uint64_t[::1] supers = np.empty(((n_blocks - 1) >> SUPER_SHIFT) + 1, np.uint64)
        cdef uint32_t[::1] samples
        with nogil:
            count = bits_fill_blocks(&w[0], n_blocks, &blocks[0], &supers[0])
        self.v.words = &w[0]
        self.v.blocks = &blocks[0]
        self.v.supers = &supers[0]
        self.v.length = length
        self.v.ones = count
        self.words = words
        self.blocks = blocks.base
        self.supers = supers.base
        self.samples1, self.v.shift1 = samples_of(&self.v, 0)
        self.samples0, self.v.shift0 = samples_of(&self.v, 1)
        samples = self.samples1
        self.v.samples1 = &samples[0]
        samples = self.samples0
        self.v.samples0 = &samples[0]
        for array in (self.words, self.blocks, self.supers, self.samples1, self.samples0):
            array.flags.writeable = False
        return 0

    @staticmethod
    def from_bools(bools):
        """A vector from one-dimensional booleans, or integers that are 0 or 1."""
        array = np.asarray(bools)
        if array.ndim == 0:
            raise TypeError(f"expected a sequence of bools, got {bools!r}")
        if array.ndim != 1:
            raise ValueError(f"expected one dimension of bools, got shape {array.shape}")
        if array.dtype != np.bool_:
            array = integers(bools, "bools")
            wrong = (array != 0) & (array != 1)
            if wrong.any():
                bad = int(np.flatnonzero(wrong)[0])
                raise ValueError(f"bools[{bad}] must be 0 or 1, got {array[bad]}")
            array = array.astype(np.bool_)
        words = zero_words(array.size)
        packed = np.packbits(array, bitorder="little")
        words.view(np.uint8)[: packed.size] = packed
        cdef BitVector self = BitVector.__new__(BitVector)
        self._build(words, array.size)
        return self

    @staticmethod
    def from_indices(indices, length):
        """A vector of `length` bits of which those at `indices` (any order) are one."""
        length = _length(length)
        cdef const int64_t[::1] at = positions(indices, length, "indices").reshape(-1)
        array = zero_words(length)
        cdef uint64_t[::1] words = array
        cdef Py_ssize_t i
        with nogil:
            for i in range(at.shape[0]):
                words[at[i] >> 6] |= <uint64_t>1 << (at[i] & 63)
        cdef BitVector self = BitVector.__new__(BitVector)
        self._build(array, length)
        return self

    @staticmethod
    def from_words(words, length):
        """A vector of the first `length` bits of uint64 words; bit i is bit i % 64 of word i // 64.

        The words are copied; what lies behind `length` is ignored.
        """
        length = _length(length)
        source = np.asarray(words)
        if source.dtype != np.uint64 or source.ndim != 1:
            raise TypeError(
                f"words must be a one-dimensional uint64 array, got {source.dtype} "
                f"of shape {source.shape}"
            )
        used = (length + 63) // 64
        if source.size < used:
            raise ValueError(f"{length} bits need {used} words, got {source.size}")
        array = zero_words(length)
        array[:used] = source[:used]
        if length % 64:
            array[used - 1] &= np.uint64((1 << (length % 64)) - 1)
        cdef BitVector self = BitVector.__new__(BitVector)
        self._build(array, length)
        return self

    @staticmethod
    def from_storage(words, length):
        """A vector over padded words as a file holds them, without a copy.

        `words` must be uint64, contiguous, ``8 * (length // 512 + 1)`` long and zero from bit
        `length` on; otherwise ``ValueError``. The caller does not change them afterwards.
        """
        length = _length(length)
        want = BLOCK_WORDS * (length // 512 + 1)
        if words.dtype != np.uint64 or words.shape != (want,) or not words.flags.c_contiguous:
            raise ValueError(
                f"{length} bits need {want} contiguous uint64 words, "
                f"got {words.dtype} of shape {words.shape}"
            )
        if int(words[length // 64]) >> (length % 64) or words[length // 64 + 1 :].any():
            raise ValueError(f"bits behind the last of {length} are not zero")
        cdef BitVector self = BitVector.__new__(BitVector)
        self._build(words, length)
        return self

    def __len__(self):
        return self.v.length

    def count(self):
        """The number of ones. O(1)."""
        return self.v.ones

    @property
    def nbytes(self):
        """Bytes of the words, the directory and the samples."""
        return sum(
            a.nbytes
            for a in (self.words, self.blocks, self.supers, self.samples1, self.samples0)
        )

    @staticmethod
    def nbytes_for(uint64_t length, uint64_t count):
        """The `nbytes` of a vector of `length` bits of which `count` are one."""
        blocks = (length >> BLOCK_SHIFT) + 1
        supers = ((blocks - 1) >> SUPER_SHIFT) + 1
        samples = n_samples(count, sample_shift(count, length)) + \
            n_samples(length - count, sample_shift(length - count, length))
        return (8 * BLOCK_WORDS + 4) * blocks + 8 * supers + 4 * samples

    def __getitem__(self, i):
        """Bit i as a bool; a bool array for an array of positions; negative ones count back."""
        cdef int64_t at
        if is_scalar(i):
            at = PyNumber_AsSsize_t(i, IndexError)
            if at < 0:
                at += self.v.length
            if not 0 <= at < <int64_t>self.v.length:
                raise IndexError(f"position {i} is out of range for {self.v.length} bits")
            return bits_get(&self.v, at) != 0
        if isinstance(i, slice):
            return self.to_bools(i)
        array = integers(i, "position", IndexError)
        if array.dtype.kind == "i":
            array = array.astype(np.int64)  # a copy, wide enough for the length
            array[array < 0] += self.v.length
        array = positions(array, self.v.length)
        out = np.empty(array.size, np.bool_)
        cdef const int64_t[::1] q = array.reshape(-1)
        cdef uint8_t[::1] bits = out.view(np.uint8)
        cdef Py_ssize_t k
        with nogil:
            for k in range(q.shape[0]):
                bits[k] = bits_get(&self.v, q[k])
        return _shaped(out, array)

    cdef object _query(self, bits_query_t query, bits_batch_t batch, object i, object out,
                       uint64_t limit, str what):
        cdef int64_t at
        if out is None and is_scalar(i):
            at = PyNumber_AsSsize_t(i, IndexError)
            if <uint64_t>at >= limit:
                raise IndexError(f"{what} {i} is out of range (0..{limit - 1})" if limit
                                 else f"{what} {i} is out of range (there is none)")
            return query(&self.v, at)
        array = plain_positions(i, limit, what)
        result = np.empty(array.shape, np.int64) if out is None \
            else checked_out(out, array, np.int64)
        cdef const int64_t[::1] q = array.reshape(-1)
        cdef int64_t[::1] o = result.reshape(-1)
        cdef size_t n = q.shape[0]
        cdef size_t done = 0
        if n:
            with nogil:
                done = batch(&self.v, &q[0], &o[0], n, limit)
        if done < n:
            positions(array, limit, what)  # raises and names the place
        return result if array.ndim or out is not None else result[()].item()

    def rank1(self, i, out=None):
        """Ones among the first i bits, 0 <= i <= len. O(1).

        Parameters
        ----------
        i : int or array_like of integers
        out : int64 array, optional
            C-contiguous, of the shape of `i`; it is filled and returned. After an error its
            contents are undefined.
        """
        cdef uint64_t at = plain_int(i)
        if at < self.v.length + 1 and out is None:
            return kernels.rank1(&self.v, at)
        return self._query(kernels.rank1, kernels.rank1_batch, i, out, self.v.length + 1,
                           "position")

    def rank0(self, i, out=None):
        """Zeros among the first i bits, 0 <= i <= len. O(1). `out` as in :meth:`rank1`."""
        cdef uint64_t at = plain_int(i)
        if at < self.v.length + 1 and out is None:
            return kernels.rank0(&self.v, at)
        return self._query(kernels.rank0, kernels.rank0_batch, i, out, self.v.length + 1,
                           "position")

    def select1(self, k, out=None):
        """Position of one number k, counted from 0. `out` as in :meth:`rank1`."""
        cdef uint64_t at = plain_int(k)
        if at < self.v.ones and out is None:
            return kernels.select1(&self.v, at)
        return self._query(kernels.select1, kernels.select1_batch, k, out, self.v.ones,
                           "one number")

    def select0(self, k, out=None):
        """Position of zero number k, counted from 0. `out` as in :meth:`rank1`."""
        cdef uint64_t at = plain_int(k)
        if at < self.v.length - self.v.ones and out is None:
            return kernels.select0(&self.v, at)
        return self._query(kernels.select0, kernels.select0_batch, k, out,
                           self.v.length - self.v.ones, "zero number")

    def next_zero(self, i, out=None):
        """The first position >= i whose bit is zero, or len. `out` as in :meth:`rank1`."""
        return self._query(kernels.next_zero, kernels.next_zero_batch, i, out, self.v.length + 1,
                           "position")

    def next_one(self, i, out=None):
        """The first position >= i whose bit is one, or len. `out` as in :meth:`rank1`."""
        return self._query(kernels.next_one, kernels.next_one_batch, i, out, self.v.length + 1,
                           "position")

    def to_bools(self, at=slice(None)):
        """The bits, or a slice of them, as a bool array."""
        start, stop, step = at.indices(self.v.length)
        if step != 1:
            return self[np.arange(start, stop, step)]
        stop = max(start, stop)
        first = start // 64
        words = self.words[first : (stop + 63) // 64]
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        return bits[start - 64 * first : stop - 64 * first].astype(np.bool_)

    def lane_arrays(self):
        """The arrays behind the vector, for functions that numba compiles."""
        return BitLanes(
            self.words, self.blocks, self.supers, self.samples1, self.samples0,
            np.int64(self.v.shift1), np.int64(self.v.shift0),
        )

    def __eq__(self, other):
        if not isinstance(other, BitVector):
            return NotImplemented
        return len(self) == len(other) and bool((self.words == other.words).all())

    __hash__ = None

    def __reduce__(self):
        return BitVector.from_storage, (self.words, len(self))

    def __repr__(self):
        return f"BitVector({len(self)} bits, {self.count()} ones)"


def _length(length):
    if not is_scalar(length):
        raise TypeError(f"length must be an integer, got {length!r}")
    length = int(length)
    if not 0 <= length < 2**41:
        raise ValueError(f"length must be in 0..2**41 - 1, got {length}")
    return length


def _shaped(out, like):
    """An array of results in the shape of the queries; a plain scalar for a 0-d array."""
    return out.reshape(like.shape) if like.ndim else out[0].item()

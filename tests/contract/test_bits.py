"""BitVector, PackedArray and EliasFano answer as the definitions say."""

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.implementations import BITS, each_bits
from tests.strategies import bit_lists, packed_values, sorted_values

WORD = 2**64


def to_words(bits, garbage=False):
    """Pack bits into 64-bit words; bits behind the last are `garbage`."""
    padded = bits + [garbage] * (-len(bits) % 64)
    return [
        sum(bit << i for i, bit in enumerate(padded[start : start + 64]))
        for start in range(0, len(padded), 64)
    ]


def some(n):
    """Positions in [0, n): all of few; of many those around borders and a regular sample."""
    if n <= 260:
        return list(range(n))
    near = {b + d for b in (0, 64, 512, 1024, 4096, n // 2, n) for d in (-2, -1, 0, 1, 2)}
    return sorted(i for i in near | set(range(0, n, 37)) if 0 <= i < n)


def check_bit_vector(vector, bits):
    n = len(bits)
    before = [0, *accumulate(bits)]
    ones = [i for i in range(n) if bits[i]]
    zeros = [i for i in range(n) if not bits[i]]
    assert len(vector) == n
    assert vector.count() == len(ones)
    at, upto = some(n), some(n + 1)
    assert vector[at] == [bits[i] for i in at]
    assert vector.rank1(upto) == [before[i] for i in upto]
    assert vector.rank0(upto) == [i - before[i] for i in upto]
    first, second = some(len(ones)), some(len(zeros))
    assert vector.select1(first) == [ones[k] for k in first]
    assert vector.select0(second) == [zeros[k] for k in second]
    following = n
    next_zero = [n] * (n + 1)
    for i in range(n - 1, -1, -1):
        following = i if not bits[i] else following
        next_zero[i] = following
    assert vector.next_zero(upto) == [next_zero[i] for i in upto]


@each_bits
@given(values=bit_lists())
def test_bit_vector_from_bools(bits, values):
    check_bit_vector(bits.BitVector.from_bools(values), values)


@each_bits
@given(values=bit_lists())
def test_bit_vector_from_indices(bits, values):
    indices = [i for i, bit in enumerate(values) if bit]
    check_bit_vector(bits.BitVector.from_indices(indices, len(values)), values)


@each_bits
@given(values=bit_lists(), garbage=st.booleans(), spare=st.integers(0, 9))
def test_bit_vector_from_words_ignores_what_is_behind_the_end(bits, values, garbage, spare):
    words = to_words(values, garbage) + [WORD - 1 if garbage else 0] * spare
    check_bit_vector(bits.BitVector.from_words(words, len(values)), values)


@each_bits
@pytest.mark.parametrize("n", [*range(131), 511, 512, 513, 1024, 1025])
def test_bit_vector_of_every_short_length(bits, n):
    for values in ([True] * n, [False] * n, [i % 3 == 0 for i in range(n)]):
        check_bit_vector(bits.BitVector.from_bools(values), values)


@each_bits
@given(values=bit_lists())
def test_bit_vector_scalars_are_scalars(bits, values):
    vector = bits.BitVector.from_bools(values)
    n, ones = len(values), sum(values)
    for i in {0, n // 2, n}:
        assert vector.rank1(i) == sum(values[:i])
        assert vector.rank0(i) == i - sum(values[:i])
        assert i <= vector.next_zero(i) <= n
    for i in {0, n - 1} if n else ():
        assert vector[i] is values[i]
    for k in {0, ones - 1} if ones else ():
        assert vector.rank1(vector.select1(k)) == k
        assert vector[vector.select1(k)] is True
    for k in {0, n - ones - 1} if n > ones else ():
        assert vector.rank0(vector.select0(k)) == k
        assert vector[vector.select0(k)] is False


@each_bits
@given(values=bit_lists())
def test_bit_vector_positions_out_of_range(bits, values):
    vector = bits.BitVector.from_bools(values)
    n, ones = len(values), sum(values)
    for method, end in (
        (vector.__getitem__, n),
        (vector.rank1, n + 1),
        (vector.rank0, n + 1),
        (vector.next_zero, n + 1),
        (vector.select1, ones),
        (vector.select0, n - ones),
    ):
        for position in (end, end + 64, 2**40):
            with pytest.raises(IndexError):
                method(position)
            with pytest.raises(IndexError):
                method([0, position] if end else [position])
        if method != vector.__getitem__:
            with pytest.raises(IndexError):
                method(-1)


@each_bits
def test_bit_vector_bad_arguments(bits):
    with pytest.raises((IndexError, ValueError)):
        bits.BitVector.from_indices([0, 5], 5)
    with pytest.raises((IndexError, ValueError)):
        bits.BitVector.from_indices([-1], 5)
    with pytest.raises(ValueError):
        bits.BitVector.from_indices([], -1)
    with pytest.raises(ValueError):
        bits.BitVector.from_words([0], 65)
    vector = bits.BitVector.from_bools([True, False])
    for argument in (0.5, "0", None):
        with pytest.raises(TypeError):
            vector.rank1(argument)


@each_bits
def test_bit_vector_of_no_answers(bits):
    vector = bits.BitVector.from_bools([True, False, True])
    for method in (vector.rank1, vector.rank0, vector.select1, vector.select0, vector.next_zero):
        assert method([]) == []


@each_bits
@given(case=packed_values(), given_width=st.booleans())
def test_packed_array_gives_back_its_values(bits, case, given_width):
    values, width = case
    if given_width:
        packed = bits.PackedArray(values, width=width)
        assert packed.width == width
    else:
        packed = bits.PackedArray(values)
        assert packed.width == max((value.bit_length() for value in values), default=0)
    assert len(packed) == len(values)
    assert [packed[i] for i in range(len(values))[:20]] == values[:20]
    backwards = list(range(len(values) - 1, -1, -1))
    assert packed[backwards] == values[::-1]


@each_bits
@pytest.mark.parametrize("width", range(65))
def test_packed_array_at_every_width(bits, width):
    largest = 2**width - 1
    values = [largest, 0, largest, largest // 3, largest & 1] * 15
    packed = bits.PackedArray(values, width=width)
    assert packed[list(range(75))] == values
    with pytest.raises(ValueError):
        bits.PackedArray([0, largest + 1] if width < 64 else [0, -1], width=width)


@each_bits
def test_packed_array_bad_arguments(bits):
    for width in (-1, 65):
        with pytest.raises(ValueError):
            bits.PackedArray([0], width=width)
    with pytest.raises(ValueError):
        bits.PackedArray([1, -1])
    with pytest.raises((TypeError, ValueError)):
        bits.PackedArray([0.5])
    packed = bits.PackedArray([3, 4])
    with pytest.raises(IndexError):
        packed[2]
    with pytest.raises(IndexError):
        packed[[0, 2]]


@each_bits
@given(values=sorted_values(), others=st.lists(st.integers(0, WORD - 1), max_size=5))
def test_elias_fano(bits, values, others):
    sequence = bits.EliasFano(values)
    assert len(sequence) == len(values)
    at = list(range(len(values)))
    assert sequence.access(at) == values
    assert sequence[at] == values
    assert [sequence[i] for i in at[:20]] == values[:20]
    bounds = sorted({b for v in values for b in (max(v - 1, 0), v, v + 1)} | {0, *others})
    ranks = [sum(v < b for v in values) for b in bounds]
    following = [min((v for v in values if v >= b), default=WORD - 1) for b in bounds]
    assert sequence.rank(bounds) == ranks
    assert [sequence.rank(b) for b in bounds[:20]] == ranks[:20]
    assert sequence.next_geq(bounds) == following
    assert [sequence.next_geq(b) for b in bounds[:20]] == following[:20]


@each_bits
def test_elias_fano_bad_arguments(bits):
    with pytest.raises(ValueError):
        bits.EliasFano([1, 3, 2])
    with pytest.raises(ValueError):
        bits.EliasFano([-1, 0])
    with pytest.raises(ValueError):
        bits.EliasFano([0, WORD - 1])
    sequence = bits.EliasFano([1, 3])
    for position in (2, 2**40):
        with pytest.raises(IndexError):
            sequence[position]
        with pytest.raises(IndexError):
            sequence.access([0, position])


def test_library_dtypes():
    library = BITS["library"]
    vector = library.BitVector.from_bools([True, False, True]).raw
    positions = np.array([0, 1], dtype=np.uint8)
    for method in (vector.rank1, vector.rank0, vector.select1, vector.next_zero):
        assert type(method(0)) is int
    for method in (vector.rank1, vector.rank0, vector.next_zero):
        answer = method(positions)
        assert answer.dtype == np.int64
        assert answer.shape == (2,)
    assert type(vector[0]) is bool
    assert vector[positions].dtype == np.bool_
    packed = library.PackedArray([1, 2**64 - 1]).raw
    assert type(packed[1]) is int
    assert packed[1] == 2**64 - 1
    assert packed[positions].dtype == np.uint64
    sequence = library.EliasFano([1, 2**64 - 2]).raw
    assert type(sequence[1]) is int
    assert type(sequence.rank(5)) is int
    assert type(sequence.next_geq(5)) is int
    assert sequence.access(positions).dtype == np.uint64
    assert sequence.next_geq(positions).dtype == np.uint64
    assert sequence.rank(positions).dtype == np.int64


@pytest.mark.parametrize("length", [2**16 - 1, 2**16, 2**17 - 1, 2**17, 2**20 - 1, 2**20, 2**21])
@pytest.mark.parametrize("density", [0.02, 0.3, 0.5, 0.9])
def test_library_sizes(length, density):
    """Directory, samples and padding are at most 8 % of the bits."""
    bits = np.random.default_rng(1).random(length) < density
    vector = BITS["library"].BitVector.from_bools(bits).raw
    assert 8 * vector.nbytes <= 1.08 * length
    assert vector.nbytes == type(vector).nbytes_for(length, vector.count())

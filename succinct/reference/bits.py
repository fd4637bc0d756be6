"""Bit-vectors, packed integers and Elias-Fano lists as plain Python lists.

Every answer is found by counting, so that the code states the definition and nothing else.
Arguments are one integer or a list of them; a list gives a list.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import index as as_int
from typing import Any, TypeVar

T = TypeVar("T")
NO_VALUE = 2**64 - 1  # what `EliasFano.next_geq` gives when there is none


def each(answer: Callable[[int], T], argument: Any) -> Any:
    """Apply `answer` to one integer, or to every integer of a list."""
    if isinstance(argument, (list, tuple, range)):
        return [answer(as_int(value)) for value in argument]
    return answer(as_int(argument))


def check_position(position: int, end: int, what: str) -> int:
    """Return `position` if it lies in [0, end), else raise IndexError."""
    if not 0 <= position < end:
        raise IndexError(f"{what}: expected a position in [0, {end}), got {position}")
    return position


class BitVector:
    """A sequence of bits with rank (over [0, i)) and select (counted from 0)."""

    def __init__(self, bits: Iterable[bool]) -> None:
        self.bits = [bool(bit) for bit in bits]

    @classmethod
    def from_bools(cls, bits: Iterable[bool]) -> "BitVector":
        return cls(bits)

    @classmethod
    def from_indices(cls, indices: Iterable[int], length: int) -> "BitVector":
        if length < 0:
            raise ValueError(f"length: expected 0 or more, got {length}")
        bits = [False] * length
        for index in indices:
            bits[check_position(as_int(index), length, "from_indices")] = True
        return cls(bits)

    @classmethod
    def from_words(cls, words: Sequence[int], length: int) -> "BitVector":
        """Bit i is bit i % 64 of word i // 64; bits from `length` on are ignored."""
        if length < 0 or length > 64 * len(words):
            raise ValueError(f"length: expected 0..{64 * len(words)}, got {length}")
        return cls(words[i // 64] >> (i % 64) & 1 == 1 for i in range(length))

    def __len__(self) -> int:
        return len(self.bits)

    def __getitem__(self, positions: Any) -> Any:
        return each(lambda i: self.bits[check_position(i, len(self), "bit")], positions)

    def count(self) -> int:
        """How many bits are 1."""
        return sum(self.bits)

    def rank1(self, positions: Any) -> Any:
        """How many of the bits before position i are 1, for i in 0..len."""
        return each(
            lambda i: sum(self.bits[: check_position(i, len(self) + 1, "rank1")]), positions
        )

    def rank0(self, positions: Any) -> Any:
        """How many of the bits before position i are 0, for i in 0..len."""
        return each(lambda i: i - sum(self.bits[: check_position(i, len(self) + 1, "rank0")]),
                    positions)  # fmt: skip

    def select1(self, ranks: Any) -> Any:
        """The position of the 1 that has k others before it."""
        ones = [i for i, bit in enumerate(self.bits) if bit]
        return each(lambda k: ones[check_position(k, len(ones), "select1")], ranks)

    def select0(self, ranks: Any) -> Any:
        """The position of the 0 that has k others before it."""
        zeros = [i for i, bit in enumerate(self.bits) if not bit]
        return each(lambda k: zeros[check_position(k, len(zeros), "select0")], ranks)

    def next_zero(self, positions: Any) -> Any:
        """The first position >= i that holds a 0; len if there is none (what follows is 0)."""

        def answer(i: int) -> int:
            check_position(i, len(self) + 1, "next_zero")
            while i < len(self) and self.bits[i]:
                i += 1
            return i

        return each(answer, positions)


class PackedArray:
    """Integers of `width` bits each; without a width, as many as the largest needs."""

    def __init__(self, values: Iterable[int], width: int | None = None) -> None:
        self.values = [as_int(value) for value in values]
        if width is None:
            width = max((value.bit_length() for value in self.values), default=0)
        if not 0 <= width <= 64:
            raise ValueError(f"width: expected 0..64 bits, got {width}")
        for i, value in enumerate(self.values):
            if not 0 <= value < 2**width:
                raise ValueError(f"value {i}: expected 0..{2**width - 1}, got {value}")
        self.width = width

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, positions: Any) -> Any:
        return each(lambda i: self.values[check_position(i, len(self), "value")], positions)

    def __iter__(self) -> Iterator[int]:
        return iter(self.values)


class EliasFano:
    """A sorted list of integers, repetitions allowed, in [0, 2**64 - 2]."""

    def __init__(self, values: Iterable[int]) -> None:
        self.values = [as_int(value) for value in values]
        for i, value in enumerate(self.values):
            if not 0 <= value < NO_VALUE:
                raise ValueError(f"value {i}: expected 0..{NO_VALUE - 1}, got {value}")
            if i and value < self.values[i - 1]:
                raise ValueError(f"value {i}: {value} is smaller than the one before it")

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, positions: Any) -> Any:
        return each(lambda i: self.values[check_position(i, len(self), "value")], positions)

    def access(self, positions: Any) -> Any:
        """The i-th value, counted from 0."""
        return self[positions]

    def rank(self, bounds: Any) -> Any:
        """How many values are smaller than x."""
        return each(lambda x: sum(value < x for value in self.values), bounds)

    def next_geq(self, bounds: Any) -> Any:
        """The smallest value that is at least x; 2**64 - 1 if there is none."""
        return each(
            lambda x: min((value for value in self.values if value >= x), default=NO_VALUE), bounds
        )

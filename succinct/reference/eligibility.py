"""Which keys a request may get, and which prefixes lead to one of them."""

from collections.abc import Container, Sequence
from typing import Any, Protocol

from succinct.reference.trie import Key

Bits = Sequence[bool]


class Numbered(Protocol):
    """What is asked of an index: its keys by number."""

    @property
    def n_keys(self) -> int: ...
    def key(self, number: int, /) -> Any: ...


class _Everything:
    """What there is: a search asks only about keys and prefixes that the index has."""

    def __contains__(self, _: object) -> bool:
        return True


class Eligible:
    """The keys that a bitmap over key numbers leaves, and the proper prefixes of those.

    Examples
    --------
    >>> from succinct.reference import Trie
    >>> eligible = Eligible(Trie([(1,), (1, 2), (3, 4)]), [True, False, True])
    >>> sorted(eligible.keys), sorted(eligible.prefixes)
    ([(1,), (3, 4)], [(), (3,)])
    """

    def __init__(self, index: Numbered, allowed: Bits | None) -> None:
        if allowed is None:
            self.keys: Container[Key] = _Everything()
            self.prefixes: Container[Key] = _Everything()
            return
        if len(allowed) != index.n_keys:
            raise ValueError(f"allowed: expected {index.n_keys} bits, got {len(allowed)}")
        keys = {tuple(index.key(number)) for number, bit in enumerate(allowed) if bit}
        self.keys = keys
        self.prefixes = {key[:n] for key in keys for n in range(len(key))}


def for_each_request(
    index: Numbered, allowed: Bits | Sequence[Bits | None] | None, n_requests: int
) -> list[Eligible]:
    """One for each request, of one bitmap for all of them or of a list of as many (or None)."""
    if allowed is None or all(isinstance(item, bool) for item in allowed):
        return [Eligible(index, allowed)] * n_requests  # type: ignore[arg-type]
    if len(allowed) != n_requests:
        raise ValueError(f"allowed: expected {n_requests} bitmaps, got {len(allowed)}")
    return [Eligible(index, bits) for bits in allowed]  # type: ignore[arg-type]

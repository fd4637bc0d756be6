"""A slow encoder of the lanes' arrays, straight from their definitions; for tests only."""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from succinct.bits.lanes import BitLanes, PackedLanes
from succinct.trie import lanes as louds_lanes
from succinct.trie.lanes import LoudsLanes

Key = tuple[int, ...]


def _array(values: Iterable[int], dtype: Any) -> Any:
    array = np.array(list(values), dtype)
    array.flags.writeable = False
    return array


def _words(value: int, n_words: int) -> Any:
    return _array((value >> (64 * i) & 2**64 - 1 for i in range(n_words)), np.uint64)


def encode_bits(bits: Sequence[int], shift: int = 9) -> BitLanes:
    n = len(bits)
    n_blocks = n // 512 + 1
    value = int("".join("1" if bit else "0" for bit in reversed(bits)) or "0", 2)
    blocks = [sum(map(bool, bits[: 512 * b])) for b in range(n_blocks)]
    samples = []
    for wanted in (True, False):
        places = [i for i, bit in enumerate(bits) if bool(bit) == wanted]
        samples.append([place // 512 for place in places[:: 1 << shift]] + [n // 512])
    return BitLanes(
        _words(value, 8 * n_blocks),
        _array(blocks, np.uint32),
        _array([0], np.uint64),
        _array(samples[0], np.uint32),
        _array(samples[1], np.uint32),
        np.int64(shift),
        np.int64(shift),
    )


def encode_packed(values: Sequence[int], width: int | None = None) -> PackedLanes:
    if width is None:
        width = max((int(value).bit_length() for value in values), default=0)
    value = sum(v << (i * width) for i, v in enumerate(values))
    return PackedLanes(_words(value, -(-len(values) * width // 64) + 1), np.int64(width))


class EncodedTrie:
    """What engines and the reference search ask of an index, on uncompiled lanes.

    `tails` folds chains of nodes with one child; `tail_start` tokens that belong to no chain
    come first in the tail, to make links long.
    """

    lanes = louds_lanes
    root = np.uint64(0)

    def __init__(self, keys: Iterable[Key], tails: bool = False, tail_start: int = 0) -> None:
        distinct = set(keys)
        self.n_keys = len(distinct)
        self.vocab_size = 1 + max((token for key in distinct for token in key), default=0)
        self.n_states = len({key[:i] for key in distinct for i in range(len(key) + 1)})
        below: dict[Key, set[int]] = {}
        for key in distinct:
            for i, token in enumerate(key):
                below.setdefault(key[:i], set()).add(token)
        topology, terminal, links = [1, 0], [], []
        slots, label_high, link_high = [], [], []
        tail, ends = [0] * tail_start, [0] * tail_start
        queue: deque[tuple[Key, Key]] = deque([((), (0,))])
        while queue:
            prefix, chain = queue.popleft()
            terminal.append(prefix in distinct)
            links.append(len(chain) > 1)
            if len(chain) > 1:
                link = self._place(chain, tail, ends)
                slots.append(link & 0xFFFF)
                link_high.append(link >> 16)
            else:
                slots.append(chain[0] & 0xFFFF)
                label_high.append(chain[0] >> 16)
            for token in sorted(below.get(prefix, ())):
                topology.append(1)
                child, chain = (*prefix, token), (token,)
                while tails and child not in distinct and len(below[child]) == 1:
                    chain += tuple(below[child])
                    child += chain[-1:]
                queue.append((child, chain))
            topology.append(0)
        has_links = any(links)
        self.arrays = LoudsLanes(
            encode_bits(topology),
            encode_bits(terminal),
            _array(slots, np.uint16),
            encode_packed(label_high),
            encode_bits(links if has_links else []),
            encode_packed(link_high),
            encode_packed(tail),
            np.int64(len(tail)),
            encode_bits(ends),
            np.int64(has_links),
            np.int64(len(terminal)),
        )

    @staticmethod
    def _place(chain: Key, tail: list[int], ends: list[int]) -> int:
        """Offset of a chain in the tail, added unless it is the end of a longer one there."""
        k = len(chain)
        end_bits = [0] * (k - 1) + [1]
        for start in range(len(tail) - k + 1):
            if tuple(tail[start : start + k]) == chain and ends[start : start + k] == end_bits:
                return start
        tail.extend(chain)
        ends.extend(end_bits)
        return len(tail) - k

    def lane_arrays(self) -> LoudsLanes:
        return self.arrays

    def advance(self, state: Any, token: int) -> Any:
        first, count = louds_lanes.child_range(self.arrays, state)
        return louds_lanes.find_child(self.arrays, state, first, count, np.int64(token))

    def walk(self, prefix: Key) -> Any:
        state = self.root
        for token in prefix:
            state = self.advance(state, token)
        return state

    def is_terminal(self, state: Any) -> bool:
        return louds_lanes.is_terminal(self.arrays, state)

    def has_children(self, state: Any) -> bool:
        return louds_lanes.has_children(self.arrays, state)

    def key_ids(self, sequences: Iterable[Key]) -> list[int]:
        return [int(louds_lanes.key_number(self.arrays, self.walk(key))) for key in sequences]

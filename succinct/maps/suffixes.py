"""Tails: the parts of keys behind their last branching, as links into a trie of reversed ends.

See tails.h for how they are stored and walked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from succinct._scratch import scratch
from succinct.bits import BitVector, PackedArray
from succinct.bits.packed import words_for
from succinct.keys import KeyTable
from succinct.keys.sequences import narrowest
from succinct.keys.sorting import differs, gathered, sorted_order
from succinct.maps import layout as layouts
from succinct.maps.layout import Layout, Shape, Step
from succinct.trie import _chains, _levels
from succinct.trie._keys import Heads
from succinct.trie.ends import Ends
from succinct.trie.passes import Passes, words_of_bits

#: A link has as many bits as an integer of an index can have.
MAX_NODES = 2**32

_CHUNK = 1 << 14  # numbers at a time, a multiple of 64

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]


@dataclass
class Tails:
    """The tails of a table of keys.

    Attributes
    ----------
    heads : Heads
        The keys without their tails.
    has : uint64 words
        Which have one, a bit for each number of a head.
    links : uint32 array [tails]
        The node of each tail, less one, in the order of those numbers.
    trie : Trie
        The trie of the tails, reversed.
    low, high : int
        Range of all tokens, also those of the heads.
    """

    heads: Heads
    has: Words
    links: npt.NDArray[np.uint32]
    trie: Trie
    low: int
    high: int

    @property
    def shapes(self) -> tuple[Shape, Shape]:
        """Of the labels of the nodes and of the links, as :func:`layouts.lay_out` wants them.

        `inner_rows` of the labels is the largest number of a node that has children.
        """
        n = self.trie.n_labels
        labels = Shape(n, n, self.low, self.high - self.low, self.trie.tree_length - n)
        return labels, Shape(len(self.links), self.heads.n_keys, 0, n)


@dataclass(frozen=True)
class Trie:
    """A trie in level order, as a LOUDS.

    Attributes
    ----------
    topology : BitVector
        As in a LoudsTrie. Two bits for the super-root, and then a one for every node but the root
        behind as many zeros as the number of its parent.
    slots, high : uint16 array [nodes], PackedArray
        The labels, or their ranks; nothing for the root.
    by_rank : uint32 array or None
        The tokens of ranks.
    """

    topology: BitVector
    slots: npt.NDArray[np.uint16]
    high: PackedArray
    by_rank: npt.NDArray[np.uint32] | None

    @property
    def n_labels(self) -> int:
        return len(self.slots) - 1

    @property
    def tree_length(self) -> int:
        """Bits of the topology behind the super-root up to the last node."""
        return self.topology.select1(self.n_labels) - 1

    def labels(self) -> Iterator[npt.NDArray[np.int64]]:
        """Token of every node but the root, some at a time."""
        for start in range(1, len(self.slots), _CHUNK):
            stop = min(start + _CHUNK, len(self.slots))
            labels = self.slots[start:stop].astype(np.int64)
            if self.high.width:
                labels |= self.high[start:stop].astype(np.int64) << 16
            yield labels if self.by_rank is None else self.by_rank[labels].astype(np.int64)


def may_pay(passes: Passes, place: Layout) -> bool:
    """Whether tails may make an index smaller that is laid out like this without them.

    Judged, for a large table, by the tails that end with one of a sample of tokens: they make up
    whole branches of the trie. One pass over the last tokens, and a sort of the sample.
    """
    keys = passes.keys
    sample = passes.sample_rests()
    if sample is None:
        return True
    origin, span, factor = sample
    tokens, offsets = _chains.gather_chains(keys, origin, span, True)
    ends = Passes(KeyTable.from_flat(tokens, offsets, key_ids=False), passes.threads)
    links, nodes = factor * len(origin), factor * float(ends.prefixes[1:].sum())
    # A node takes about what an entry of the steps does. A link takes less than the number of nodes
    # needs: low numbers are frequent and have shorter codes.
    entry = sum(map(sum, place.step_bits)) / passes.entries.sum()
    folded = links * 0.8 * np.log2(nodes) + nodes * entry
    return bool(folded < factor * len(tokens) * entry)


def split(passes: Passes) -> Tails | None:
    """Cut keys behind their last branching; None if that leaves no tails.

    O(tokens) and a sort of the tails.
    """
    keys = passes.keys
    heads = Heads(keys, keys.max_length)
    n_heads, n_tails = np.zeros((2, keys.max_length + 1), np.int64)
    longest, n_tokens = _chains.count_rests(heads, n_heads, n_tails)
    if not n_tokens:
        return None
    heads.max_length = int(np.flatnonzero(n_heads)[-1])
    spans = scratch(int(n_tails.sum()), narrowest(longest))
    last = scratch(words_of_bits(len(keys.tokens)), np.uint64)
    counts = np.zeros(keys.vocab_size if keys.vocab_size <= n_tokens else 0, np.int64)
    _chains.list_rests(heads, spans, last, counts)
    # Frequent tokens come first, so that frequent tails get low numbers and short codes.
    by_rank = np.argsort(counts, kind="stable").astype(np.uint32) if len(counts) else None
    del counts
    ends = Ends(keys, BitVector.from_storage(last, len(keys.tokens)), spans, by_rank)
    del spans, last
    found = _trie(ends, longest, by_rank)
    del ends
    if found is None:
        return None
    trie, nodes = found
    has = scratch(words_of_bits(keys.n_keys), np.uint64)
    links = scratch(len(nodes), np.uint32)
    before = np.cumsum(n_heads) - n_heads, np.cumsum(n_tails) - n_tails
    _chains.by_number(heads, *before, nodes, has, links)
    return Tails(heads, has, links, trie, int(passes.low.min()), keys.vocab_size)


def _trie(
    ends: Ends, longest: int, by_rank: npt.NDArray[np.uint32] | None
) -> tuple[Trie, npt.NDArray[np.uint32]] | None:
    """The trie of reversed tails, and the node of each tail, less one; None if it has too many.

    Tails are sorted one part after another. What is kept from counting to filling is the order of
    each part, in the places of what it is replaced by.
    """
    nodes = scratch(len(ends.spans), np.uint32)
    entries, rows, n_keys, inner = np.zeros((4, longest), np.int64)
    low, high = np.zeros((2, longest), np.uint32)

    def parts(ordered: bool) -> Iterator[tuple[Numbers, npt.NDArray[np.bool_], KeyTable, int]]:
        last = np.empty(0, np.int64)  # of the part before: the first one may begin as it does
        for members in ends:
            k = len(last)
            if ordered:
                members = members[nodes[members]]
                tails = ends.rows(np.concatenate([last, members]))
            else:
                tails = ends.rows(np.concatenate([last, members]))
                order, _ = sorted_order(tails.slice(k, tails.n_rows))
                nodes[members] = order
                members = members[order]
                tails = gathered(tails, np.concatenate([np.arange(k), order + k]))
            last = members[-1:]
            distinct = differs(tails)
            if not distinct.all():
                tails = gathered(tails, np.flatnonzero(distinct))
            keys = KeyTable(tails, n_rows=tails.n_rows, source=None, keep=False)
            yield members, distinct[k:], keys, k

    for _, _, keys, start in parts(False):
        _levels.count(keys, start, keys.n_keys, entries, rows, n_keys, inner, low, high)
    n = 1 + int(entries.sum())
    if n > MAX_NODES:
        return None
    width = max(0, (ends.keys.vocab_size - 1).bit_length() - 16)
    topology = scratch(words_of_bits(2 * n + 1), np.uint64)
    terminal = scratch(words_of_bits(n), np.uint64)
    slots, label_high = scratch(n, np.uint16), scratch(words_for(n, width), np.uint64)
    topology[0] = 1  # the super-root
    # Of each length: the next node, and the next terminal node among all of them.
    next_node = np.concatenate([[1, 1], 1 + np.cumsum(entries)[:-1]])
    next_tail = np.concatenate([[0, 0], np.cumsum(n_keys)[:-1]])
    for members, distinct, keys, start in parts(True):
        _levels.fill_prefixes(
            keys, start, keys.n_keys, width, topology, terminal, slots, label_high, next_node
        )
        tails = np.empty(keys.n_keys - start, np.uint32)
        _chains.number_rows(keys.offsets[start:], next_tail, tails)
        nodes[members] = tails[np.cumsum(distinct) - 1]
    of_tail = BitVector.from_storage(terminal, n)
    for start in range(0, len(nodes), _CHUNK):
        chunk = nodes[start : start + _CHUNK]
        chunk[:] = of_tail.select1(chunk.astype(np.int64)) - 1
    shape = BitVector.from_storage(topology, 2 * n + 1)
    labels = slots, PackedArray.from_storage(label_high, n, width)
    return Trie(shape, *labels, by_rank), nodes


def choose_links(shape: Shape, links: npt.NDArray[np.integer[Any]]) -> Step:
    """The smaller of packed links and links in direct-access codes: low numbers are frequent."""
    plain = replace(shape, rows=shape.entries, code_lengths=layouts.code_lengths(links))
    steps = [layouts.choose("packed", plain), layouts.choose("dac", plain)]
    return min(steps, key=lambda step: layouts.size(step, plain))


def fault(step: Step, shape: Shape) -> str | None:
    """What is wrong with what a file says of labels or links, or None."""
    if step.kind not in (layouts.PACKED, layouts.DAC) or step.rows_kind != layouts.ONE:
        return f"unknown representation {step.kind}, {step.rows_kind}"
    if step.final_keys or step.inner_rows >= shape.entries:
        return f"numbers that are too large: {tuple(step)}"
    plain = replace(shape, rows=shape.entries)
    return layouts.fault(step, plain, last=step.inner_rows == 0)


def fill(
    tails: Tails, place: Layout, codes: npt.NDArray[np.uint32], bits: Words, values: Words
) -> None:
    """Write the tails to where `place` says, and let go of each part of them that is written.

    `codes` are the ranks of tokens by frequency, if the labels are coded.
    """
    labels, links = (dict(zip(layouts.COLUMNS, row, strict=True)) for row in place.tails.tolist())
    if links["entries"] < links["rows"]:
        _copy_bits(tails.has, 0, links["rows"], bits, links["inner_at"])
    starts = range(0, len(tails.links), _CHUNK)
    chunks = (tails.links[start : start + _CHUNK].astype(np.int64) for start in starts)
    _put_codes(links, chunks, bits, values)
    del tails.has, tails.links, chunks
    trie = tails.trie
    _copy_bits(trie.topology.words, 2, trie.tree_length, bits, labels["tree_at"])
    coded = labels["kind"] == layouts.DAC
    numbers = (
        codes[chunk].astype(np.int64) if coded else chunk - labels["low"] for chunk in trie.labels()
    )
    _put_codes(labels, numbers, bits, values)


def _put_codes(
    row: dict[str, int], codes: Iterable[npt.NDArray[np.int64]], bits: Words, values: Words
) -> None:
    """Write integers, some at a time, in one to three chunks of bits."""
    columns = ("tokens_at", "width"), ("chunk2_at", "width2"), ("chunk3_at", "width3")
    done = [0, 0, 0]
    for column in codes:
        for k, (at, name) in enumerate(columns):
            width = row[name]
            put_values(values, row[at], column & ((1 << width) - 1), width, done[k])
            first = done[k]
            done[k] += len(column)
            if k == 2 or not row[columns[k + 1][1]]:
                break
            column = column >> width
            more = column > 0
            put_bits(bits, row[f"more{k + 2}_at"] + first, more)
            column = column[more]


def _copy_bits(source: Words, first: int, length: int, words: Words, at: int) -> None:
    """Or bits from place `first` of the source on into words from place `at` on."""
    for done in range(0, length, _CHUNK):
        start, stop = first + done, first + min(done + _CHUNK, length)
        found = np.unpackbits(source.view(np.uint8)[start // 8 : -(-stop // 8)], bitorder="little")
        put_bits(words, at + done, found[start % 8 :][: stop - start])


def put_bits(words: Words, at: int, bits: npt.NDArray[np.bool_] | npt.NDArray[np.uint8]) -> None:
    """Or bits into words from place `at` on."""
    packed = np.packbits(np.concatenate([np.zeros(at % 8, np.uint8), bits]), bitorder="little")
    words.view(np.uint8)[at // 8 : at // 8 + len(packed)] |= packed


def put_values(
    words: Words, at: int, column: npt.NDArray[np.integer[Any]], width: int, first: int = 0
) -> None:
    """Write integers of `width` bits, numbers `first` and so on of those from place `at` on, which
    is a multiple of 64, into zeroed words."""
    _chains.put_packed(words[at // 64 :], width, first, column.astype(np.int64, copy=False))

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
from succinct.keys.sequences import Sequences, narrowest
from succinct.keys.sorting import differs, gathered, sorted_order
from succinct.maps import layout as layouts
from succinct.maps.layout import Layout, Shape, Step
from succinct.trie import _chains, _levels
from succinct.trie._keys import Heads
from succinct.trie.ends import Ends
from succinct.trie.passes import Passes, by_frequency, words_of_bits

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
    links : PackedArray [tails]
        The node of each tail, less one, in the order of those numbers.
    trie : Trie
        The trie of the tails, reversed.
    low, high : int
        Range of all tokens, also those of the heads.
    """

    heads: Heads
    has: Words
    links: PackedArray
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
        The labels; nothing for the root.
    """

    topology: BitVector
    slots: npt.NDArray[np.uint16]
    high: PackedArray

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
            yield labels


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
    # A node takes about what an entry of the steps does, a link what the number of nodes needs: low
    # numbers are frequent and have shorter codes, but these take flags.
    entry = sum(map(sum, place.step_bits)) / passes.entries.sum()
    folded = links * np.log2(nodes) + nodes * entry
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
    counts = scratch(keys.vocab_size if keys.vocab_size <= n_tokens else 0, np.int64)
    _chains.list_rests(heads, spans, last, counts)
    ranks = None
    if len(counts):
        # Frequent tokens come first, so that frequent tails get low numbers and short codes.
        _, ranks = by_frequency(counts)
    del counts
    ends = Ends(keys, BitVector.from_storage(last, len(keys.tokens)), spans, ranks)
    del spans, last, ranks
    found = _trie(ends, longest, n_tokens)
    del ends
    if found is None:
        return None
    trie, nodes = found
    has = scratch(words_of_bits(keys.n_keys), np.uint64)
    width = (trie.n_labels - 1).bit_length()
    links = scratch(words_for(len(nodes), width), np.uint64)
    before = np.cumsum(n_heads) - n_heads, np.cumsum(n_tails) - n_tails
    _chains.by_number(heads, *before, nodes.words, nodes.width, has, links, width)
    packed = PackedArray.from_storage(links, len(nodes), width)
    return Tails(heads, has, packed, trie, int(passes.low.min()), keys.vocab_size)


def _trie(ends: Ends, longest: int, n_tokens: int) -> tuple[Trie, PackedArray] | None:
    """The trie of reversed tails, and the node of each tail, less one; None if it has too many.

    Tails are sorted one part after another. What is kept from counting to filling is the order of
    each part, in the places of what it is replaced by.
    """
    # Neither is beyond the number of all tokens.
    link_width = (n_tokens - 1).bit_length()
    words = scratch(words_for(len(ends.spans), link_width), np.uint64)
    nodes = PackedArray.from_storage(words[:], len(ends.spans), link_width)
    entries, rows, n_keys, inner = np.zeros((4, longest), np.int64)
    low, high = np.zeros((2, longest), np.uint32)

    last = np.empty(0, np.int64)  # of the part before: the first one may begin as it does
    for members in ends:
        k = len(last)
        tails = ends.rows(np.concatenate([last, members]))
        order, _ = sorted_order(tails.slice(k, tails.n_rows))
        _chains.replace_packed(words, link_width, members, order)
        tails = gathered(tails, np.concatenate([np.arange(k), order + k]))
        keys, _ = _distinct(tails)
        _levels.count(keys, k, keys.n_keys, entries, rows, n_keys, inner, low, high)
        last = members[order[-1:]]
    n = 1 + int(entries.sum())
    if n > MAX_NODES:
        return None
    ends.order_settled()
    width = max(0, (ends.keys.vocab_size - 1).bit_length() - 16)
    topology = scratch(words_of_bits(2 * n + 1), np.uint64)
    slots, label_high = scratch(n, np.uint16), scratch(words_for(n, width), np.uint64)
    topology[0] = 1  # the super-root
    next_node = np.concatenate([[1, 1], 1 + np.cumsum(entries)[:-1]])  # of each length
    last = last[:0]
    for members in ends:
        members = members[nodes.get(members).view(np.int64)]
        keys, numbers = _distinct(ends.rows(np.concatenate([last, members])))
        found = np.empty(keys.n_keys - len(last), np.uint32)
        _levels.fill_prefixes(
            keys, len(last), keys.n_keys, width, topology, topology[:0], slots, label_high,
            next_node, found,
        )  # fmt: skip
        of_member = found[numbers[len(last) :] - len(last)] - np.uint32(1)
        _chains.replace_packed(words, link_width, members, of_member.astype(np.int64))
        last = members[-1:]
    shape = BitVector.from_storage(topology, 2 * n + 1)
    return Trie(shape, slots, PackedArray.from_storage(label_high, n, width)), nodes


def _distinct(rows: Sequences) -> tuple[KeyTable, Numbers]:
    """Sorted rows without repeats, and the number of each row among them."""
    distinct = differs(rows)
    if not distinct.all():
        rows = gathered(rows, np.flatnonzero(distinct))
    keys = KeyTable(rows, n_rows=rows.n_rows, source=None, keep=False)
    return keys, np.cumsum(distinct) - 1


def choose_links(shape: Shape, links: PackedArray | npt.NDArray[np.integer[Any]]) -> Step:
    """The smaller of packed links and links in direct-access codes: low numbers are frequent."""
    chunks = (links[start : start + _CHUNK] for start in range(0, len(links), _CHUNK))
    lengths = np.sum([layouts.code_lengths(np.asarray(chunk)) for chunk in chunks], axis=0)
    plain = replace(shape, rows=shape.entries, code_lengths=lengths)
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
    chunks = (tails.links[start : start + _CHUNK].view(np.int64) for start in starts)
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
    for start in range(0, len(column), _CHUNK):
        chunk = column[start : start + _CHUNK].astype(np.int64, copy=False)
        _chains.put_packed(words[at // 64 :], width, first + start, chunk)

"""Tails: the parts of keys behind their last branching, as links into a trie of reversed ends.

See tails.h for how they are stored and walked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from succinct.bits import BitVector, PackedArray
from succinct.bits.packed import words_for
from succinct.keys import KeyTable
from succinct.maps import layout as layouts
from succinct.maps.layout import Layout, Shape, Step
from succinct.trie import _chains
from succinct.trie.passes import Passes

#: A link has as many bits as an integer of an index can have.
MAX_NODES = 2**32

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Tails:
    """The tails of a table of keys.

    Attributes
    ----------
    heads : KeyTable
        The keys without their tails.
    has : bool array [n_keys]
        Which have one, by the number of the head.
    links : int64 array [tails]
        The node of each tail, less one, in the order of those numbers.
    labels : int64 array [nodes]
        Token of every node but the root, in level order.
    tree : uint8 array
        A one for each of them behind as many zeros as the number of its parent.
    """

    heads: KeyTable
    has: npt.NDArray[np.bool_]
    links: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    tree: npt.NDArray[np.uint8]

    low: int  # of all tokens, also those of the heads
    high: int

    @property
    def shapes(self) -> tuple[Shape, Shape]:
        """Of the labels of the nodes and of the links, as :func:`layouts.lay_out` wants them.

        `inner_rows` of the labels is the largest number of a node that has children.
        """
        n = len(self.labels)
        labels = Shape(n, n, self.low, self.high - self.low, len(self.tree) - n)
        return labels, Shape(len(self.links), len(self.has), 0, n)


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
    lengths = _chains.cut_lengths(keys)
    starts, rests = keys.offsets[:-1], np.diff(keys.offsets)
    rests -= lengths
    cut = rests > 0
    if not cut.any():
        return None
    tokens, offsets = _chains.gather_chains(keys, starts, lengths, False)
    heads = KeyTable.from_flat(tokens, offsets, key_ids=False)
    # Arrays as long as the table are let go as soon as they have served.
    del tokens, offsets
    begins = (starts + lengths)[cut]
    del starts, lengths
    ends, by_rank = _reversed(keys, begins, rests[cut].astype(np.uint32))
    del begins, rests
    nodes, labels, tree = _trie(Passes(ends, passes.threads))
    del ends
    if len(labels) > MAX_NODES:
        return None
    if by_rank is not None:
        labels = by_rank[labels]
    nodes -= 1
    has, links = cut, nodes
    if heads.numbers is not None:
        has = np.empty_like(cut)
        has[heads.numbers] = cut
        links = links[np.argsort(heads.numbers[cut])]
    low = int(keys.tokens.min())
    return Tails(heads, has, links, labels, tree, low, keys.vocab_size)


def _reversed(
    keys: KeyTable, begins: npt.NDArray[np.int64], rests: npt.NDArray[np.uint32]
) -> tuple[KeyTable, npt.NDArray[np.int64] | None]:
    """Tails backwards and, if their tokens are ranks by frequency, the tokens by rank.

    Frequent tokens come first, so that frequent tails get low numbers and short codes.
    """
    tokens, offsets = _chains.gather_chains(keys, begins, rests, True)
    if keys.vocab_size > len(tokens):
        return KeyTable.from_flat(tokens, offsets), None
    by_rank = np.argsort(-np.bincount(tokens), kind="stable")
    rank = np.empty(len(by_rank), np.uint32)
    rank[by_rank] = np.arange(len(by_rank))
    return KeyTable.from_flat(rank[tokens], offsets), by_rank


def _trie(
    ends: Passes,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """The trie of reversed tails in level order.

    Returns
    -------
    nodes : where each row of the input of the table leads
    labels, tree : as in `Tails`
    """
    n = int(ends.prefixes.sum())
    width = max(0, (ends.keys.vocab_size - 1).bit_length() - 16)
    topology = np.zeros(8 * ((2 * n + 1) // 512 + 1), np.uint64)
    terminal = np.zeros(8 * (n // 512 + 1), np.uint64)
    slots, high = np.zeros(n, np.uint16), np.zeros(words_for(n, width), np.uint64)
    ends.fill_prefixes(width, topology, terminal, slots, high)
    nodes = BitVector.from_storage(terminal, n).select1(ends.keys.key_ids)
    labels = slots.astype(np.int64)
    if width:
        labels |= PackedArray.from_storage(high, n, width)[:].astype(np.int64) << 16
    # A LOUDS without the super-root, up to the last node.
    tree = BitVector.from_storage(topology, 2 * n + 1).to_bools()[2:]
    last = int(np.flatnonzero(tree)[-1])
    return nodes, labels[1:], tree[: last + 1].view(np.uint8)


def choose_links(shape: Shape, links: npt.NDArray[np.int64]) -> Step:
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
    """Write the tails to where `place` says. `codes` are the ranks of tokens by frequency, if the
    labels are coded."""
    labels, links = (dict(zip(layouts.COLUMNS, row, strict=True)) for row in place.tails.tolist())
    put_bits(bits, labels["tree_at"], tails.tree)
    if links["entries"] < links["rows"]:
        put_bits(bits, links["inner_at"], tails.has)
    coded = labels["kind"] == layouts.DAC
    numbers = codes[tails.labels].astype(np.int64) if coded else tails.labels - labels["low"]
    for row, column in ((labels, numbers), (links, tails.links)):
        _put_codes(row, column, bits, values)


def _put_codes(
    row: dict[str, int], codes: npt.NDArray[np.int64], bits: Words, values: Words
) -> None:
    """Write integers in one to three chunks."""
    put_values(values, row["tokens_at"], codes & ((1 << row["width"]) - 1), row["width"])
    for chunk in ("2", "3"):
        width = row["width" + chunk]
        if not width:
            break
        codes = codes >> row["width" if chunk == "2" else "width2"]
        more = codes > 0
        put_bits(bits, row[f"more{chunk}_at"], more)
        codes = codes[more]
        put_values(values, row[f"chunk{chunk}_at"], codes & ((1 << width) - 1), width)


def put_bits(words: Words, at: int, bits: npt.NDArray[np.bool_] | npt.NDArray[np.uint8]) -> None:
    """Or bits into words from place `at` on."""
    packed = np.packbits(np.concatenate([np.zeros(at % 8, np.uint8), bits]), bitorder="little")
    words.view(np.uint8)[at // 8 : at // 8 + len(packed)] |= packed


def put_values(words: Words, at: int, column: npt.NDArray[np.int64], width: int) -> None:
    """Write integers of `width` bits from place `at` on, a multiple of 64."""
    packed = PackedArray(column, width).words[:-1]
    words[at // 64 : at // 64 + len(packed)] = packed

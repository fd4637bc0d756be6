"""LoudsTrie: a narrow LOUDS trie over integer tokens, with folded chains."""

from __future__ import annotations

import types
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from succinct import format
from succinct._scratch import scratch
from succinct._threads import read_threads
from succinct.bits import BitVector, PackedArray
from succinct.bits.packed import words_for
from succinct.format import Parts, StrPath
from succinct.index import Index, Numbers, load
from succinct.keys import KeyTable
from succinct.keys.sequences import Sequences, narrowest
from succinct.keys.sorting import sorted_order
from succinct.trie import _chains, lanes
from succinct.trie._louds import LoudsCore, is_tree
from succinct.trie.ends import Ends
from succinct.trie.lanes import LoudsLanes
from succinct.trie.passes import Passes, words_of_bits

Tail = bool | Literal["auto"]

MAX_NODES = 2**40 - 1
#: A longer chain is cut: the place in a chain takes the 24 bits of a state above the node.
MAX_CHAIN = 2**20


class LoudsTrie(Index):
    """A trie in level order: two bits of topology a node and its label.

    The topology is a level-order unary degree sequence (LOUDS; Jacobson,
    DOI 10.1109/SFCS.1989.63533) under rank and select. A label is split into 16 low bits and, where
    the vocabulary needs them, packed high bits (FlashTrie, arXiv:2607.10044). With `tail`, a chain
    of prefixes with a single continuation becomes one *link* node, whose tokens lie in a tail
    buffer where a chain that is the end of another shares its place (Patricia trie, Morrison,
    DOI 10.1145/321479.321481; marisa-trie).

    Build one with :meth:`build`; :meth:`save` it and :func:`succinct.load` it.

    Notes
    -----
    Space, per node: 2 bits of topology, 1 of terminal flags, 1 of link flags if there are tails,
    each with up to 8 % of directory, and 16 + w bits of label or link, w being the bits that the
    largest needs beyond 16; in memory also about half a bit of marks (select that looks at one
    word). Tokens in the tail take their packed width and one bit.
    Time: a step is one select and a binary search among the siblings, O(log n) at worst.

    Key numbers count the terminal nodes in level order. Without tails that is the order of
    :class:`succinct.KeyTable`: shorter keys first, lexicographic among keys of one length. With
    tails a key comes at the level of the node where its last chain starts;
    :meth:`from_table_ids` converts.

    Examples
    --------
    >>> from succinct import KeyTable, LoudsTrie
    >>> trie = LoudsTrie.build(KeyTable.from_sequences([(1, 2, 3), (1, 2, 4), (2,)]))
    >>> (1, 2, 3) in trie, (1, 2) in trie
    (True, False)
    >>> tokens, states = trie.children(trie.walk((1, 2)))
    >>> tokens.tolist(), trie.is_terminal(states).tolist()
    ([3, 4], [True, True])
    >>> list(trie.completions((1,)))
    [(1, 2, 3), (1, 2, 4)]
    """

    _core: LoudsCore
    lanes: ClassVar[types.ModuleType] = lanes

    @classmethod
    def build(
        cls,
        keys: KeyTable,
        tail: Tail = "auto",
        *,
        num_threads: int | None = 1,
        path: StrPath | None = None,
    ) -> Self:
        """Build a trie from a table of keys.

        Parameters
        ----------
        keys : KeyTable
            At least one key.
        tail : bool or "auto"
            Fold chains of prefixes with one continuation into a tail buffer; "auto" folds them
            if that makes this trie smaller.
        num_threads : int, optional
            Threads that share the work; None takes as many as there are processors. The trie is
            the same for any number.
        path : str or path-like, optional
            Build the trie in a file, as `save` would write it, and map that: for what does not fit
            into memory. The file appears whole or not at all; an older one is replaced. Chains
            are still folded in memory.

        Raises
        ------
        ValueError
            If there is no key or `num_threads` is below 1.
        TypeError
            If `keys` is no KeyTable.
        OSError
            If the file cannot be written.

        Notes
        -----
        Two passes over the keys, O(tokens); folding also sorts the chains.
        """
        if not isinstance(keys, KeyTable):
            raise TypeError(
                f"expected a KeyTable, got {type(keys).__name__}; make one with "
                "KeyTable.from_sequences, from_rows, from_flat, ..."
            )
        if not (tail is True or tail is False or (isinstance(tail, str) and tail == "auto")):
            raise ValueError(f"tail must be True, False or 'auto', got {tail!r}")
        if keys.n_keys == 0:
            raise ValueError("an index needs at least one key, got an empty KeyTable")
        return cls._build(Passes(keys, read_threads(num_threads)), tail, path)

    @classmethod
    def _build(cls, passes: Passes, tail: Tail, path: StrPath | None = None) -> Self:
        keys, prefixes = passes.keys, passes.prefixes
        if prefixes.sum() > MAX_NODES:
            raise ValueError(f"a trie has at most {MAX_NODES} nodes, got {prefixes.sum()}")
        chosen: _Layout | None = None
        tails: dict[str, Any] | None = None
        if tail is True or (tail == "auto" and _may_pay(passes)):
            chosen = _folded(keys, int(prefixes[1:].sum()))
            plain_bytes = _plain_nbytes(int(prefixes.sum()), keys)
            tails = {
                "alpha": chosen.alpha,
                "mean_chain": chosen.mean_chain,
                "nbytes_folded": chosen.nbytes,
                "nbytes_plain": plain_bytes,
            }
            if tail == "auto" and plain_bytes <= chosen.nbytes:
                chosen = None
        levels = prefixes, passes.low, passes.high
        if path is not None and chosen is None:
            params = _plain_params(passes)
            with format.created(
                path,
                cls.__name__,
                {**params, "tails": tails},
                cls._levels(*levels),
                _plain_sizes(passes),
            ) as arrays:
                passes.fill_prefixes(params["label_high_width"], **arrays)
        else:
            trie = cls._of(chosen or _plain(passes), *levels, tails)
            if path is None:
                return trie
            trie.save(path)
        loaded = load(path)
        assert isinstance(loaded, cls)
        return loaded

    @classmethod
    def _of(
        cls,
        layout: _Layout,
        prefixes: Numbers,
        low: npt.NDArray[np.uint32],
        high: npt.NDArray[np.uint32],
        tails: dict[str, Any] | None,
    ) -> Self:
        params = {
            "n_nodes": len(layout.terminal),
            "n_keys": layout.terminal.count(),
            "label_high_width": layout.label_high.width,
            "link_high_width": layout.link_high.width,
            "tail_length": len(layout.tail),
            "tail_width": layout.tail.width,
            "tails": tails,
        }
        core = LoudsCore(
            layout.topology,
            layout.terminal,
            layout.slots,
            layout.label_high,
            layout.link,
            layout.link_high,
            layout.tail,
            layout.tail_end,
            len(low),
        )
        return cls(core, prefixes, low, high, params)

    # ---- sizes and files --------------------------------------------------------------------

    @property
    def n_keys(self) -> int:
        """The number of keys."""
        return self._core.terminal.count()

    @property
    def has_tail(self) -> bool:
        """Whether chains are folded into a tail buffer."""
        return len(self._core.link) > 0

    def _parts(self) -> list[tuple[str, int]]:
        core = self._core
        parts = [
            ("topology", core.topology.nbytes),
            ("marks", core.marks_nbytes),
            ("terminal", core.terminal.nbytes),
            ("slots", core.slots.nbytes),
            ("label_high", core.label_high.nbytes),
        ]
        if self.has_tail:
            parts += [
                ("link", core.link.nbytes),
                ("link_high", core.link_high.nbytes),
                ("tail", core.tail.nbytes),
                ("tail_end", core.tail_end.nbytes),
            ]
        return parts

    def info(self) -> dict[str, Any]:
        """As for every index, with ``n_nodes`` and ``tails``.

        ``tails`` says whether chains are folded and, unless the trie was built with
        ``tail=False``, what was found: ``alpha``, tokens left after suffixes were shared as a share
        of those before; ``mean_chain``, tokens in a chain; ``nbytes_folded`` and
        ``nbytes_plain``, the size either way, marks aside. Folding pays about where
        alpha < 1 - 1 / mean_chain.
        """
        tails = {"folded": self.has_tail, **(self._params["tails"] or {})}
        return {**super().info(), "n_nodes": len(self._core.terminal), "tails": tails}

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        core = self._core
        arrays: dict[str, npt.NDArray[Any]] = {
            "topology": core.topology.words,
            "terminal": core.terminal.words,
            "slots": core.slots,
            "label_high": core.label_high.words,
        }
        if self.has_tail:
            arrays |= {
                "link": core.link.words,
                "link_high": core.link_high.words,
                "tail": core.tail.words,
                "tail_end": core.tail_end.words,
            }
        return arrays

    @classmethod
    def _from_parts(cls, parts: Parts) -> Self:
        def bits(name: str, length: int) -> BitVector:
            try:
                return BitVector.from_storage(parts.array(name, np.uint64), length)
            except ValueError as error:
                raise parts.error(f"array {name!r}: {error}") from None

        def packed(name: str, length: int, width: int) -> PackedArray:
            words = parts.array(name, np.uint64, words_for(length, width))
            return PackedArray.from_storage(words, length, width)

        n_nodes = parts.integer("n_nodes", 2, MAX_NODES)
        n_keys = parts.integer("n_keys", 1, n_nodes - 1)
        label_width = parts.integer("label_high_width", 0, 16)
        link_width = parts.integer("link_high_width", 0, 48)
        tail_length = parts.integer("tail_length", 0, 2**48)
        tail_width = parts.integer("tail_width", 0, 32)
        topology = bits("topology", 2 * n_nodes + 1)
        if topology.count() != n_nodes:
            raise parts.error(f"the topology has {topology.count()} nodes, expected {n_nodes}")
        if not is_tree(topology):
            raise parts.error("the topology is no tree in level order")
        terminal = bits("terminal", n_nodes)
        if terminal[0]:
            raise parts.error("the root is a key")
        if terminal.count() != n_keys:
            raise parts.error(f"{terminal.count()} nodes are keys, expected {n_keys}")
        slots = parts.array("slots", np.uint16, n_nodes)
        if tail_length:
            link = bits("link", n_nodes)
            if link[0]:
                raise parts.error("the root has a link")
            link_high = packed("link_high", link.count(), link_width)
            tail = packed("tail", tail_length, tail_width)
            tail_end = bits("tail_end", tail_length)
            if not tail_end[tail_length - 1]:
                raise parts.error("the tail does not end with the end of a chain")
        else:
            link, link_high, tail, tail_end = _no_tail()
        label_high = packed("label_high", n_nodes - link.count(), label_width)
        tails = parts.numbers("tails", ("alpha", "mean_chain", "nbytes_folded", "nbytes_plain"))
        layout = _Layout(topology, terminal, slots, label_high, link, link_high, tail, tail_end)
        levels = (
            parts.array("level_prefixes", np.int64),
            parts.array("level_low", np.uint32),
            parts.array("level_high", np.uint32),
        )
        # What is not in a tail is a node; a token has as many bits as labels or tail can hold.
        n_prefixes, largest = int(levels[0].sum()), int(levels[2].max()) - 1
        if n_prefixes < n_nodes or (n_prefixes > n_nodes and not tail_length):
            raise parts.error(f"{n_nodes} nodes cannot be {n_prefixes} prefixes")
        if largest.bit_length() > max(16 + label_width, tail_width):
            raise parts.error(f"tokens up to {largest} do not fit the widths of the labels")
        return cls._of(layout, *levels, tails)

    def lane_arrays(self) -> LoudsLanes:
        """The arrays behind the trie, for the functions of ``succinct.trie.lanes``."""
        core = self._core
        return LoudsLanes(
            topology=core.topology.lane_arrays(),
            terminal=core.terminal.lane_arrays(),
            slots=core.slots,
            label_high=core.label_high.lane_arrays(),
            link=core.link.lane_arrays(),
            link_high=core.link_high.lane_arrays(),
            tail=core.tail.lane_arrays(),
            tail_length=np.int64(len(core.tail)),
            tail_end=core.tail_end.lane_arrays(),
            has_links=np.int64(self.has_tail),
            n_nodes=np.int64(len(core.terminal)),
        )


@dataclass(frozen=True)
class _Layout:
    """The arrays of a trie, and what was learnt of its chains."""

    topology: BitVector
    terminal: BitVector
    slots: npt.NDArray[np.uint16]
    label_high: PackedArray
    link: BitVector
    link_high: PackedArray
    tail: PackedArray
    tail_end: BitVector
    alpha: float = 1.0
    mean_chain: float = 0.0

    @property
    def nbytes(self) -> int:
        parts: list[BitVector | PackedArray] = [self.topology, self.terminal, self.label_high]
        if len(self.tail):
            parts += [self.link, self.link_high, self.tail, self.tail_end]
        return int(self.slots.nbytes) + sum(part.nbytes for part in parts)


def _no_tail() -> tuple[BitVector, PackedArray, PackedArray, BitVector]:
    none = BitVector.from_indices([], 0)
    return none, PackedArray([]), PackedArray([]), none


def _zero_words(length: int) -> npt.NDArray[np.uint64]:
    return np.zeros(words_of_bits(length), np.uint64)


def _high_width(largest: int) -> int:
    """Bits that numbers up to `largest` need beyond 16."""
    return max(0, largest.bit_length() - 16)


def _plain_params(passes: Passes) -> dict[str, int]:
    """The params of a trie without tails."""
    return {
        "n_nodes": int(passes.prefixes.sum()),
        "n_keys": passes.keys.n_keys,
        "label_high_width": _high_width(passes.keys.vocab_size - 1),
        "link_high_width": 0,
        "tail_length": 0,
        "tail_width": 0,
    }


def _plain_sizes(passes: Passes) -> dict[str, tuple[npt.DTypeLike, int]]:
    """Types and lengths of its arrays."""
    params = _plain_params(passes)
    n_nodes = params["n_nodes"]
    return {
        "topology": (np.uint64, words_of_bits(2 * n_nodes + 1)),
        "terminal": (np.uint64, words_of_bits(n_nodes)),
        "slots": (np.uint16, n_nodes),
        "label_high": (np.uint64, words_for(n_nodes, params["label_high_width"])),
    }


def _plain(passes: Passes) -> _Layout:
    params = _plain_params(passes)
    n_nodes, width = params["n_nodes"], params["label_high_width"]
    arrays = {name: np.zeros(size, dtype) for name, (dtype, size) in _plain_sizes(passes).items()}
    passes.fill_prefixes(width, **arrays)
    return _Layout(
        BitVector.from_storage(arrays["topology"], 2 * n_nodes + 1),
        BitVector.from_storage(arrays["terminal"], n_nodes),
        arrays["slots"],
        PackedArray.from_storage(arrays["label_high"], n_nodes, width),
        *_no_tail(),
    )


def _plain_nbytes(n_nodes: int, keys: KeyTable) -> int:
    """Bytes of the layout without tails."""
    width = _high_width(keys.vocab_size - 1)
    return (
        BitVector.nbytes_for(2 * n_nodes + 1, n_nodes)
        + BitVector.nbytes_for(n_nodes, keys.n_keys)
        + 2 * n_nodes
        + 8 * words_for(n_nodes, width)
    )


def _may_pay(passes: Passes) -> bool:
    """Whether folding may make a trie smaller; judged, for a large table, by the ends of a sample
    of keys."""
    sample = passes.sample_rests()
    if sample is None:
        return True
    keys = passes.keys
    origin, span, factor = sample
    # The chain of a key begins with the token behind its last branching.
    chains = _chains.gather_chains(keys, origin - 1, span + np.uint32(1), True)
    rows = Sequences(*chains, 0, len(origin), keys.vocab_size - 1)
    merged = _Merged(rows.n_rows, len(rows.tokens), keys.vocab_size - 1)
    merged.add(rows, np.arange(rows.n_rows))
    n_nodes = int(passes.prefixes.sum())
    plain = _plain_nbytes(n_nodes, keys)
    saved = factor * float(span.sum()) * plain / n_nodes
    # Links are counted as labels, and no flags for them: more than these keys may be folded.
    taken = factor * merged.length * ((keys.vocab_size - 1).bit_length() + 1) / 8
    return saved > taken


class _Merged:
    """A tail that grows by chains, the last ones in their order first.

    Parameters
    ----------
    n_chains, n_tokens, largest : int
        Of all chains, before suffixes are shared.

    Attributes
    ----------
    length : int
        Tokens so far.
    links, link_width : uint64 words, int
        Where each chain begins in the tail, packed.
    """

    def __init__(self, n_chains: int, n_tokens: int, largest: int) -> None:
        self.length = 0
        self._width = largest.bit_length()
        self._words = scratch(words_for(n_tokens, self._width), np.uint64)
        self._ends = scratch(words_of_bits(n_tokens), np.uint64)
        self._behind = np.empty(0, np.uint32)
        self._link = 0
        self.link_width = max(0, n_tokens - 1).bit_length()
        self.links = scratch(words_for(n_chains, self.link_width), np.uint64)

    def add(self, chains: Sequences, numbers: Numbers) -> None:
        """Add some chains, backwards, and link them by their numbers."""
        order, _ = sorted_order(chains)
        tokens = chains.tokens.astype(np.uint32, copy=False)
        self.length, self._link = _chains.merge_suffixes(
            tokens, chains.offsets, order, self._behind, self._link, self._width, self.length,
            self._words, self._ends, numbers, self.link_width, self.links,
        )  # fmt: skip
        start, stop = chains.span(int(order[0]), int(order[0]) + 1)
        self._behind = tokens[start:stop].copy()

    def tail(self) -> tuple[PackedArray, BitVector]:
        """The tokens, and which are the last ones of chains."""
        words = self._words[: words_for(self.length, self._width)]
        ends = self._ends[: words_of_bits(self.length)]
        return (
            PackedArray.from_storage(words, self.length, self._width),
            BitVector.from_storage(ends, self.length),
        )


def _folded(keys: KeyTable, n_prefixes: int) -> _Layout:
    starts = scratch(words_of_bits(len(keys.tokens)), np.uint64)
    last = scratch(words_of_bits(len(keys.tokens)), np.uint64)
    most = min(n_prefixes, 2 * keys.n_keys + n_prefixes // MAX_CHAIN)
    spans = scratch(most, narrowest(keys.max_length))
    n_links, n_tokens, longest, largest = _chains.find_chains(keys, MAX_CHAIN, starts, spans, last)
    spans = spans[most - n_links :].astype(narrowest(longest), copy=False)
    nodes, chains = np.zeros((2, keys.max_length), np.int64)
    _chains.count_nodes(keys, starts, nodes, chains)
    n_nodes = int(nodes.sum()) + 1
    pieces = Ends(keys, BitVector.from_storage(last, len(keys.tokens)), spans)
    del spans, last
    merged = _Merged(n_links, n_tokens, largest)
    for members in reversed(pieces):
        merged.add(pieces.rows(members), members)
    del pieces

    label_width = _high_width(keys.vocab_size - 1)
    link_width = _high_width(merged.length - 1) if n_links else 0
    topology, terminal = _zero_words(2 * n_nodes + 1), _zero_words(n_nodes)
    link, slots = _zero_words(n_nodes), np.zeros(n_nodes, np.uint16)
    label_high = np.zeros(words_for(n_nodes - n_links, label_width), np.uint64)
    link_high = np.zeros(words_for(n_links, link_width), np.uint64)
    _chains.fill_chains(
        keys, starts, 1 + np.cumsum(nodes) - nodes, np.cumsum(chains) - chains, merged.links,
        merged.link_width, label_width, link_width, topology, terminal, link, slots, label_high,
        link_high,
    )  # fmt: skip
    return _Layout(
        BitVector.from_storage(topology, 2 * n_nodes + 1),
        BitVector.from_storage(terminal, n_nodes),
        slots,
        PackedArray.from_storage(label_high, n_nodes - n_links, label_width),
        BitVector.from_storage(link, n_nodes) if n_links else BitVector.from_indices([], 0),
        PackedArray.from_storage(link_high, n_links, link_width),
        *merged.tail(),
        merged.length / n_tokens if n_tokens else 1.0,
        n_tokens / n_links if n_links else 0.0,
    )

"""StepMap: a step-sliced index, each step in the representation that suits its data."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from succinct import format
from succinct._threads import read_threads
from succinct.bits import BitVector
from succinct.format import Parts, StrPath
from succinct.index import Index, Numbers, Tokens, load
from succinct.keys import KeyTable
from succinct.maps import code as codes
from succinct.maps import lanes, suffixes
from succinct.maps import layout as layouts
from succinct.maps._steps import StepsCore
from succinct.maps.lanes import StepLanes
from succinct.maps.layout import Layout, Shape, Step
from succinct.maps.plan import Plan
from succinct.trie.passes import Passes

Tail = bool | Literal["auto"]
Representation = Literal[
    "small", "fast", "bitmap", "joint", "packed", "sparse", "dac", "rice", "huffman"
]

_TAIL_FACTS = ("n_tails", "n_nodes", "nbytes_folded", "nbytes_plain")


class StepMap(Index):
    """One map per step, from a prefix and a token to the next prefix.

    Level l holds the distinct prefixes of length l + 1 in lexicographic order, so that those which
    continue one prefix lie together, tokens ascending. The place of an entry is the number of its
    prefix: the position is the successor, and nothing stores a pointer (step-sliced maps of
    ZeroGR, arXiv:2607.07723). What is left to store, tokens and where the rows begin, takes for
    each step the representation that suits it:

    - ``bitmap``: a bit for every prefix and token, under rank; for levels that are nearly full.
    - ``joint``: an Elias-Fano code of prefix * tokens + token with the prefixes aligned to whole
      buckets, tokens and boundaries in one; for wide rows.
    - ``packed``: tokens of ceil(log2(range)) bits, and the boundaries of the rows: first-sibling
      bits, an Elias-Fano code of the starts or of the other entries, or nothing where every row
      has one entry, whichever is smallest.
    - ``sparse``: plain 16- or 32-bit tokens and 32- or 64-bit offsets.
    - ``dac``: direct-access codes (Brisaboa, Ladra, Navarro, DOI 10.1016/j.ipm.2012.08.003) of
      ranks by frequency, under the boundaries of ``packed``; for skewed vocabularies.
    - ``rice``: the gaps between the tokens of each row in Golomb-Rice codes (Rice and Plaunt,
      DOI 10.1109/TCOM.1971.1090789) with a parameter that follows from the length of the row; for
      levels where some rows are nearly full and others nearly empty. Rows are read from their
      beginning, so steps take longer.
    - ``huffman``: the tokens of each row as a set in a Huffman code of the step, under the
      boundaries of ``packed``; for levels where some tokens are far more frequent than others. Rows
      are read from the last that has a sample on, so steps take longer still. Tokens must lie in a
      range of 65,536.

    With `tail`, what lies behind the last branching of a key is a link into the trie of all such
    ends, reversed: the next token is the label of a node, the next place its parent, so that ends
    share their nodes wherever their words are the same. That suits titles, whose last words are
    common while no two keys share them and the words before.

    Build one with :meth:`build`; :meth:`save` it and :func:`succinct.load` it.

    Notes
    -----
    Where keys of several lengths meet on a level, a bit an entry says whether it has
    continuations, and a bit for each that does whether it is a key as well; levels that do not
    mix store neither.
    In memory, not in files, there is a mark of 64 bits for every 160 to 320 bits that tell where
    rows begin.
    Time: a step is one rank (bitmap), one select (joint), or a select and a binary search among
    the continuations; in a tail it is one select. Key numbers are those of the
    :class:`succinct.KeyTable`; with tails a key comes at the level of the token behind its last
    branching, and :meth:`from_table_ids` converts.

    Examples
    --------
    >>> from succinct import KeyTable, StepMap
    >>> index = StepMap.build(KeyTable.from_sequences([(1, 2, 3), (1, 2, 4), (2,)]))
    >>> (1, 2, 3) in index, (1, 2) in index
    (True, False)
    >>> tokens, states = index.children(index.walk((1, 2)))
    >>> tokens.tolist(), states.tolist()
    ([3, 4], [4, 5])
    >>> index.info()["steps"][2]["layout"]
    'bitmap'
    """

    _core: StepsCore
    lanes: ClassVar[types.ModuleType] = lanes

    @classmethod
    def build(
        cls,
        keys: KeyTable,
        layout: Representation | Sequence[Representation] = "small",
        tail: Tail = "auto",
        *,
        num_threads: int | None = 1,
        path: StrPath | None = None,
    ) -> Self:
        """Build an index from a table of keys.

        Parameters
        ----------
        keys : KeyTable
            At least one key.
        layout : str or sequence of str
            "small" takes the smallest representation of every step, but "rice" and, where that is
            not enough, "huffman", which are slower than all others, only while the index is more
            than a tenth larger than the entropy of how many tokens follow each prefix, and of
            which. "fast" takes bitmaps where they are
            not much larger than plain tokens of 16 or 32 bits, and these elsewhere. The name of a
            representation takes it at every step; a sequence says it for each step.
        tail : bool or "auto"
            Store what lies behind the last branching of a key as a link into a trie of reversed
            tails; "auto" does if `layout` is "small" and that makes this index smaller.
        num_threads : int, optional
            Threads that share the work; None takes as many as there are processors. The index is
            the same for any number.
        path : str or path-like, optional
            Build the index in a file, as `save` would write it, and map that: for what does not
            fit into memory. The file appears whole or not at all; an older one is replaced.

        Raises
        ------
        ValueError
            If there is no key, a name is unknown, there are not as many names as steps, the tokens
            of a step cannot have the codes that are asked for, `num_threads` is below 1, or an
            index would be too large to be addressed.
        TypeError
            If `keys` is no KeyTable.
        OSError
            If the file cannot be written.

        Notes
        -----
        One pass over the keys to count and one to fill, O(tokens); two more where direct-access
        codes come into question, and one for each step with Golomb-Rice codes, two with a Huffman
        code. Memory is that of the index, or with `path` that of the rank and
        select directory of its bit-vectors.
        Tails are sorted in parts, which takes about five bytes for each until all are written.

        Examples
        --------
        >>> from succinct import KeyTable, StepMap
        >>> keys = KeyTable.from_rows([[0, 7], [1, 7], [1, 9]])
        >>> index = StepMap.build(keys, layout=["bitmap", "sparse"])
        >>> index.info()["steps"][1]["layout"]
        'sparse, 16-bit tokens, 32-bit offsets'
        """
        wanted = read_layout(keys, layout)
        if not (tail is True or tail is False or (isinstance(tail, str) and tail == "auto")):
            raise ValueError(f"tail must be True, False or 'auto', got {tail!r}")
        return cls._build(Passes(keys, read_threads(num_threads)), wanted, tail, path)

    @classmethod
    def _build(
        cls,
        passes: Passes,
        wanted: Sequence[str],
        tail: Tail = False,
        path: StrPath | None = None,
    ) -> Self:
        plan = Plan(passes, wanted)
        facts: dict[str, Any] | None = None
        if tail == "auto":
            small = wanted.count("small") == len(wanted)
            fold = small and suffixes.may_pay(passes, plan.place)
        else:
            fold = tail is True
        if fold:
            plain_nbytes = plan.place.nbytes
            del plan  # a few arrays as large as the vocabulary
            tails = suffixes.split(passes)
            if tails is not None:
                heads = Passes(tails.heads, passes.threads)
                plan = Plan(heads, wanted[: len(heads.low)], tails)
                numbers = len(tails.links), tails.trie.n_labels, plan.place.nbytes, plain_nbytes
                facts = dict(zip(_TAIL_FACTS, numbers, strict=True))
                del tails
            if facts is None or (tail == "auto" and plain_nbytes <= facts["nbytes_folded"]):
                plan = Plan(passes, wanted)
        place, parts = plan.place, (plan.steps, plan.tail_steps, plan.place)
        levels = passes.prefixes, passes.low, passes.high
        sizes = {"bits": 8 * (place.n_bits // 512 + 1), "values": place.n_words}
        if path is None:
            words = {name: np.zeros(size, np.uint64) for name, size in sizes.items()}
            plan.fill(**words)
            bits = BitVector.from_storage(words["bits"], place.n_bits)
            return cls._of(*parts, bits, words["values"], levels, facts)
        with format.created(
            path,
            cls.__name__,
            _params(place, facts),
            {**_small_arrays(*parts), **cls._levels(*levels)},
            {name: (np.uint64, size) for name, size in sizes.items()},
            _version(plan.steps, plan.tail_steps),
        ) as words:
            plan.fill(**words)
        index = load(path)
        assert isinstance(index, cls)
        return index

    @classmethod
    def _of(
        cls,
        steps: Sequence[Step],
        tails: Sequence[Step],
        place: Layout,
        bits: BitVector,
        values: npt.NDArray[np.uint64],
        levels: tuple[Numbers, Tokens, Tokens],
        facts: dict[str, Any] | None,
    ) -> Self:
        vocab = place.vocab_at, place.vocab_width, place.vocab_size
        core = StepsCore(bits, values, place.table, place.tails, *vocab, len(levels[1]))
        self = cls(core, *levels, _params(place, facts))
        self._steps, self._tails, self._place = tuple(steps), tuple(tails), place
        return self

    _steps: tuple[Step, ...]
    _tails: tuple[Step, ...]  # labels of the nodes and links to them, or nothing
    _place: Layout

    def lane_arrays(self) -> StepLanes:
        """The arrays behind the index, for the functions of ``succinct.maps.lanes``."""
        core = self._core
        arrays = core.bits.lane_arrays(), core.values
        return lanes_of(self._place, *arrays, self.n_states, core.shift)

    # ---- sizes and files --------------------------------------------------------------------

    @property
    def n_keys(self) -> int:
        """The number of keys."""
        return self._place.n_keys

    def _parts(self) -> list[tuple[str, int]]:
        core = self._core
        return [
            ("bits", core.bits.words.nbytes),
            ("directory", core.bits.nbytes - core.bits.words.nbytes + core.marks_nbytes),
            ("values", core.values.nbytes),
            ("table", core.table.nbytes + core.tails.nbytes),
        ]

    def info(self) -> dict[str, Any]:
        """As for every index; every step also has its ``layout`` and share of the bytes.

        The ``nbytes`` of a step are those of its bits and integers, without the rank directory.
        ``tails`` says whether there are tails and, if so, how the nodes of their trie and the links
        to them are stored, and what they take. Where both were tried it has ``n_tails``,
        ``n_nodes``, and the sizes either way, ``nbytes_folded`` and ``nbytes_plain``.
        """
        info = super().info()
        place = self._place
        total = sum(map(sum, [*place.step_bits, place.tail_bits]))

        def shares(bits: int) -> dict[str, Any]:
            return {
                "nbytes": -(-bits // 8),
                "bits_per_key": bits / self.n_keys,
                "share": bits / total if total else 0.0,
            }

        for i, step in enumerate(info["steps"]):
            # Steps behind the last branching of every key are all in tails.
            stored = i < len(self._steps)
            step["layout"] = layouts.describe(self._steps[i]) if stored else "tails"
            step |= shares(sum(place.step_bits[i]) if stored else 0)
        tails: dict[str, Any] = {"folded": self.has_tail, **(self._params["tails"] or {})}
        if self.has_tail:
            tails["nodes"], tails["links"] = map(layouts.describe_tokens, self._tails)
            tails |= shares(sum(place.tail_bits))
        return {**info, "tails": tails}

    @property
    def has_tail(self) -> bool:
        """Whether parts of keys are links into a trie of tails."""
        return len(self._tails) > 0

    @property
    def _format_version(self) -> int:
        return _version(self._steps, self._tails)

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {
            "bits": self._core.bits.words,
            "values": self._core.values,
            **_small_arrays(self._steps, self._tails, self._place),
        }

    @classmethod
    def _from_parts(cls, parts: Parts) -> Self:
        levels = (
            parts.array("level_prefixes", np.int64),
            parts.array("level_low", np.uint32),
            parts.array("level_high", np.uint32),
        )
        prefixes, low, high = levels
        folded = "tails" in parts.file.arrays
        if folded:  # the steps are those of keys without their tails
            prefixes, low, high = _cut_levels(parts, prefixes)
        numbers = parts.array("steps", np.int64, len(Step._fields) * len(low))
        steps = [Step(*row) for row in numbers.reshape(len(low), -1).tolist()]
        inner = [step.inner_rows for step in steps]
        final = [step.final_keys for step in steps]
        shapes = layouts.shapes(prefixes, low, high, inner, final)
        for i, (step, shape) in enumerate(zip(steps, shapes, strict=True)):
            wrong = layouts.fault(step, shape, last=i + 1 == len(steps))
            if wrong:
                raise parts.error(f"step {i}: {wrong}")
        n_keys = parts.integer("n_keys", 1, 2**63 - 1)
        tails = _tails_of(parts, n_keys, levels) if folded else []
        n_codes = parts.integer("n_codes", 0, 2**32)
        vocab = n_codes, _width(levels[2]) if n_codes else 0
        try:
            place = layouts.lay_out(steps, shapes, vocab, tails)
            bits = BitVector.from_storage(parts.array("bits", np.uint64), place.n_bits)
        except ValueError as error:
            raise parts.error(f"bits: {error}") from None
        for at, length, ones in place.parts:
            found = bits.rank1(at + length) - bits.rank1(at)
            if found != ones:
                raise parts.error(f"bits {at}..{at + length} have {found} ones, expected {ones}")
        if place.n_keys != n_keys:
            raise parts.error(f"the steps have {place.n_keys} keys, not as many as the file says")
        values = parts.array("values", np.uint64, place.n_words)
        for i, (step, row) in enumerate(zip(steps, place.table, strict=True)):
            if step.kind == layouts.HUFFMAN:
                columns = [layouts.COLUMN[name] for name in ("chunk3_at", "width3", "range")]
                at, width, span = row[columns].tolist()
                wrong = codes.fault(values, at, step.chunks3, width, span)
                if wrong:
                    raise parts.error(f"step {i}: {wrong}")
        facts = parts.numbers("tails", _TAIL_FACTS)
        return cls._of(steps, [step for step, _ in tails], place, bits, values, levels, facts)


def lanes_of(place: Layout, bits: Any, values: Any, n_states: int, shift: int) -> StepLanes:
    """What the functions of ``succinct.maps.lanes`` take, with arrays wherever they are."""
    return StepLanes(
        bits=bits,
        values=values,
        table=place.table,
        tails=place.tails,
        n_states=np.int64(n_states),
        shift=np.int64(shift),
        vocab_at=np.int64(place.vocab_at),
        vocab_width=np.int64(place.vocab_width),
        vocab_size=np.int64(place.vocab_size),
    )


def _params(place: Layout, facts: dict[str, Any] | None) -> dict[str, Any]:
    """The scalars of a file."""
    params: dict[str, Any] = {"n_keys": place.n_keys, "n_codes": place.vocab_size, "tails": facts}
    if len(place.tails):
        entries = place.tails[:, layouts.COLUMN["entries"]]
        params["n_nodes"], params["n_links"] = entries.tolist()
    return params


def _version(steps: Sequence[Step], tails: Sequence[Step]) -> int:
    """The oldest format version that has what is in an index."""
    if any(step.kind == layouts.HUFFMAN for step in steps):
        return 4
    if any(step.kind == layouts.RICE for step in steps):
        return 3
    return 2 if tails else 1


def _small_arrays(
    steps: Sequence[Step], tails: Sequence[Step], place: Layout
) -> dict[str, npt.NDArray[Any]]:
    """What a file says of the steps, and of the tails if there are any."""
    arrays: dict[str, npt.NDArray[Any]] = {"steps": np.array(steps, np.int64).reshape(-1)}
    if tails:
        columns = [layouts.COLUMN[name] for name in ("entries", "low", "range")]
        entries, low, span = place.table[:, columns].T
        arrays |= {
            "tails": np.array(tails, np.int64).reshape(-1),
            "step_prefixes": np.concatenate([[1], entries]),
            "step_low": low.astype(np.uint32),
            "step_high": (low + span).astype(np.uint32),
        }
    return arrays


def _cut_levels(parts: Parts, prefixes: Numbers) -> tuple[Numbers, Tokens, Tokens]:
    """Counts and ranges of the levels of the keys without their tails."""
    cut = parts.array("step_prefixes", np.int64)
    if not 2 <= len(cut) <= len(prefixes) or cut[0] != 1 or (cut[1:] < 1).any():
        raise parts.error("the counts of entries of the steps make no sense")
    if (cut > prefixes[: len(cut)]).any():
        raise parts.error("the steps have more entries than there are prefixes")
    low = parts.array("step_low", np.uint32, len(cut) - 1)
    high = parts.array("step_high", np.uint32, len(cut) - 1)
    if (low >= high).any():
        raise parts.error("the ranges of tokens of the steps make no sense")
    return cut, low, high


def _tails_of(
    parts: Parts, n_keys: int, levels: tuple[Numbers, Tokens, Tokens]
) -> list[tuple[Step, Shape]]:
    """Labels of the nodes of the tails, and links to them."""
    n_nodes = parts.integer("n_nodes", 1, suffixes.MAX_NODES)
    n_links = parts.integer("n_links", 1, n_keys)
    numbers = parts.array("tails", np.int64, 2 * len(Step._fields)).reshape(2, -1).tolist()
    labels, links = (Step(*row) for row in numbers)
    low, high = int(levels[1].min()), int(levels[2].max())
    tails = [
        (labels, Shape(n_nodes, n_nodes, low, high - low, labels.inner_rows)),
        (links, Shape(n_links, n_keys, 0, n_nodes)),
    ]
    for (step, shape), name in zip(tails, ("labels", "links"), strict=True):
        wrong = suffixes.fault(step, shape)
        if wrong:
            raise parts.error(f"the {name} of the tails: {wrong}")
    return tails


def _width(high: Tokens) -> int:
    """Bits of the largest token."""
    return (int(high.max()) - 1).bit_length()


def read_layout(keys: Any, layout: Any) -> list[str]:
    """The representation that is wanted of each step; keys and layout are checked."""
    if not isinstance(keys, KeyTable):
        raise TypeError(
            f"expected a KeyTable, got {type(keys).__name__}; make one with "
            "KeyTable.from_sequences, from_rows, from_flat, ..."
        )
    if keys.n_keys == 0:
        raise ValueError("an index needs at least one key, got an empty KeyTable")
    n_steps = keys.max_length
    names = [layout] * n_steps if isinstance(layout, str) else list(layout)
    if len(names) != n_steps:
        raise ValueError(f"layout: expected {n_steps} names, one a step, got {len(names)}")
    known = ("small", "fast", *layouts.NAMES)
    for i, name in enumerate(names):
        if name not in known:
            raise ValueError(f"layout: step {i} must be one of {', '.join(known)}, got {name!r}")
    return names

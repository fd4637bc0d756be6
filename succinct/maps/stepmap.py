"""StepMap: a step-sliced index, each step in the representation that suits its data."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from succinct import format
from succinct._threads import read_threads
from succinct.bits import BitVector, PackedArray
from succinct.format import Parts, StrPath
from succinct.index import Index, Numbers, Tokens, load
from succinct.keys import KeyTable
from succinct.maps import lanes
from succinct.maps import layout as layouts
from succinct.maps._steps import StepsCore
from succinct.maps.lanes import StepLanes
from succinct.maps.layout import Layout, Shape, Step
from succinct.trie.passes import Passes

Representation = Literal["small", "fast", "bitmap", "joint", "packed", "sparse", "dac"]

#: Larger tokens get no codes: their ranks are found in a table.
MAX_CODED = 2**26


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

    Build one with :meth:`build`; :meth:`save` it and :func:`succinct.load` it.

    Notes
    -----
    Where keys of several lengths meet on a level, a bit an entry says whether it has
    continuations, and a bit for each that does whether it is a key as well; levels that do not
    mix store neither.
    Time: a step is one rank (bitmap), one select (joint), or a select and a binary search among
    the continuations. Key numbers are those of the :class:`succinct.KeyTable`.

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
            "small" takes the smallest representation of every step, "fast" bitmaps where they are
            not much larger than plain arrays and plain arrays elsewhere. The name of a
            representation takes it at every step; a sequence says it for each step.
        num_threads : int, optional
            Threads that share the work; None takes as many as there are processors. The index is
            the same for any number.
        path : str or path-like, optional
            Build the index in a file, as `save` would write it, and map that: for what does not
            fit into memory. The file appears whole or not at all; an older one is replaced.

        Raises
        ------
        ValueError
            If there is no key, a name is unknown, there are not as many names as steps,
            `num_threads` is below 1, or an index would be too large to be addressed.
        TypeError
            If `keys` is no KeyTable.
        OSError
            If the file cannot be written.

        Notes
        -----
        One pass over the keys to count and one to fill, O(tokens); two more where direct-access
        codes come into question. Memory is that of the index, or with `path` that of the rank and
        select directory of its bit-vectors.

        Examples
        --------
        >>> from succinct import KeyTable, StepMap
        >>> keys = KeyTable.from_rows([[0, 7], [1, 7], [1, 9]])
        >>> index = StepMap.build(keys, layout=["bitmap", "sparse"])
        >>> index.info()["steps"][1]["layout"]
        'sparse, 16-bit tokens, 32-bit offsets'
        """
        if not isinstance(keys, KeyTable):
            raise TypeError(
                f"expected a KeyTable, got {type(keys).__name__}; make one with "
                "KeyTable.from_sequences, from_rows, from_flat, ..."
            )
        if keys.n_keys == 0:
            raise ValueError("an index needs at least one key, got an empty KeyTable")
        wanted = _names(layout, keys.max_length)
        return cls._build(Passes(keys, read_threads(num_threads)), wanted, path)

    @classmethod
    def _build(cls, passes: Passes, wanted: Sequence[str], path: StrPath | None = None) -> Self:
        n_keys, final = passes.n_keys, passes.inner
        prefixes, low, high = passes.prefixes, passes.low, passes.high
        shapes = layouts.shapes(prefixes, low, high, prefixes[1:] - n_keys + final, final)
        steps = [
            layouts.choose("small" if name == "dac" else name, shape)
            for name, shape in zip(wanted, shapes, strict=True)
        ]
        codes = _Codes(passes, wanted)
        if codes.improve(wanted, shapes, steps):
            place = layouts.lay_out(steps, shapes, (len(codes.tokens), codes.width))
        else:
            place = layouts.lay_out(steps, shapes)

        def fill(bits: npt.NDArray[np.uint64], values: npt.NDArray[np.uint64]) -> None:
            if place.vocab_size:
                packed = PackedArray(codes.tokens, codes.width).words
                values[: len(packed) - 1] = packed[:-1]
            passes.fill_steps(place.table, bits, values, codes.of_token, codes.chunks(steps))

        sizes = {"bits": 8 * (place.n_bits // 512 + 1), "values": place.n_words}
        if path is None:
            words = {name: np.zeros(size, np.uint64) for name, size in sizes.items()}
            fill(**words)
            bits = BitVector.from_storage(words["bits"], place.n_bits)
            return cls._of(steps, place, bits, words["values"], prefixes, low, high)
        small = {"steps": _numbers(steps), **cls._levels(prefixes, low, high)}
        open_arrays = {name: (np.uint64, size) for name, size in sizes.items()}
        params = _params(place)
        with format.created(path, cls.__name__, params, small, open_arrays) as words:
            fill(**words)
        index = load(path)
        assert isinstance(index, cls)
        return index

    @classmethod
    def _of(
        cls,
        steps: Sequence[Step],
        place: Layout,
        bits: BitVector,
        values: npt.NDArray[np.uint64],
        prefixes: Numbers,
        low: Tokens,
        high: Tokens,
    ) -> Self:
        vocab = place.vocab_at, place.vocab_width, place.vocab_size
        core = StepsCore(bits, values, place.table, *vocab)
        self = cls(core, prefixes, low, high, _params(place))
        self._steps, self._place = tuple(steps), place
        return self

    _steps: tuple[Step, ...]
    _place: Layout

    def lane_arrays(self) -> StepLanes:
        """The arrays behind the index, for the functions of ``succinct.maps.lanes``."""
        core, place = self._core, self._place
        return StepLanes(
            bits=core.bits.lane_arrays(),
            values=core.values,
            table=core.table,
            n_states=np.int64(self.n_states),
            vocab_at=np.int64(place.vocab_at),
            vocab_width=np.int64(place.vocab_width),
            vocab_size=np.int64(place.vocab_size),
        )

    # ---- sizes and files --------------------------------------------------------------------

    @property
    def n_keys(self) -> int:
        """The number of keys."""
        return self._place.n_keys

    def _parts(self) -> list[tuple[str, int]]:
        core = self._core
        return [
            ("bits", core.bits.words.nbytes),
            ("directory", core.bits.nbytes - core.bits.words.nbytes),
            ("values", core.values.nbytes),
            ("table", core.table.nbytes),
        ]

    def info(self) -> dict[str, Any]:
        """As for every index; every step also has its ``layout`` and share of the bytes.

        The ``nbytes`` of a step are those of its bits and integers, without the rank directory.
        """
        info = super().info()
        total = sum(map(sum, self._place.step_bits))
        for i, step in enumerate(info["steps"]):
            bits = sum(self._place.step_bits[i])
            step["layout"] = layouts.describe(self._steps[i])
            step["nbytes"] = -(-bits // 8)
            step["bits_per_key"] = bits / self.n_keys
            step["share"] = bits / total if total else 0.0
        return info

    def _arrays(self) -> dict[str, npt.NDArray[Any]]:
        return {
            "bits": self._core.bits.words,
            "values": self._core.values,
            "steps": _numbers(self._steps),
        }

    @classmethod
    def _from_parts(cls, parts: Parts) -> Self:
        prefixes = parts.array("level_prefixes", np.int64)
        low, high = parts.array("level_low", np.uint32), parts.array("level_high", np.uint32)
        numbers = parts.array("steps", np.int64, len(Step._fields) * len(low))
        steps = [Step(*row) for row in numbers.reshape(len(low), -1).tolist()]
        inner = [step.inner_rows for step in steps]
        final = [step.final_keys for step in steps]
        shapes = layouts.shapes(prefixes, low, high, inner, final)
        for i, (step, shape) in enumerate(zip(steps, shapes, strict=True)):
            wrong = layouts.fault(step, shape, last=i + 1 == len(steps))
            if wrong:
                raise parts.error(f"step {i}: {wrong}")
        n_codes = parts.integer("n_codes", 0, 2**32)
        try:
            place = layouts.lay_out(steps, shapes, (n_codes, _width(high) if n_codes else 0))
            bits = BitVector.from_storage(parts.array("bits", np.uint64), place.n_bits)
        except ValueError as error:
            raise parts.error(f"bits: {error}") from None
        for at, length, ones in place.parts:
            found = bits.rank1(at + length) - bits.rank1(at)
            if found != ones:
                raise parts.error(f"bits {at}..{at + length} have {found} ones, expected {ones}")
        if place.n_keys != parts.integer("n_keys", 1, 2**63 - 1):
            raise parts.error(f"the steps have {place.n_keys} keys, not as many as the file says")
        values = parts.array("values", np.uint64, place.n_words)
        return cls._of(steps, place, bits, values, prefixes, low, high)


def _params(place: Layout) -> dict[str, int]:
    return {"n_keys": place.n_keys, "n_codes": place.vocab_size}


def _numbers(steps: Sequence[Step]) -> npt.NDArray[np.int64]:
    """The steps as a file holds them."""
    return np.array(steps, np.int64).reshape(-1)


def _width(high: Tokens) -> int:
    """Bits of the largest token."""
    return (int(high.max()) - 1).bit_length()


class _Codes:
    """Ranks of tokens by frequency, for the steps that get direct-access codes.

    `tokens` are those in use, the most frequent first; `of_token` the ranks, empty if no step
    needs them; `width` the bits of the largest token.
    """

    def __init__(self, passes: Passes, wanted: Sequence[str]) -> None:
        self.passes = passes
        vocab_size = passes.keys.vocab_size
        self.width = (vocab_size - 1).bit_length()
        self.tokens: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self.of_token: npt.NDArray[np.uint32] = np.empty(0, np.uint32)
        self.forced = "dac" in wanted
        if self.forced and vocab_size > MAX_CODED:
            raise ValueError(
                f"layout: codes by frequency need tokens below {MAX_CODED}, got {vocab_size - 1}"
            )

    def improve(self, wanted: Sequence[str], shapes: Sequence[Shape], steps: list[Step]) -> bool:
        """Give codes to the steps that must have them or become smaller, if that pays for the
        list of tokens; whether one has them."""
        open_to = [i for i, name in enumerate(wanted) if name in ("small", "dac")]
        entries = sum(shapes[i].entries for i in open_to)
        # Counting must not take more memory than what is counted.
        if not self.forced and self.passes.keys.vocab_size > min(MAX_CODED, entries):
            return False
        self._rank()
        better = {}
        saved = 0.0
        for i in open_to:
            shapes[i].code_lengths = self.lengths[:, i].sum(axis=0)
            coded = layouts.choose("dac", shapes[i])
            gain = layouts.size(steps[i], shapes[i]) - layouts.size(coded, shapes[i])
            if wanted[i] == "dac" or gain > 0:
                better[i] = coded
                saved += max(gain, 0)
        if not self.forced and saved <= self.width * len(self.tokens):
            self.of_token = self.of_token[:0]
            return False
        for i, coded in better.items():
            steps[i] = coded
        return True

    def _rank(self) -> None:
        """Rank the tokens; how many entries of each step have codes of so many bits."""
        counts = self.passes.count_tokens()
        self.tokens = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        self.of_token = np.zeros(len(counts), np.uint32)
        self.of_token[self.tokens] = np.arange(len(self.tokens), dtype=np.uint32)
        self.lengths = self.passes.count_code_lengths(self.of_token)

    def chunks(self, steps: Sequence[Step]) -> npt.NDArray[np.uint64]:
        """How many codes of each part and step have a second and a third chunk."""
        chunks = np.zeros((*self.passes.entries.shape, 2), np.uint64)
        for i, step in enumerate(steps):
            if step.kind == layouts.DAC:
                for k, width in enumerate((step.width, step.width + step.width2)):
                    chunks[:, i, k] = self.lengths[:, i, width + 1 :].sum(axis=1)
        return chunks


def _names(layout: Any, n_steps: int) -> list[str]:
    names = [layout] * n_steps if isinstance(layout, str) else list(layout)
    if len(names) != n_steps:
        raise ValueError(f"layout: expected {n_steps} names, one a step, got {len(names)}")
    known = ("small", "fast", *layouts.NAMES)
    for i, name in enumerate(names):
        if name not in known:
            raise ValueError(f"layout: step {i} must be one of {', '.join(known)}, got {name!r}")
    return names

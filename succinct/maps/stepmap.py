"""StepMap: a step-sliced index, each step in the representation that suits its data."""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from succinct.bits import BitVector, PackedArray
from succinct.format import Parts
from succinct.index import Index, Numbers, Tokens
from succinct.keys import KeyTable
from succinct.maps import lanes
from succinct.maps import layout as layouts
from succinct.maps._steps import StepsCore
from succinct.maps.lanes import StepLanes
from succinct.maps.layout import Layout, Shape, Step
from succinct.trie import _levels

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
        cls, keys: KeyTable, layout: Representation | Sequence[Representation] = "small"
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

        Raises
        ------
        ValueError
            If there is no key, a name is unknown, there are not as many names as steps, or an
            index would be too large to be addressed.
        TypeError
            If `keys` is no KeyTable.

        Notes
        -----
        One pass over the keys to count and one to fill, O(tokens); memory is that of the index.

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
        prefixes, low, high = _levels.level_sizes(keys)
        n_keys, final = _levels.level_keys(keys)
        shapes = layouts.shapes(prefixes, low, high, prefixes[1:] - n_keys + final, final)
        steps = [
            layouts.choose("small" if name == "dac" else name, shape)
            for name, shape in zip(wanted, shapes, strict=True)
        ]
        codes = _Codes(keys, wanted)
        if codes.improve(wanted, shapes, steps):
            place = layouts.lay_out(steps, shapes, (len(codes.tokens), codes.width))
        else:
            place = layouts.lay_out(steps, shapes)
        words = np.zeros(8 * (place.n_bits // 512 + 1), np.uint64)
        values = np.zeros(place.n_words, np.uint64)
        if place.vocab_size:
            packed = PackedArray(codes.tokens, codes.width).words
            values[: len(packed) - 1] = packed[:-1]
        _levels.fill_steps(keys, place.table, words, values, codes.of_token)
        bits = BitVector.from_storage(words, place.n_bits)
        return cls._of(steps, place, bits, values, prefixes, low, high)

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
        params = {"n_keys": place.n_keys, "n_codes": place.vocab_size}
        self = cls(core, prefixes, low, high, params)
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
            "steps": np.array(self._steps, np.int64).reshape(-1),
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


def _width(high: Tokens) -> int:
    """Bits of the largest token."""
    return (int(high.max()) - 1).bit_length()


class _Codes:
    """Ranks of tokens by frequency, for the steps that get direct-access codes.

    `tokens` are those in use, the most frequent first; `of_token` the ranks, empty if no step
    needs them; `width` the bits of the largest token.
    """

    def __init__(self, keys: KeyTable, wanted: Sequence[str]) -> None:
        self.keys = keys
        self.width = (keys.vocab_size - 1).bit_length()
        self.tokens: npt.NDArray[np.int64] = np.empty(0, np.int64)
        self.of_token: npt.NDArray[np.uint32] = np.empty(0, np.uint32)
        self.forced = "dac" in wanted
        if self.forced and keys.vocab_size > MAX_CODED:
            raise ValueError(
                f"layout: codes by frequency need tokens below {MAX_CODED}, "
                f"got {keys.vocab_size - 1}"
            )

    def improve(self, wanted: Sequence[str], shapes: Sequence[Shape], steps: list[Step]) -> bool:
        """Give codes to the steps that must have them or become smaller, if that pays for the
        list of tokens; whether one has them."""
        open_to = [i for i, name in enumerate(wanted) if name in ("small", "dac")]
        entries = sum(shapes[i].entries for i in open_to)
        # Counting must not take more memory than what is counted.
        if not self.forced and self.keys.vocab_size > min(MAX_CODED, entries):
            return False
        lengths = self._rank(len(shapes))
        better = {}
        saved = 0.0
        for i in open_to:
            shapes[i].code_lengths = lengths[i]
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

    def _rank(self, n_steps: int) -> npt.NDArray[np.int64]:
        """Rank the tokens; how many entries of each step have codes of so many bits."""
        counts = np.zeros(self.keys.vocab_size, np.int64)
        _levels.count_tokens(self.keys, counts)
        self.tokens = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
        self.of_token = np.zeros(self.keys.vocab_size, np.uint32)
        self.of_token[self.tokens] = np.arange(len(self.tokens), dtype=np.uint32)
        lengths = np.zeros((n_steps, 33), np.int64)
        _levels.count_code_lengths(self.keys, self.of_token, lengths)
        return lengths


def _names(layout: Any, n_steps: int) -> list[str]:
    names = [layout] * n_steps if isinstance(layout, str) else list(layout)
    if len(names) != n_steps:
        raise ValueError(f"layout: expected {n_steps} names, one a step, got {len(names)}")
    known = ("small", "fast", *layouts.NAMES)
    for i, name in enumerate(names):
        if name not in known:
            raise ValueError(f"layout: step {i} must be one of {', '.join(known)}, got {name!r}")
    return names

"""Which representation each step of a :class:`succinct.StepMap` gets, and where its parts lie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from succinct.bits import BitVector
from succinct.maps import code as codes
from succinct.maps._steps import marks_nbytes

BITMAP, JOINT, PACKED, DAC, RICE, HUFFMAN = range(6)
ONE, STARTS, EXTRAS, OFFSETS = range(4)

Table = npt.NDArray[np.int64]
#: Bits in memory for a bit of a bit-vector: with its rank directory and select samples.
_WITH_DIRECTORY = 1 + 1 / 16 + 1 / 64
#: With "fast", how many bits of a bitmap may stand against one of plain tokens and boundaries.
_FAST_BITMAP = 2
#: Parameters that the codes of the lengths of rows can have, and rows that can share a sample.
RICE_PARAMETERS = 16
MAX_GROUP = 7
#: Tokens that a Huffman code can have, and so the range that they must lie in.
MAX_CODES = 2**codes.CODE_BITS
#: Samples may take this share of rows in codes; the more, the faster.
_SAMPLES_SHARE = 1 / 40
#: Lengths that a bit-vector can have; far beyond what memory holds.
MAX_BITS = 2**41 - 1


class Step(NamedTuple):
    """What a file says of one step; everything else follows from it and the counts of prefixes.

    `width` is that of the tokens (PACKED), of their low part (JOINT) or of the first of up to three
    chunks (DAC; `width2` and `width3` the others', 0 if there is none, `chunks2` and `chunks3`
    their numbers) or the parameter of the lengths of rows (RICE; `chunks2` are the bits of all
    rows, and one in 2**`rows_width` rows has a sample) or the logarithm of how many rows have a
    sample (HUFFMAN; `width2` are the low bits of samples, `chunks2` the bits of all rows, `chunks3`
    the tokens that have a code). `inner_rows` entries have continuations; `final_keys` of them are
    keys.
    """

    kind: int
    width: int
    rows_kind: int
    rows_width: int
    inner_rows: int
    final_keys: int
    width2: int = 0
    width3: int = 0
    chunks2: int = 0
    chunks3: int = 0


@dataclass
class Shape:
    """The counts that sizes follow from: one level of distinct prefixes."""

    entries: int
    rows: int  # prefixes that they continue
    low: int  # tokens lie in [low, low + range)
    range: int
    inner_rows: int = 0  # entries that have continuations
    final_keys: int = 0  # those of them that are keys
    #: How many entries have a code of 0, 1, ... bits, if direct-access codes come into question.
    code_lengths: npt.NDArray[np.int64] | None = field(default=None, repr=False)
    #: Bits of all rows in Golomb-Rice codes, and of the codes of their lengths by parameter, if
    #: these come into question.
    rice_sizes: npt.NDArray[np.int64] | None = field(default=None, repr=False)
    #: Bits of all rows in a Huffman code, and tokens that have one, if it comes into question.
    huffman_sizes: tuple[int, int] | None = field(default=None, repr=False)


# The columns of the table, in the order of step_t in steps.h.
COLUMNS = [
    "entries",
    "start",
    "rows",
    "low",
    "range",
    "kind",
    "width",
    "buckets",
    "tokens_at",
    "width2",
    "width3",
    "chunk2_at",
    "chunk3_at",
    "more2_at",
    "more2_ones",
    "more3_at",
    "more3_ones",
    "rows_kind",
    "rows_width",
    "rows_at",
    "tree_at",
    "tree_ones",
    "inner_rows",
    "inner_at",
    "inner_ones",
    "final_keys",
    "final_at",
    "final_ones",
    "first_key",
]
COLUMN = {name: i for i, name in enumerate(COLUMNS)}


def shapes(
    prefixes: Sequence[int] | Table,
    low: npt.NDArray[np.uint32],
    high: npt.NDArray[np.uint32],
    inner_rows: Sequence[int] | Table,
    final_keys: Sequence[int] | Table,
) -> list[Shape]:
    """The shapes of all steps, from counts of prefixes by length and of the rest by step."""
    found = []
    rows = 1
    for m, a, b, inner, final in zip(prefixes[1:], low, high, inner_rows, final_keys, strict=True):
        found.append(Shape(int(m), rows, int(a), int(b) - int(a), int(inner), int(final)))
        rows = int(inner)
    return found


@dataclass
class Layout:
    """Where everything lies.

    Attributes
    ----------
    table : int64 [steps, len(COLUMNS)]
    n_bits, n_words : int
        Length of the bit-vector, and words of the integers with one to spare.
    parts : list of (position, length, ones)
        The parts of the bit-vector and how many ones each has.
    step_bits : list of (int, int)
        Bits in bit-vectors and in integers of every step.
    vocab_at, vocab_size, vocab_width : int
        Place, number and width of the tokens by frequency, for direct-access codes.
    tails : int64 [2, len(COLUMNS)] or [0, len(COLUMNS)]
        Likewise for the nodes of the tails and the links to them; see tails.h.
    tail_bits : (int, int)
        Bits in bit-vectors and in integers of the tails.
    """

    table: Table
    n_bits: int
    n_words: int
    parts: list[tuple[int, int, int]]
    step_bits: list[tuple[int, int]]
    vocab_at: int
    vocab_size: int
    vocab_width: int
    n_keys: int
    tails: Table
    tail_bits: tuple[int, int]

    @property
    def nbytes(self) -> int:
        """Bytes in memory of an index laid out like this."""
        ones = sum(count for _, _, count in self.parts)
        tables = self.table.nbytes + self.tails.nbytes
        directories = BitVector.nbytes_for(self.n_bits, ones) + marks_nbytes(self.table)
        return directories + 8 * self.n_words + tables


def lay_out(
    steps: Sequence[Step],
    shapes: Sequence[Shape],
    vocab: tuple[int, int] = (0, 0),
    tails: Sequence[tuple[Step, Shape]] = (),
) -> Layout:
    """Give every part of every step its place.

    `vocab` are count and width of coded tokens; `tails` the nodes of the tails and the links to
    them, or nothing.
    """
    rows = []
    parts: list[tuple[int, int, int]] = []
    step_bits = []
    n_bits = ones = words = first_key = 0
    start = 1

    def bits(length: int, count: int) -> tuple[int, int]:
        nonlocal n_bits, ones
        at = (n_bits, ones)
        parts.append((n_bits, length, count))
        n_bits += length
        ones += count
        return at

    def values(count: int, width: int) -> int:
        nonlocal words
        at = 64 * words
        words += -(-count * width // 64)
        return at

    def row_of(step: Step, shape: Shape) -> dict[str, int]:
        row = dict.fromkeys(COLUMNS, 0)
        row |= step._asdict()
        del row["chunks2"], row["chunks3"]
        row.update(entries=shape.entries, rows=shape.rows, low=shape.low, range=shape.range)
        return row

    def tokens(row: dict[str, int], step: Step, m: int) -> None:
        if step.kind == RICE:
            row["width2"], row["width3"] = m.bit_length(), step.chunks2.bit_length()
            row["tokens_at"] = values(step.chunks2, 1)
            row["chunk3_at"] = row["tokens_at"] + step.chunks2
            row["chunk2_at"] = values(*samples(step, m, row["rows"]))
        elif step.kind == HUFFMAN:
            n_samples, high = huffman_samples(step, row["rows"])
            row["buckets"], row["width3"] = step.chunks3, (row["range"] - 1).bit_length()
            row["tokens_at"] = values(step.chunks2, 1)
            row["chunk3_at"] = values(huffman_code(step, row["range"]), 1)
            row["more2_at"], row["more2_ones"] = bits(high, n_samples)
            row["chunk2_at"] = values(n_samples, step.width2)
        elif step.kind != BITMAP:
            row["tokens_at"] = values(m, step.width)
        if step.kind == DAC and step.width2:
            row["more2_at"], row["more2_ones"] = bits(m, step.chunks2)
            row["chunk2_at"] = values(step.chunks2, step.width2)
            if step.width3:
                row["more3_at"], row["more3_ones"] = bits(step.chunks2, step.chunks3)
                row["chunk3_at"] = values(step.chunks3, step.width3)

    vocab_at = values(*vocab)
    for step, shape in zip(steps, shapes, strict=True):
        before = n_bits, words
        row = row_of(step, shape)
        m = shape.entries
        row.update(start=start, first_key=first_key)
        tree = tree_size(step, shape)
        if tree:
            row["tree_at"], row["tree_ones"] = bits(*tree)
        if step.kind == JOINT:
            row["buckets"] = _buckets(shape, step.width)
        tokens(row, step, m)
        if step.kind in (PACKED, DAC, HUFFMAN):
            row["rows_at"] = values(n_row_values(step.rows_kind, shape), step.rows_width)
        if 0 < step.inner_rows < m:
            row["inner_at"], row["inner_ones"] = bits(m, step.inner_rows)
        if 0 < step.final_keys < step.inner_rows:
            row["final_at"], row["final_ones"] = bits(step.inner_rows, step.final_keys)
        rows.append([row[name] for name in COLUMNS])
        step_bits.append((n_bits - before[0], 64 * (words - before[1])))
        start += m
        first_key += m - step.inner_rows + step.final_keys
    before = n_bits, words
    tail_rows = [row_of(step, shape) for step, shape in tails]
    if tails:
        nodes, links = tail_rows
        # A one for every node, behind as many zeros as the number of its parent.
        m = nodes["entries"]
        nodes["tree_at"], nodes["tree_ones"] = bits(m + nodes["inner_rows"], m)
        if links["entries"] < links["rows"]:
            links["inner_at"], links["inner_ones"] = bits(links["rows"], links["entries"])
        for row, (step, shape) in zip(tail_rows, tails, strict=True):
            tokens(row, step, shape.entries)
    tail_bits = n_bits - before[0], 64 * (words - before[1])
    if max(n_bits, 64 * words) > MAX_BITS:
        raise ValueError(
            f"an index has at most {MAX_BITS} bits, this one needs {n_bits} in bit-vectors and "
            f"{64 * words} in integers: {'; '.join(map(describe, steps)):.500}"
        )
    table = np.array(rows, np.int64)
    tail_table = np.array([[row[name] for name in COLUMNS] for row in tail_rows], np.int64).reshape(
        -1, len(COLUMNS)
    )
    return Layout(
        table, n_bits, words + 1, parts, step_bits, vocab_at, *vocab, first_key, tail_table,
        tail_bits,
    )  # fmt: skip


def _buckets(shape: Shape, width: int) -> int:
    return (shape.range + (1 << width) - 1) >> width


def tree_size(step: Step, shape: Shape) -> tuple[int, int] | None:
    """Length and ones of the bit-vector that holds tokens, boundaries or both."""
    m, p = shape.entries, shape.rows
    if step.kind == BITMAP:
        return p * shape.range, m
    if step.kind == JOINT:
        return m + p * _buckets(shape, step.width) + 1, m
    if step.kind == RICE:
        return None
    if step.rows_kind == STARTS:
        return p + 1 + (m - p >> step.rows_width), p + 1
    if step.rows_kind == EXTRAS:
        return m - p + (p >> step.rows_width) + 2, m - p
    return None


def samples(step: Step, entries: int, rows: int) -> tuple[int, int]:
    """Number and bits of the samples of rows in Golomb-Rice codes."""
    return (rows - 1 >> step.rows_width) + 1, entries.bit_length() + step.chunks2.bit_length()


def huffman_samples(step: Step, rows: int) -> tuple[int, int]:
    """Number of samples of rows in a Huffman code, and bits of their high parts."""
    count = (rows - 1 >> step.width) + 1
    return count, count + (step.chunks2 >> step.width2) + 1


def samples_size(step: Step, shape: Shape) -> float:
    """Bits in memory of the samples of rows in codes."""
    if step.kind == RICE:
        return math.prod(samples(step, shape.entries, shape.rows))
    count, high = huffman_samples(step, shape.rows)
    return high * _WITH_DIRECTORY + count * step.width2


def huffman_code(step: Step, span: int) -> int:
    """Bits of the code itself."""
    return 64 * codes.TABLE_WORDS + step.chunks3 * (span - 1).bit_length()


def n_row_values(rows_kind: int, shape: Shape) -> int:
    if rows_kind == ONE:
        return 0
    return shape.entries - shape.rows if rows_kind == EXTRAS else shape.rows + 1


def size(step: Step, shape: Shape) -> float:
    """Bits in memory of the tokens and boundaries of a step."""
    if step.kind == RICE:
        return step.chunks2 + samples_size(step, shape)
    tree = tree_size(step, shape)
    n_bits = tree[0] if tree else 0
    n_values: float = 0 if step.kind == BITMAP else shape.entries * step.width
    if step.kind == DAC and step.width2:
        n_bits += shape.entries + (step.chunks2 if step.width3 else 0)
        n_values += step.chunks2 * step.width2 + step.chunks3 * step.width3
    if step.kind == HUFFMAN:
        n_values = step.chunks2 + huffman_code(step, shape.range) + samples_size(step, shape)
    if step.kind in (PACKED, DAC, HUFFMAN):
        n_values += n_row_values(step.rows_kind, shape) * step.rows_width
    return n_bits * _WITH_DIRECTORY + n_values


def fault(step: Step, shape: Shape, last: bool) -> str | None:
    """What is wrong with what a file says of a step, or None."""
    m, rows = shape.entries, shape.rows
    if not rows <= m <= rows * shape.range:
        return f"{m} entries in {rows} rows of at most {shape.range}"
    if step.inner_rows > m or (step.inner_rows == 0) != last:
        return f"{step.inner_rows} of {m} entries have continuations"
    if min(step) < 0 or step.final_keys > step.inner_rows:
        return f"numbers that are too small or too large: {tuple(step)}"
    if step.kind > HUFFMAN or step.rows_kind > OFFSETS:
        return f"unknown representation {step.kind}, {step.rows_kind}"
    if step.kind == RICE:
        wrong = step.width >= RICE_PARAMETERS or step.rows_width > MAX_GROUP
        wrong = wrong or step.chunks2 > MAX_BITS or step[6:8] + step[9:] != (0, 0, 0)
        return f"rows of {step.chunks2} bits: {tuple(step)}" if wrong else None
    if step.kind == HUFFMAN:
        wrong = step.width > MAX_GROUP or step.width2 > 32 or step.width3 != 0
        wrong = wrong or step.chunks2 > MAX_BITS or step.rows_kind == OFFSETS
        wrong = wrong or not 1 <= step.chunks3 <= min(shape.range, MAX_CODES)
        wrong = wrong or m > rows * step.chunks3
        if wrong:
            return f"rows of {step.chunks2} bits and {step.chunks3} codes: {tuple(step)}"
    elif step.width + step.width2 + step.width3 > 32:
        return f"tokens of {step.width}, {step.width2}, {step.width3} bits"
    elif step.kind == PACKED and shape.range > 1 << step.width:
        return f"tokens of {step.width} bits for a range of {shape.range}"
    elif step.chunks3 > step.chunks2 or step.chunks2 > m:
        return f"{step.chunks2} and {step.chunks3} further chunks of {m}"
    if step.rows_kind == OFFSETS:
        wrong = step.rows_width not in (32, 64)
    else:
        wrong = step.rows_width > 48 or (step.rows_kind == ONE and rows != m)
    if wrong and step.kind >= PACKED:
        return f"boundaries of kind {step.rows_kind} and {step.rows_width} bits"
    return None


def code_lengths(codes: npt.NDArray[Any]) -> Table:
    """How many codes have 0, 1, ... bits."""
    counts = np.zeros(33, np.int64)
    for start in range(0, len(codes), 1 << 16):
        counts += np.bincount(np.frexp(codes[start : start + (1 << 16)])[1], minlength=33)
    return counts


# ---- the choice ----------------------------------------------------------------------------------


def choose(wanted: str, shape: Shape) -> Step:
    """The representation of a step that was asked for by name."""
    if wanted == "small":
        return min(_candidates(shape), key=lambda step: size(step, shape))
    if wanted == "fast":
        plain = _step(shape, PACKED, _plain_width(shape), _rows(shape))
        bitmap = _bitmap(shape)
        fits = size(bitmap, shape) <= _FAST_BITMAP * size(plain, shape)
        return bitmap if fits else plain
    return NAMES[wanted](shape)


def _candidates(shape: Shape) -> list[Step]:
    found = [_bitmap(shape), _joint(shape), _packed(shape)]
    if shape.code_lengths is not None:
        found.append(_dac(shape))
    return found


def _step(shape: Shape, kind: int, width: int, rows: tuple[int, int] = (ONE, 0)) -> Step:
    return Step(kind, width, *rows, shape.inner_rows, shape.final_keys)


def _bitmap(shape: Shape) -> Step:
    return _step(shape, BITMAP, 0)


def _joint(shape: Shape) -> Step:
    widths = range((shape.range - 1).bit_length() + 1)
    return min((_step(shape, JOINT, w) for w in widths), key=lambda step: size(step, shape))


def _packed(shape: Shape) -> Step:
    return _step(shape, PACKED, (shape.range - 1).bit_length(), _rows(shape))


def _sparse(shape: Shape) -> Step:
    offsets = OFFSETS, 32 if shape.entries < 2**32 else 64
    return _step(shape, PACKED, _plain_width(shape), offsets)


def _plain_width(shape: Shape) -> int:
    return 16 if shape.range <= 2**16 else 32


def _rows(shape: Shape) -> tuple[int, int]:
    """The smallest boundaries."""
    if shape.entries == shape.rows:
        return ONE, 0
    extras = shape.entries - shape.rows
    widths = {
        STARTS: range((extras // (shape.rows + 1)).bit_length() + 1),
        EXTRAS: range((shape.rows // extras).bit_length() + 1),
    }
    found = [(kind, w) for kind in widths for w in widths[kind]]
    return min(found, key=lambda rows: size(_step(shape, PACKED, 0, rows), shape))


def _dac(shape: Shape) -> Step:
    """Codes in one to three chunks of the widths that take least."""
    assert shape.code_lengths is not None
    # How many entries have a code of more bits.
    longer: list[int] = (shape.entries - np.cumsum(shape.code_lengths)).tolist()
    width = max(1, int(np.flatnonzero(shape.code_lengths)[-1]))

    def cost(first: int, second: int) -> float:
        if first == width:
            return width * shape.entries
        third = width - first - second
        flags = shape.entries + (longer[first] if third else 0)
        values = first * shape.entries + second * longer[first]
        return flags * _WITH_DIRECTORY + values + third * longer[first + second]

    splits = [
        (first, second) for first in range(1, width) for second in range(1, width - first + 1)
    ]
    first, second = min([(width, 0), *splits], key=lambda split: cost(*split))
    third = width - first - second
    return _step(shape, DAC, first, _rows(shape))._replace(
        width2=second,
        width3=third,
        chunks2=longer[first] if second else 0,
        chunks3=longer[first + second] if third else 0,
    )


def _rice(shape: Shape) -> Step:
    """Gaps in Golomb-Rice codes, as few rows to a sample as its share allows."""
    assert shape.rice_sizes is not None
    tokens, *lengths = shape.rice_sizes.tolist()
    bits = tokens + min(lengths)
    step = _step(shape, RICE, lengths.index(min(lengths)))._replace(chunks2=bits)
    return _fewest_samples([with_group(step, shape, g) for g in range(MAX_GROUP + 1)], shape)


def _huffman(shape: Shape) -> Step:
    """A Huffman code, as few rows to a sample as its share allows."""
    assert shape.huffman_sizes is not None
    bits, n_codes = shape.huffman_sizes
    step = _step(shape, HUFFMAN, 0, _rows(shape))._replace(chunks2=bits, chunks3=n_codes)
    return _fewest_samples([with_group(step, shape, g) for g in range(MAX_GROUP + 1)], shape)


def _fewest_samples(groups: Sequence[Step], shape: Shape) -> Step:
    """The first whose samples do not take more than their share, or the last."""
    small = (step for step in groups if samples_size(step, shape) <= _SAMPLES_SHARE * step.chunks2)
    return next(small, groups[-1])


def group(step: Step) -> int:
    """The logarithm of how many rows have a sample."""
    return step.width if step.kind == HUFFMAN else step.rows_width


def with_group(step: Step, shape: Shape, width: int) -> Step:
    """The step with so many rows to a sample."""
    if step.kind == RICE:
        return step._replace(rows_width=width)
    mean = step.chunks2 // ((shape.rows - 1 >> width) + 1)
    return step._replace(width=width, width2=max(0, mean.bit_length() - 1))


def least_label_bits(
    shape: Shape, lengths: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> float:
    """What a step needs if all tokens are drawn alike: token t ``counts[t]`` times.

    The entropy of the lengths and that of the tokens, less the logarithm of how many orders they
    could come in.
    """
    n = np.flatnonzero(lengths)
    count = lengths[n]
    tokens = counts[counts > 0]
    orders = np.array([math.lgamma(k + 1) for k in n.tolist()]) / math.log(2)
    entropy = float(tokens @ -np.log2(tokens / shape.entries))
    return entropy - float(count @ (orders + np.log2(count / count.sum())))


def least_bits(shape: Shape, lengths: npt.NDArray[np.int64]) -> float:
    """What a step needs if all rows of a length are alike: it has ``lengths[n]`` of n tokens.

    The entropy of the lengths, and the logarithm of how many sets of as many tokens there are.
    """
    n = np.flatnonzero(lengths)
    count = lengths[n]
    of_all, *of_k = (math.lgamma(k + 1) for k in [shape.range, *n.tolist()])
    others = [math.lgamma(shape.range - k + 1) for k in n.tolist()]
    choices = (of_all - np.array(of_k) - others) / math.log(2)
    return float(count @ (choices - np.log2(count / count.sum())))


#: Representations whose sizes take a pass over the keys.
MEASURED = "dac", "rice", "huffman"
NAMES = {
    "bitmap": _bitmap,
    "joint": _joint,
    "packed": _packed,
    "sparse": _sparse,
    "dac": _dac,
    "rice": _rice,
    "huffman": _huffman,
}


def describe(step: Step) -> str:
    """The representation in words."""
    if step.kind == BITMAP:
        return "bitmap"
    if step.kind == JOINT:
        return f"joint, {step.width} low bits"
    if step.kind == RICE:
        return f"rice, gaps of rows, {1 << step.rows_width} rows a sample"
    if step.rows_kind == OFFSETS:
        return f"sparse, {step.width}-bit tokens, {step.rows_width}-bit offsets"
    boundaries = {ONE: "one entry a row", STARTS: "Elias-Fano starts", EXTRAS: "Elias-Fano extras"}
    rows = boundaries[step.rows_kind]
    if step.rows_kind == STARTS and step.rows_width == 0:
        rows = "first-sibling bits"
    elif step.rows_kind != ONE:
        rows += f" of {step.rows_width} low bits"
    return f"{describe_tokens(step)}, {rows}"


def describe_tokens(step: Step) -> str:
    """Likewise for the tokens alone of a step that keeps them under boundaries."""
    if step.kind == HUFFMAN:
        return f"huffman, {step.chunks3} codes, {1 << step.width} rows a sample"
    if step.kind != DAC:
        return f"packed, {step.width} bits"
    chunks = [str(w) for w in (step.width, step.width2, step.width3) if w]
    return f"dac, chunks of {' + '.join(chunks)} bits"

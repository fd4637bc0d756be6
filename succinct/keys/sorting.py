"""Sorting token sequences lexicographically, a prefix before its extensions.

Tokens are packed into 64-bit words, most significant first, each plus one so that 0 stands for the
end of the sequence. Words are sorted by numpy, which uses SIMD instructions where the processor has
them. Rows whose words are equal go into another round with their next tokens, behind the number of
their group of equals, unless they are so few that they are compared at once; all other rows are
done. A round costs O(m log m) for the m rows that are still tied, and every round takes tokens that
no round before it took: keys that share long prefixes cost their length once, not once for each
pair.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import _scan
from .sequences import NO_OFFSETS, Sequences, Tokens, narrowest

# Tied rows are compared with each other where so few share a word, or are left at all: their
# remaining length then no longer counts in rounds, each of which costs some microseconds.
_FEW_OF_GROUP = 8
_FEW = 64

# More rows than these are sorted in so many parts, a power of two; the bounds of a part are taken
# from so many rows of each.
AT_ONCE = 1 << 16
N_PARTS = 64
_SAMPLES = 64

# Longer rows are not tried as one word each: hardly any would fit, and finding out takes a pass.
_MOST_COLUMNS = 128


def sort_sequences(tokens: Tokens, offsets: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Order in which sequences are lexicographically ascending.

    Parameters
    ----------
    tokens : ndarray of uint8, uint16, uint32 or uint64, shape [T], C-contiguous
        All tokens, sequence after sequence. Each is at most 2**32 - 2.
    offsets : ndarray of int64, shape [N + 1], or int
        Where each sequence starts and the last ends; or the length of every sequence. Sequences may
        be empty where offsets are given.

    Returns
    -------
    ndarray of int64, shape [N]
        Row numbers in ascending order of their sequences; equal ones in no particular order.

    Notes
    -----
    O(N log N) word comparisons and O(T) packing where sequences differ early; 24 N bytes besides
    the result.

    Examples
    --------
    >>> sort_sequences(np.array([7, 1, 1, 7], np.uint8), np.array([0, 1, 2, 4]))
    array([1, 2, 0])
    """
    largest = int(tokens.max()) if len(tokens) else 0
    if isinstance(offsets, int):
        rows = Sequences(tokens, NO_OFFSETS, offsets, len(tokens) // offsets, largest)
    else:
        rows = Sequences(tokens, offsets, 0, len(offsets) - 1, largest)
    return sorted_order(rows)[0]


def sorted_order(rows: Sequences) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """`(order, distinct)`: distinct[i] unless row order[i] equals row order[i - 1]."""
    columns = _columns(rows)
    if columns is not None and not columns.head:
        words = np.empty(rows.n_rows, np.uint64)
        _scan.pack_rows(rows.tokens, rows.length, columns.low, columns.shift, words)
        order = np.argsort(words)
        return order, _changes(words[order])
    bits = max(1, (rows.largest + 1).bit_length())
    taken = 64 // bits
    words = np.empty(rows.n_rows, np.uint64)
    _scan.pack_next(rows.tokens, rows.offsets, rows.length, NO_OFFSETS, 0, bits, taken, words)
    order = np.argsort(words)
    distinct, active = _settled(rows, taken, words, order, bits, _FEW_OF_GROUP, order)
    depth = taken
    while len(active):
        # Every group of equals takes part as a whole, so its first row has `distinct` set.
        group = np.cumsum(distinct[active], dtype=np.uint64)
        group -= np.uint64(1)
        chosen = order[active]
        # Tokens take at most 32 bits, which leaves 32 for the group: enough for 2**33 tied rows.
        taken = (64 - int(group[-1]).bit_length()) // bits
        words = np.empty(len(active), np.uint64)
        _scan.pack_next(rows.tokens, rows.offsets, rows.length, chosen, depth, bits, taken, words)
        if group[-1]:
            words |= group << np.uint64(bits * taken)
        inner = np.argsort(words)
        depth += taken
        most = _FEW if len(active) <= _FEW else _FEW_OF_GROUP
        chosen = chosen[inner]
        changed, still = _settled(rows, depth, words, inner, bits, most, chosen)
        order[active] = chosen
        distinct[active] = changed
        active = active[still]
    return order, distinct


def _settled(
    rows: Sequences,
    depth: int,
    words: NDArray[np.uint64],
    by_word: NDArray[np.int64],
    bits: int,
    most: int,
    order: NDArray[np.int64],
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Which rows, in the order of their words of tokens before `depth`, differ from the one before
    them, and the places of those that are yet to be sorted; up to `most` that share a word are."""
    distinct = np.empty(len(order), np.uint8)
    left = _scan.settle(
        rows.tokens, rows.offsets, rows.length, depth, words, by_word, (1 << bits) - 1, most, order,
        distinct,
    )  # fmt: skip
    places = np.flatnonzero(distinct > 1) if left else np.empty(0, np.int64)
    distinct &= 1
    return distinct.view(np.bool_), places


def sorted_unique(rows: Sequences) -> Sequences:
    """The distinct rows in lexicographic order, in the narrowest dtype that fits."""
    if rows.descent < 0:
        if not rows.repeats:
            return rows
        return gathered(rows, np.flatnonzero(differs(rows)), descent=-1)
    columns = _columns(rows)
    if columns is not None:
        return _sorted_words(rows, columns)
    if rows.n_rows > AT_ONCE:
        parted = _sorted_parts(rows)
        if parted is not None:
            return parted
    order, distinct = sorted_order(rows)
    return gathered(rows, order[distinct], descent=-1)


def _sorted_words(rows: Sequences, columns: _Columns) -> Sequences:
    """Packs rows into words in the memory of the result, sorts them there, and unpacks them there.

    What does not fit into a word says which bucket the rest goes to.
    """
    length, head = rows.length, columns.head
    dtype = narrowest(rows.largest)
    memory = np.empty(rows.n_rows * max(8, length * dtype.itemsize), np.uint8)
    words = memory[: 8 * rows.n_rows].view(np.uint64)
    if head:
        counts = np.zeros(1 << 16, np.int64)
        _scan.count_heads(rows.tokens, length, head, columns.low, columns.shift, counts)
        counts = counts[: int(np.flatnonzero(counts)[-1]) + 1]
        stops = np.cumsum(counts) - counts
        _scan.scatter_rows(rows.tokens, length, head, columns.low, columns.shift, stops, words)
        # Of memory views, as lists of so many numbers take some megabytes.
        for start, stop in zip((stops - counts).data, stops.data, strict=True):
            if start < stop:
                words[start:stop].sort()
    else:
        stops = np.array([rows.n_rows])
        _scan.pack_rows(rows.tokens, length, columns.low, columns.shift, words)
        words.sort()
    n_rows = _scan.drop_repeats(words, stops)
    tokens = memory[: n_rows * length * dtype.itemsize].view(dtype)
    _scan.unpack_rows(memory, length, head, columns.low, columns.shift, columns.mask, stops, tokens)
    if tokens.nbytes < memory.nbytes:
        del words, tokens  # nothing may look at memory that is let go
        memory.resize(n_rows * length * dtype.itemsize, refcheck=False)
        tokens = memory.view(dtype)
    return Sequences(tokens, NO_OFFSETS, length, n_rows, rows.largest, descent=-1)


class Splitters:
    """Bounds of parts of rows, by the first `taken` tokens of rows, from a sample of them."""

    def __init__(self, sample: Sequences, n_parts: int = N_PARTS) -> None:
        self.bits = max(1, (sample.largest + 1).bit_length())
        self.taken = 64 // self.bits
        words = np.empty(sample.n_rows, np.uint64)
        _scan.pack_next(
            sample.tokens, sample.offsets, sample.length, NO_OFFSETS, 0, self.bits, self.taken,
            words,
        )  # fmt: skip
        words.sort()
        self.words = words[np.arange(1, n_parts) * len(words) // n_parts]

    def part(
        self, rows: Sequences, parts: NDArray[np.uint8]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Writes the part of each row; returns the rows of each part, and their tokens."""
        n_rows, n_tokens = np.zeros((2, len(self.words) + 1), np.int64)
        _scan.part_rows(
            rows.tokens, rows.offsets, rows.length, self.bits, self.taken, self.words, parts,
            n_rows, n_tokens,
        )  # fmt: skip
        return n_rows, n_tokens


def samples(n: int, n_parts: int = N_PARTS) -> NDArray[np.int64]:
    """Numbers of the rows out of n that say what the parts are."""
    step = max(1, n // (_SAMPLES * n_parts))
    return np.arange(step // 2, n, step)


def _sorted_parts(rows: Sequences) -> Sequences | None:
    """Copies rows to the part of the result that their first tokens say, then sorts each part, so
    that what sorting takes beside the result is that of one part; None if most are in one."""
    splitters = Splitters(gathered(rows, samples(rows.n_rows)))
    parts = np.empty(rows.n_rows, np.uint8)
    n_rows, n_tokens = splitters.part(rows, parts)
    if n_rows.max() > rows.n_rows // 4:
        return None
    tokens = np.empty(len(rows.tokens), narrowest(rows.largest))
    offsets = NO_OFFSETS if rows.length else np.empty(rows.n_rows + 1, np.int64)
    row, place = np.cumsum(n_rows), np.cumsum(n_tokens)
    if not rows.length:
        offsets[-1] = len(tokens)
    _scan.scatter_parts(
        rows.tokens, rows.offsets, rows.length, parts, row - n_rows, place - n_tokens, tokens,
        offsets,
    )  # fmt: skip
    del parts
    whole = Sequences(tokens, offsets, rows.length, rows.n_rows, rows.largest)
    used = used_rows = 0
    for stop, count in zip(row.tolist(), n_rows.tolist(), strict=True):
        part = whole.slice(stop - count, stop)
        order, distinct = sorted_order(part)
        done = gathered(part, order[distinct])
        tokens[used : used + len(done.tokens)] = done.tokens
        if not rows.length:
            offsets[used_rows : used_rows + done.n_rows] = done.offsets[:-1] + used
        used += len(done.tokens)
        used_rows += done.n_rows
    if used_rows < rows.n_rows:
        del whole, part
        tokens.resize(used, refcheck=False)
        if not rows.length:
            offsets[used_rows] = used
            offsets.resize(used_rows + 1, refcheck=False)
    return Sequences(tokens, offsets, rows.length, used_rows, rows.largest, descent=-1)


def sorted_places(rows: Sequences) -> NDArray[np.int64]:
    """How many distinct rows are smaller than each row; part by part, unless most are in one."""
    places = np.empty(rows.n_rows, np.int64)
    if rows.n_rows > AT_ONCE:
        parts = np.empty(rows.n_rows, np.uint8)
        n_rows, _ = Splitters(gathered(rows, samples(rows.n_rows))).part(rows, parts)
        if n_rows.max() <= rows.n_rows // 4:
            done = 0
            for part in np.flatnonzero(n_rows).tolist():
                members = np.flatnonzero(parts == part)
                order, distinct = sorted_order(gathered(rows, members))
                found = np.cumsum(distinct)
                places[members[order]] = found + (done - 1)
                done += int(found[-1])
            return places
        del parts
    order, distinct = sorted_order(rows)
    places[order] = np.cumsum(distinct, dtype=np.int64) - 1
    return places


def differs(rows: Sequences) -> NDArray[np.bool_]:
    """Whether each row differs from the one before it."""
    changed = np.empty(rows.n_rows, np.uint8)
    _scan.differs(rows.tokens, rows.offsets, rows.length, changed)
    return changed.view(np.bool_)


def gathered(rows: Sequences, order: NDArray[np.int64], descent: int = 0) -> Sequences:
    """Rows order[0], order[1], ... copied one after another, in the narrowest dtype that fits."""
    offsets = NO_OFFSETS
    size = len(order) * rows.length
    if not rows.length:
        offsets = np.empty(len(order) + 1, np.int64)
        size = _scan.bounds_of(rows.offsets, order, offsets)
    tokens = np.empty(size, rows.tokens.dtype)
    _scan.gather(rows.tokens, rows.offsets, rows.length, order, tokens)
    tokens = tokens.astype(narrowest(rows.largest), copy=False)
    return Sequences(tokens, offsets, rows.length, len(order), rows.largest, descent)


class _Columns(NamedTuple):
    """How the columns of a matrix are packed; the first `head` of them go into 16 bits apart."""

    low: NDArray[np.uint64]
    shift: NDArray[np.int64]
    mask: NDArray[np.uint64]
    head: int


def _columns(rows: Sequences) -> _Columns | None:
    """How rows of fixed length are packed if they fit a word, or a word and 16 bits; else None.

    Columns are packed by their own ranges: codebooks that follow each other in one vocabulary take
    the bits of one codebook each.
    """
    if not 0 < rows.length <= _MOST_COLUMNS or not rows.n_rows:
        return None
    low, high = np.empty(rows.length, np.uint64), np.empty(rows.length, np.uint64)
    _scan.column_ranges(rows.tokens, rows.length, low, high)
    widths = np.array([int(span).bit_length() for span in high - low], np.int64)
    # Bits from each column to the end; the word takes as many of the last columns as it holds.
    behind = np.cumsum(widths[::-1])[::-1]
    head = int(np.count_nonzero(behind > 64))
    if widths[:head].sum() > 16:
        return None
    shift = behind - widths
    shift[:head] -= behind[head] if head else 0
    # A column of one value at the front would be shifted by 64, which is undefined; it is 0.
    shift = np.minimum(shift, 63)
    mask = np.array([(1 << int(width)) - 1 for width in widths], np.uint64)
    return _Columns(low, shift, mask, head)


def _changes(words: NDArray[np.uint64]) -> NDArray[np.bool_]:
    changes = np.ones(len(words), np.bool_)
    np.not_equal(words[1:], words[:-1], out=changes[1:])
    return changes

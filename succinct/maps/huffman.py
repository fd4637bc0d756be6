"""Rows in a Huffman code, read as huffman.h says; part of the lanes of a `StepMap`.

These functions are long, and called where a search takes its time anyway: they are not inlined.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from succinct.bits.lanes import (
    BitLanes,
    get_bit,
    get_bits,
    lowest_one,
    next_one,
    next_zero,
    select0,
    select1,
)
from succinct.maps.code import CODE_BITS
from succinct.maps.layout import COLUMN, EXTRAS, ONE, STARTS

#: Short ones, for which a call would take longer than what they do.
INLINED = ("huffman_bits", "huffman_count")

_NONE = np.uint64(0)
_WINDOW = np.int64(56)  # bits that are looked at together
_COUNT = np.uint64(0xFFFF)
_NO_TOKEN = np.int64(2**62)  # above all tokens

_ENTRIES = COLUMN["entries"]
_LOW = COLUMN["low"]
_WIDTH = COLUMN["width"]
_BUCKETS = COLUMN["buckets"]
_TOKENS_AT = COLUMN["tokens_at"]
_WIDTH2 = COLUMN["width2"]
_WIDTH3 = COLUMN["width3"]
_CHUNK2_AT = COLUMN["chunk2_at"]
_CHUNK3_AT = COLUMN["chunk3_at"]
_MORE2_AT = COLUMN["more2_at"]
_MORE2_ONES = COLUMN["more2_ones"]
_ROWS_KIND = COLUMN["rows_kind"]
_ROWS_WIDTH = COLUMN["rows_width"]
_ROWS_AT = COLUMN["rows_at"]
_TREE_AT = COLUMN["tree_at"]
_TREE_ONES = COLUMN["tree_ones"]

_Step = NDArray[np.int64]
_Values = NDArray[np.uint64]


class Rows(NamedTuple):
    """Rows one after another, by the boundaries under tokens."""

    p: np.int64  # the row, and its first entry
    first: np.int64
    at: np.int64  # place in the tree: of the one of p, or of its first extra entry


class Codes(NamedTuple):
    """How far a row has been read.

    Right halves wait by depth: `waiting` has bit CODE_BITS - depth for each of them, the counts are
    16 bits each; one of depth CODE_BITS has one token. Depth 0 is the whole row.
    """

    at: np.int64  # place of what comes next
    x: np.int64  # the last code, left-aligned
    rank: np.int64  # of the last token
    run: np.int64  # tokens that follow it by rank
    waiting: np.uint64
    counts0: np.uint64
    counts1: np.uint64
    counts2: np.uint64
    counts3: np.uint64


def huffman_bits(values: _Values, step: _Step, at: np.int64, width: np.int64) -> np.int64:
    """Bits of the rows of a step, of which nothing behind their end is read; the first is the
    lowest."""
    return np.int64(get_bits(values, min(at, step[_CHUNK3_AT]), width))


def huffman_first_bits(values: _Values, step: _Step, at: np.int64, width: np.int64) -> np.int64:
    """As many as a code has at most, the first the highest."""
    x = huffman_bits(values, step, at, np.int64(CODE_BITS))
    x = ((x >> 1) & 0x5555) | ((x & 0x5555) << 1)
    x = ((x >> 2) & 0x3333) | ((x & 0x3333) << 2)
    x = ((x >> 4) & 0x0F0F) | ((x & 0x0F0F) << 4)
    x = ((x >> 8) & 0x00FF) | ((x & 0x00FF) << 8)
    return np.int64(x >> (CODE_BITS - width))


def huffman_length(values: _Values, step: _Step, x: np.int64) -> np.int64:
    """Length of the code that begins with x, left-aligned; there are several codes."""
    at = step[_CHUNK3_AT]
    low = np.int64(1)
    high = np.int64(CODE_BITS)
    while low < high:
        middle = (low + high) >> 1
        if x >= np.int64(get_bits(values, at + 32 * middle, np.int64(32))):
            low = middle + 1
        else:
            high = middle
    return low


def huffman_rank(values: _Values, step: _Step, x: np.int64, length: np.int64) -> np.int64:
    """Rank of the token whose code, of so many bits, x begins with."""
    at = step[_CHUNK3_AT] + 32 * (CODE_BITS - 1 + length)
    base = np.int64(get_bits(values, at, np.int64(32)))
    return np.int64((base + (x >> (CODE_BITS - length))) & 0xFFFFFFFF)


def huffman_token_of(values: _Values, step: _Step, rank: np.int64) -> np.int64:
    """The token of a rank."""
    at = step[_CHUNK3_AT] + 2 * 32 * CODE_BITS + rank * step[_WIDTH3]
    return np.int64(get_bits(values, at, step[_WIDTH3]))


def huffman_left(
    values: _Values, step: _Step, at: np.int64, c: np.int64, left: np.int64, right: np.int64
) -> tuple[np.int64, np.int64]:
    """How many of c tokens are in the left half, which has so many, and where the code ends."""
    least = max(np.int64(0), c - right)
    most = min(c, left)
    last = most - least
    if last == 0:
        return least, at
    middle = min(max(c >> 1, least), most)
    spread = min(c, left + right - c)
    width = np.int64(0)
    while spread >= 8:
        spread >>= 2
        width += 1
    n = np.int64(0)
    limit = last >> width
    while n < limit:
        word = np.uint64(huffman_bits(values, step, at, _WINDOW))
        zeros = _WINDOW
        if word != _NONE:
            zeros = lowest_one(word)
        zeros = min(zeros, limit - n)
        n += zeros
        at += zeros
        if zeros < _WINDOW:
            if n < limit:
                at += 1
            break
    rank = min((n << width) | huffman_first_bits(values, step, at, width), last)
    at += width
    both = min(middle - least, most - middle)
    if rank > 2 * both:
        far = rank - both
        if middle - least < most - middle:
            return np.int64(middle + far), np.int64(at)
        return np.int64(middle - far), np.int64(at)
    if rank & 1:
        return np.int64(middle + ((rank + 1) >> 1)), np.int64(at)
    return np.int64(middle - (rank >> 1)), np.int64(at)


def huffman_open(step: _Step, at: np.int64, count: np.int64) -> Codes:
    """The row of `count` tokens whose code begins at `at`."""
    zero = np.int64(0)
    if count >= step[_BUCKETS]:
        return Codes(at, zero, np.int64(-1), step[_BUCKETS], _NONE, _NONE, _NONE, _NONE, _NONE)
    waiting = np.uint64(0)
    if count > 0:
        waiting = np.uint64(1 << CODE_BITS)
    return Codes(at, zero, zero, zero, waiting, np.uint64(count), _NONE, _NONE, _NONE)


def huffman_count(row: Codes, depth: np.int64) -> np.int64:
    """Tokens in the right half that waits at a depth."""
    if depth == CODE_BITS:
        return np.int64(1)
    counts = row.counts0
    if depth >= 12:
        counts = row.counts3
    elif depth >= 8:
        counts = row.counts2
    elif depth >= 4:
        counts = row.counts1
    return np.int64((counts >> np.uint64((depth & 3) << 4)) & _COUNT)


def huffman_next(values: _Values, step: _Step, row: Codes) -> Codes:
    """The row with one more token read, if there is one."""
    at, x, rank, run, waiting, counts0, counts1, counts2, counts3 = row
    if run > 0:
        return Codes(
            at, x, np.int64(rank + 1), np.int64(run - 1), waiting, counts0, counts1, counts2,
            counts3,
        )  # fmt: skip
    if waiting == _NONE:
        return row
    shift = lowest_one(waiting)
    depth = CODE_BITS - shift
    waiting = waiting & (waiting - np.uint64(1))
    c = huffman_count(row, depth)
    x = ((x >> shift) | np.int64(depth > 0)) << shift
    # Below the node are n tokens from rank `begin` on, with codes of two lengths and all between.
    last_x = x + (np.int64(1) << shift) - 1
    first = huffman_length(values, step, x)
    last = huffman_length(values, step, last_x)
    begin = huffman_rank(values, step, x, first)
    n = huffman_rank(values, step, last_x, last) + 1 - begin
    while c > 1 and c < n:
        shift -= 1
        depth += 1
        middle = x + (np.int64(1) << shift)
        left_n = n >> 1
        left_last = first
        right_first = first
        if first != last:
            right_first = huffman_length(values, step, middle)
            left_last = huffman_length(values, step, middle - 1)
            left_n = huffman_rank(values, step, middle, right_first) - begin
        left, at = huffman_left(values, step, at, c, left_n, n - left_n)
        if left == 0:
            x = middle
            begin += left_n
            n -= left_n
            first = right_first
        else:
            n = left_n
            last = left_last
            if left < c:
                waiting |= np.uint64(1) << np.uint64(shift)
                place = np.uint64((depth & 3) << 4)
                mask = ~(_COUNT << place)
                count = np.uint64(c - left) << place
                if depth < 4:
                    counts0 = (counts0 & mask) | count
                elif depth < 8:
                    counts1 = (counts1 & mask) | count
                elif depth < 12:
                    counts2 = (counts2 & mask) | count
                elif depth < CODE_BITS:
                    counts3 = (counts3 & mask) | count
                c = left
    if c > 1:
        return Codes(at, x, begin, np.int64(c - 1), waiting, counts0, counts1, counts2, counts3)
    x |= huffman_first_bits(values, step, at, np.int64(CODE_BITS)) >> depth
    if first != last:
        first = huffman_length(values, step, x)
    rank = huffman_rank(values, step, x, first)
    at += first - depth
    return Codes(at, x, rank, np.int64(0), waiting, counts0, counts1, counts2, counts3)


def huffman_first(bits: BitLanes, values: _Values, step: _Step, p: np.int64) -> Rows:
    """Begin with the boundaries of row `p`."""
    if step[_ROWS_KIND] == ONE:
        return Rows(p, p, np.int64(0))
    width = step[_ROWS_WIDTH]
    if step[_ROWS_KIND] == STARTS:
        at = select1(bits, step[_TREE_ONES] + p)
        extra = at - step[_TREE_AT] - p
        low = np.int64(get_bits(values, step[_ROWS_AT] + p * width, width))
        extra = (extra << width) | low
    else:
        bucket = p >> width
        at = select0(bits, step[_TREE_AT] - step[_TREE_ONES] + bucket) + 1
        extra = at - step[_TREE_AT] - bucket - 1
        key = p & ((np.int64(1) << width) - 1)
        while (
            get_bit(bits, at)
            and np.int64(get_bits(values, step[_ROWS_AT] + extra * width, width)) < key
        ):
            at += 1
            extra += 1
    first = min(max(p + extra, np.int64(0)), step[_ENTRIES])
    return Rows(p, np.int64(first), np.int64(at))


def huffman_after(bits: BitLanes, values: _Values, step: _Step, rows: Rows) -> Rows:
    """Go on with the next row."""
    p, first, at = rows
    end = p + 1
    width = step[_ROWS_WIDTH]
    limit = np.int64(len(bits.words)) << 6
    if step[_ROWS_KIND] == STARTS:
        at = next_one(bits, at + 1, limit)
        low = np.int64(get_bits(values, step[_ROWS_AT] + end * width, width))
        end += ((at - step[_TREE_AT] - end) << width) | low
    elif step[_ROWS_KIND] == EXTRAS:
        extra = at - step[_TREE_AT] - (p >> width) - 1
        mask = (np.int64(1) << width) - 1
        key = p & mask
        while (
            get_bit(bits, at)
            and np.int64(get_bits(values, step[_ROWS_AT] + extra * width, width)) == key
        ):
            at += 1
            extra += 1
        end += extra
        if key == mask:
            at = next_zero(bits, at, limit) + 1
    # A damaged file can hold anything here.
    end = max(min(end, step[_ENTRIES]), first)
    return Rows(np.int64(p + 1), np.int64(end), np.int64(at))


def huffman_row(
    bits: BitLanes, values: _Values, step: _Step, p: np.int64
) -> tuple[np.int64, np.int64, Codes]:
    """First entry and length of row `p`, and its tokens, from the first row of its group on."""
    group = p >> step[_WIDTH]
    width = step[_WIDTH2]
    place = (select1(bits, step[_MORE2_ONES] + group) - step[_MORE2_AT] - group) << width
    place |= np.int64(get_bits(values, step[_CHUNK2_AT] + group * width, width))
    at = step[_TOKENS_AT] + place
    rows = huffman_first(bits, values, step, group << step[_WIDTH])
    while True:
        after = huffman_after(bits, values, step, rows)
        count = after.first - rows.first
        row = huffman_open(step, at, count)
        if rows.p >= p:
            return rows.first, np.int64(count), row
        for _ in range(min(count, step[_BUCKETS])):
            row = huffman_next(values, step, row)
        at = row.at
        rows = after


def huffman_search(
    values: _Values, step: _Step, row: Codes, count: np.int64, token: np.int64
) -> tuple[np.int64, bool]:
    """How many of the tokens of a row are below one, and whether this is there."""
    below = np.int64(0)
    found = False
    for _ in range(min(count, step[_BUCKETS])):
        row = huffman_next(values, step, row)
        here = huffman_token_of(values, step, row.rank)
        below += here < token
        found |= here == token
    return below, found


def huffman_token(
    bits: BitLanes, values: _Values, step: _Step, p: np.int64, k: np.int64
) -> np.int64:
    """Token `k` of row `p`, by quickselect without a place to keep tokens."""
    _, count, start = huffman_row(bits, values, step, p)
    low = np.int64(-1)
    high = _NO_TOKEN
    pivot = np.int64(-1)
    while True:
        row = start
        below = np.int64(0)
        lower = np.int64(-1)
        higher = np.int64(-1)
        for _ in range(min(count, step[_BUCKETS])):
            row = huffman_next(values, step, row)
            token = huffman_token_of(values, step, row.rank)
            if pivot < 0:
                pivot = token
            if token < pivot:
                below += 1
                if token > low:
                    lower = token
            elif pivot < token < high:
                higher = token
        if below == k:
            return max(pivot, np.int64(0))
        if below > k:
            high = pivot
            pivot = lower
        else:
            low = pivot
            pivot = higher
        if pivot < 0:  # only in a damaged file
            return np.int64(0)


def huffman_find(
    bits: BitLanes, values: _Values, step: _Step, p: np.int64, token: np.int64
) -> np.int64:
    """Entry of a token of row `p`, or -1."""
    first, count, row = huffman_row(bits, values, step, p)
    below, found = huffman_search(values, step, row, count, token)
    if not found or below >= count:
        return np.int64(-1)
    return np.int64(first + below)


def huffman_list(
    bits: BitLanes,
    values: _Values,
    step: _Step,
    p: np.int64,
    count: np.int64,
    tokens: NDArray[np.uint32],
    at: np.int64,
) -> None:
    """Write all tokens of row `p`, which has `count`, from place `at` on."""
    _, _, row = huffman_row(bits, values, step, p)
    for k in range(count):
        row = huffman_next(values, step, row)
        token = step[_LOW] + huffman_token_of(values, step, max(row.rank, np.int64(0)))
        tokens[at + k] = token & 0xFFFFFFFF
    gap = np.int64(1)
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            held = tokens[at + i]
            j = np.int64(i)
            while j >= gap and tokens[at + j - gap] > held:
                tokens[at + j] = tokens[at + j - gap]
                j -= gap
            tokens[at + j] = held
        gap //= 3

"""Rows in Golomb-Rice codes, read as rice.h says; part of the lanes of a `StepMap`.

These functions are long, and called where a search takes its time anyway: they are not inlined.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from succinct.bits.lanes import get_bits, lowest_one, popcount, select_in_word
from succinct.maps.layout import COLUMN

#: Short ones, for which a call would take longer than what they do.
INLINED = ("rice_bits", "rice_next")

_NONE = np.uint64(0)
_WINDOW = np.int64(56)  # bits that are looked at together
_NO_TOKEN = np.int64(2**62)  # above all tokens

_ENTRIES = COLUMN["entries"]
_LOW = COLUMN["low"]
_RANGE = COLUMN["range"]
_WIDTH = COLUMN["width"]
_TOKENS_AT = COLUMN["tokens_at"]
_WIDTH2 = COLUMN["width2"]
_WIDTH3 = COLUMN["width3"]
_CHUNK2_AT = COLUMN["chunk2_at"]
_CHUNK3_AT = COLUMN["chunk3_at"]
_ROWS_WIDTH = COLUMN["rows_width"]

_Step = NDArray[np.int64]
_Values = NDArray[np.uint64]


class Gaps(NamedTuple):
    """How far the coded tokens of a row in Golomb-Rice codes have been read; see rice.h."""

    low: np.int64  # place and width of the next low part
    width: np.int64
    high: np.int64  # place of the next part in unary, or -1: there is none
    left: np.int64  # coded tokens to come
    token: np.int64  # the last one, at first -1


def rice_bits(values: _Values, step: _Step, at: np.int64, width: np.int64) -> np.int64:
    """Bits of the rows of a step, of which nothing behind their end is read."""
    return np.int64(get_bits(values, min(at, step[_CHUNK3_AT]), width))


def rice_open(step: _Step, at: np.int64, length: np.int64) -> Gaps:
    """The row of `length` whose code begins at `at`; tokens that it lacks are coded if it has more
    than half of all."""
    span = step[_RANGE]
    left = min(length, span - length)
    width = np.int64(0)
    high = np.int64(-1)
    if left == 1:
        while span - 1 >> width != 0:
            width += 1
    elif left > 1:
        rest = ((2 * span - left) * 123 - 1) // (512 * left)
        while rest >> width != 0:
            width += 1
        high = at + left * width
    return Gaps(at, width, high, left, np.int64(-1))


def rice_end(values: _Values, step: _Step, row: Gaps) -> np.int64:
    """Where a row ends of which nothing has been read."""
    if row.high < 0:
        return np.int64(row.low + row.left * row.width)
    k = row.left
    at = row.high
    while at < step[_CHUNK3_AT]:
        word = np.uint64(rice_bits(values, step, at, _WINDOW))
        ones = popcount(word)
        if k <= ones:
            return np.int64(at + select_in_word(word, k - 1) + 1)
        k -= ones
        at += _WINDOW
    return np.int64(step[_CHUNK3_AT])


def rice_row(values: _Values, step: _Step, p: np.int64) -> tuple[np.int64, np.int64, Gaps]:
    """First entry, length and coded tokens of row `p`."""
    group = p >> step[_ROWS_WIDTH]
    sample = step[_CHUNK2_AT] + group * (step[_WIDTH2] + step[_WIDTH3])
    first = min(np.int64(get_bits(values, sample, step[_WIDTH2])), step[_ENTRIES])
    at = step[_TOKENS_AT] + np.int64(get_bits(values, sample + step[_WIDTH2], step[_WIDTH3]))
    parameter = step[_WIDTH]
    q = group << step[_ROWS_WIDTH]
    while True:
        word = np.uint64(rice_bits(values, step, at, _WINDOW))
        more = np.int64(0)
        if word != _NONE:
            more = lowest_one(word)
        if more > 32:
            more = np.int64(0)
        at += more + 1
        length = (np.int64(1) << more) + rice_bits(values, step, at, more) - 1
        at += more
        length = (length << parameter) + rice_bits(values, step, at, parameter) + 1
        at += parameter
        length = min(length, step[_RANGE])
        row = rice_open(step, at, length)
        if q >= p:
            return first, np.int64(min(length, step[_ENTRIES] - first)), row
        first = min(first + length, step[_ENTRIES])
        at = rice_end(values, step, row)
        q += 1


def rice_next(values: _Values, step: _Step, row: Gaps) -> Gaps:
    """The row with one more coded token read; that behind the last is above all others."""
    if row.left == 0:
        return Gaps(row.low, row.width, row.high, row.left, _NO_TOKEN)
    high = row.high
    gap = np.int64(0)
    if high >= 0:
        word = np.uint64(rice_bits(values, step, high, _WINDOW))
        while word == _NONE and high < step[_CHUNK3_AT]:
            high += _WINDOW
            word = np.uint64(rice_bits(values, step, high, _WINDOW))
        if word != _NONE:
            high += lowest_one(word)
        gap = (high - row.high) << row.width
        high += 1
    token = row.token + 1 + gap + rice_bits(values, step, row.low, row.width)
    return Gaps(row.low + row.width, row.width, high, row.left - 1, token)


def rice_token(values: _Values, step: _Step, p: np.int64, k: np.int64) -> np.int64:
    """Token `k` of row `p`."""
    _, length, row = rice_row(values, step, p)
    inverted = 2 * length > step[_RANGE]
    row = rice_next(values, step, row)
    lacking = np.int64(0)
    if inverted:
        while row.token - lacking <= k:
            lacking += 1
            row = rice_next(values, step, row)
        return np.int64(k + lacking)
    for _ in range(k):
        row = rice_next(values, step, row)
    return row.token


def rice_find(values: _Values, step: _Step, p: np.int64, token: np.int64) -> np.int64:
    """Entry of a token of row `p`, or -1."""
    first, length, row = rice_row(values, step, p)
    inverted = 2 * length > step[_RANGE]
    below = np.int64(0)
    row = rice_next(values, step, row)
    while row.token < token:
        below += 1
        row = rice_next(values, step, row)
    if inverted == (row.token == token):
        return np.int64(-1)
    if inverted:
        below = token - below
    if below >= length:
        return np.int64(-1)
    return np.int64(first + below)


def rice_list(
    values: _Values,
    step: _Step,
    p: np.int64,
    count: np.int64,
    tokens: NDArray[np.uint32],
    at: np.int64,
) -> None:
    """Write all tokens of row `p`, which has `count`, from place `at` on."""
    _, length, row = rice_row(values, step, p)
    inverted = 2 * length > step[_RANGE]
    low = step[_LOW]
    token = np.int64(0)
    row = rice_next(values, step, row)
    for k in range(count):
        if inverted:
            while row.token == token:
                token += 1
                row = rice_next(values, step, row)
            tokens[at + k] = (low + token) & 0xFFFFFFFF
            token += 1
        else:
            tokens[at + k] = (low + row.token) & 0xFFFFFFFF
            row = rice_next(values, step, row)

"""Filtering first: the parts that run compiled.

Scores lie in one flat array of slots, a slot for each pair of a beam and a token that continues
it. Projection fills the slots of a row, one after another; normalisation and selection read them
where they are, and a slot's place says which beam and which token it is.

This module imports numba; `filtering` imports it at the first use.
"""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from succinct.bits import lanes as bit_lanes
from succinct.decode._compile import compile_function
from succinct.decode._select import Scratch, keep_best, order32, sort_descending, unorder32

# Floats that one vector instruction multiplies; processors with shorter vectors take several.
_VECTOR = 16
# Called for every slot, or every few.
INLINED = ("_least_logit", "_four")

_NEGATIVE_INFINITY = np.float32(-np.inf)
_INFINITY = np.float32(np.inf)
_LOG2_E = np.float32(1.4426950408889634)
# The logarithm of 2 in two parts, the first of few bits, so that multiples of it are exact.
_LN2_HIGH = np.float32(0.693359375)
_LN2_LOW = np.float32(-2.12194440e-4)
_SMALLEST_EXPONENT = np.float32(-87.0)
_RANK_MASK = np.uint64(0xFFFFFFFF)


@intrinsic  # type: ignore[untyped-decorator]
def _dots(
    typing_context: Any,
    hidden: Any,
    rows: Any,
    weight: Any,
    tokens: Any,
    values: Any,
    places: Any,
) -> Any:
    """``values[places[i] + j] = hidden[rows[i]] @ weight[tokens[j]]`` for all i and j.

    `rows`, `tokens` and `places` are tuples; both matrices are float32 and C-contiguous, or the
    weights are float16 seen as uint16. Every product is summed in the same order, whatever the
    number of rows and tokens, so that it does not depend on how the work is cut into blocks.
    """
    signature = types.void(hidden, rows, weight, tokens, values, places)
    n_rows, n_tokens = len(rows), len(tokens)
    is_half = weight.dtype == types.uint16

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        single, word = ir.FloatType(), ir.IntType(64)
        vector = ir.VectorType(single, _VECTOR)
        element = ir.HalfType() if is_half else single
        loaded = ir.VectorType(element, _VECTOR)
        multiply_add = cgutils.get_or_insert_function(
            builder.module, ir.FunctionType(vector, [vector] * 3), f"llvm.fmuladd.v{_VECTOR}f32"
        )

        def array(number: int) -> Any:
            make = context.make_array(signature.args[number])
            return make(context, builder, arguments[number])

        def places_in(number: int, position: int, stride: Any, kind: Any) -> list[Any]:
            base = builder.bitcast(array(number).data, kind.as_pointer())
            count = len(signature.args[position])
            chosen = (builder.extract_value(arguments[position], i) for i in range(count))
            return [builder.gep(base, [builder.mul(i, stride)]) for i in chosen]

        def vector_at(base: Any, at: Any, kind: Any) -> Any:
            place = builder.bitcast(builder.gep(base, [at]), kind.as_pointer())
            return builder.load(place, align=2 if kind is not vector else 4)

        length = builder.extract_value(array(0).shape, 1)
        rows_at = places_in(0, 1, length, single)
        tokens_at = places_in(2, 3, length, element)
        results_at = places_in(4, 5, word(1), single)
        pairs = [(i, j) for j in range(n_tokens) for i in range(n_rows)]
        zeros = ir.Constant(vector, [0.0] * _VECTOR)
        sums = {pair: cgutils.alloca_once_value(builder, zeros) for pair in pairs}
        whole = builder.sdiv(length, word(_VECTOR))
        with cgutils.for_range(builder, whole) as loop:
            at = builder.mul(loop.index, word(_VECTOR))
            left = [vector_at(row, at, vector) for row in rows_at]
            for j, base in enumerate(tokens_at):
                right = vector_at(base, at, loaded)
                if is_half:
                    right = builder.fpext(right, vector)
                for i in range(n_rows):
                    added = builder.call(multiply_add, [left[i], right, builder.load(sums[i, j])])
                    builder.store(added, sums[i, j])
        for i, j in pairs:
            total, width = builder.load(sums[i, j]), _VECTOR
            while width > 1:
                width //= 2
                total = builder.fadd(
                    _half_of(builder, total, 0, width), _half_of(builder, total, width, width)
                )
            first = builder.extract_element(total, ir.IntType(32)(0))
            builder.store(first, builder.gep(results_at[i], [word(j)]))
        rest = builder.mul(whole, word(_VECTOR))
        with cgutils.for_range_slice(builder, rest, length, word(1)) as (at, _):
            for i, j in pairs:
                right = builder.load(builder.gep(tokens_at[j], [at]))
                if is_half:
                    right = builder.fpext(right, single)
                product = builder.fmul(builder.load(builder.gep(rows_at[i], [at])), right)
                place = builder.gep(results_at[i], [word(j)])
                builder.store(builder.fadd(builder.load(place), product), place)
        return context.get_dummy_value()

    return signature, generate


def _half_of(builder: Any, vector: Any, first: int, count: int) -> Any:
    places = ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(first, first + count)))
    return builder.shuffle_vector(vector, vector, places)


def project(
    hidden: NDArray[np.float32],
    rows: NDArray[np.int64],
    weight: Any,
    token_offset: np.int64,
    order: NDArray[np.int64],
    lists: NDArray[np.int64],
    begins: NDArray[np.int64],
    tokens: NDArray[np.uint32],
    starts: NDArray[np.int64],
    values: NDArray[np.float32],
) -> None:
    """Scores of the valid tokens of every row, each a product of two vectors.

    Row r is ``hidden[rows[r]]``; its tokens are those of list ``lists[r]``, which begins at
    ``begins[lists[r]]`` of `tokens`, and its slots begin at ``starts[r]`` of `values`. `order`
    names the rows to work on, those of one list one after another: four of them at a time read
    every weight once.
    """
    n = len(order)
    i = 0
    while i < n:
        r = order[i]
        chosen = lists[r]
        at = begins[chosen]
        end = begins[chosen + 1]
        to = starts[r] - at
        if i + 3 < n and lists[order[i + 3]] == chosen:
            r1, r2, r3 = order[i + 1], order[i + 2], order[i + 3]
            to1, to2, to3 = starts[r1] - at, starts[r2] - at, starts[r3] - at
            four = (rows[r], rows[r1], rows[r2], rows[r3])
            while at + 4 <= end:
                places = (to + at, to1 + at, to2 + at, to3 + at)
                _dots(hidden, four, weight, _four(tokens, at, token_offset), values, places)
                at += 4
            while at < end:
                places = (to + at, to1 + at, to2 + at, to3 + at)
                token = (np.int64(tokens[at]) - token_offset,)
                _dots(hidden, four, weight, token, values, places)
                at += 1
            i += 4
        else:
            row = (rows[r],)
            while at + 4 <= end:
                _dots(hidden, row, weight, _four(tokens, at, token_offset), values, (to + at,))
                at += 4
            while at < end:
                token = (np.int64(tokens[at]) - token_offset,)
                _dots(hidden, row, weight, token, values, (to + at,))
                at += 1
            i += 1


def _four(
    tokens: NDArray[np.uint32], at: np.int64, offset: np.int64
) -> tuple[np.int64, np.int64, np.int64, np.int64]:
    """Rows of the weights for four tokens."""
    return (
        np.int64(tokens[at]) - offset,
        np.int64(tokens[at + 1]) - offset,
        np.int64(tokens[at + 2]) - offset,
        np.int64(tokens[at + 3]) - offset,
    )


def pick(
    dense: NDArray[np.float32],
    low: np.int64,
    lists: NDArray[np.int64],
    begins: NDArray[np.int64],
    tokens: NDArray[np.uint32],
    starts: NDArray[np.int64],
    values: NDArray[np.float32],
) -> None:
    """Copy the scores of the valid tokens from `dense`, whose columns are the tokens from `low`
    on, to their slots."""
    for r in range(len(dense)):
        begin = begins[lists[r]]
        to = starts[r] - begin
        for at in range(begin, begins[lists[r] + 1]):
            values[to + at] = dense[r, np.int64(tokens[at]) - low]


def drop_invalid(dense: NDArray[np.float32], low: np.int64, mask: NDArray[np.uint32]) -> None:
    """Put -inf in `dense`, whose columns are the tokens from `low` on, where `mask` has a 0 or
    ends."""
    n_rows, width = dense.shape
    for r in range(n_rows):
        row = dense[r]
        column = 0
        while column < width:
            token = low + column
            word = np.uint32(0)
            if token >> 5 < mask.shape[1]:
                word = mask[r, token >> 5] >> np.uint32(token & 31)
            count = min(32 - (token & 31), width - column)
            for bit in range(count):
                if (word >> np.uint32(bit)) & np.uint32(1) == 0:
                    row[column + bit] = _NEGATIVE_INFINITY
            column += count


@njit(nogil=True)  # type: ignore[untyped-decorator]
def _count_unusable(values: Any, begin: int, end: int) -> int:
    """How many values are NaN or +inf."""
    count = 0
    for i in range(begin, end):
        count += not values[i] < _INFINITY
    return count


# Sums and maxima over vectors: the order of the additions is left to the compiler, and there is
# no NaN.
@njit(nogil=True, fastmath={"nnan", "nsz", "reassoc", "contract"})  # type: ignore[untyped-decorator]
def _largest(values: Any, begin: int, end: int) -> Any:
    """The largest of some values, -inf if there are none."""
    largest = _NEGATIVE_INFINITY
    for i in range(begin, end):
        largest = max(largest, values[i])
    return largest


@njit(nogil=True, fastmath={"nnan", "nsz", "reassoc", "contract"})  # type: ignore[untyped-decorator]
def _sum_of_powers(values: Any, begin: int, end: int, largest: Any) -> Any:
    """Sum of exp(value - largest), which is 1 or more."""
    total = np.float32(0.0)
    for i in range(begin, end):
        x = values[i] - largest
        x = _SMALLEST_EXPONENT if x < _SMALLEST_EXPONENT else x
        # exp(x) = 2**n * exp(r), |r| <= log(2) / 2: the Taylor series is exact to float32.
        n = np.floor(x * _LOG2_E + np.float32(0.5))
        r = x - n * _LN2_HIGH - n * _LN2_LOW
        power = np.float32(1 / 5040)
        power = power * r + np.float32(1 / 720)
        power = power * r + np.float32(1 / 120)
        power = power * r + np.float32(1 / 24)
        power = power * r + np.float32(1 / 6)
        power = power * r + np.float32(1 / 2)
        power = power * r + np.float32(1.0)
        power = power * r + np.float32(1.0)
        scale = np.int32((np.int32(n) + np.int32(127)) << np.int32(23))
        total += power * scale.view(np.float32)
    return total


def normalise(
    values: NDArray[np.float32],
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
    norms: NDArray[np.float32],
) -> int:
    """Logarithm of the sum of the powers of every row, for its log-softmax.

    Returns the first row with a NaN or +inf, or -1.
    """
    for r in range(len(starts)):
        begin = starts[r]
        end = begin + counts[r]
        if _count_unusable(values, begin, end) != 0:
            return r
        norms[r] = _NEGATIVE_INFINITY
        largest = _largest(values, begin, end)
        if largest > _NEGATIVE_INFINITY:
            total = _sum_of_powers(values, begin, end, largest)
            norms[r] = np.float32(np.float64(largest) + np.log(np.float64(total)))
    return -1


def _least_logit(bound: np.uint64, beam_score: np.float32, norm: np.float32) -> np.float32:
    """Logits below this cannot give a score that beats `bound`; rounding is allowed for."""
    if bound == np.uint64(0):
        return _NEGATIVE_INFINITY
    score = np.float64(unorder32(bound >> np.uint64(32)))
    least = score - beam_score + norm
    return np.float32(least - 1e-6 * (abs(score) + abs(beam_score) + abs(norm) + abs(least)))


def select(
    values: NDArray[np.float32],
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
    beam_scores: NDArray[np.float32],
    norms: NDArray[np.float32],
    requests: NDArray[np.int64],
    width: int,
    room: int,
    kept: NDArray[np.int64],
    out_scores: NDArray[np.float32],
    out_rows: NDArray[np.int64],
    out_slots: NDArray[np.int64],
) -> None:
    """The best `width` slots of every request, best first.

    Rows ``requests[q]`` to ``requests[q + 1]`` belong to request q. Winners of all requests lie
    one after another in the `out` arrays (score, row, slot of the row), ``kept[q]`` of each.
    `room` candidates are held at a time, more than `width`: when it is used up, the best stay,
    and the least of them bounds what is looked at from there on.
    """
    keys = np.empty(room, np.uint64)
    chosen = np.empty(room, np.int64)
    scratch = Scratch(np.empty(2048, np.int64), chosen, np.empty(room, np.int64))
    firsts = np.empty(len(starts) + 1, np.int64)
    out = 0
    for q in range(len(requests) - 1):
        found = 0
        bound = np.uint64(0)
        first = np.int64(0)
        for r in range(requests[q], requests[q + 1]):
            firsts[r] = first
            begin = starts[r]
            beam_score = beam_scores[r]
            norm = norms[r]
            least = _least_logit(bound, beam_score, norm)
            if _largest(values, begin, begin + counts[r]) >= least:
                for slot in range(counts[r]):
                    value = values[begin + slot]
                    if value < least or not value > _NEGATIVE_INFINITY:
                        continue
                    score = np.float32(beam_score + np.float32(value - norm))
                    # Unequal for all slots of a request: the earlier of equal scores is larger.
                    key = (order32(score) << np.uint64(32)) | (_RANK_MASK - np.uint64(first + slot))
                    if key <= bound or not score > _NEGATIVE_INFINITY:
                        continue
                    keys[found] = key
                    found += 1
                    if found == room:
                        bound = keep_best(keys, 0, found, width, scratch)
                        for i in range(width):
                            keys[i] = keys[chosen[i]]
                        found = width
                        least = _least_logit(bound, beam_score, norm)
            first += counts[r]
        keep = min(found, width)
        kept[q] = keep
        if keep == 0:
            continue
        if keep < found:
            keep_best(keys, 0, found, keep, scratch)
        else:
            for i in range(keep):
                chosen[i] = i
        sort_descending(keys, keep, scratch)
        for i in range(keep):
            key = keys[chosen[i]]
            place = np.int64(_RANK_MASK - (key & _RANK_MASK))
            low = requests[q]
            high = requests[q + 1]
            while low + 1 < high:
                middle = (low + high) >> 1
                if firsts[middle] <= place:
                    low = middle
                else:
                    high = middle
            out_scores[out] = unorder32(key >> np.uint64(32))
            out_rows[out] = low
            out_slots[out] = place - firsts[low]
            out += 1


class Engine(NamedTuple):
    """The compiled functions."""

    project: Any
    pick: Any
    drop_invalid: Any
    normalise: Any
    select: Any


@cache
def engine() -> Engine:
    """Compile everything, or load it from numba's cache."""
    functions = (project, pick, drop_invalid, normalise, select)
    return Engine(*(compile_function(f, bit_lanes) for f in functions))

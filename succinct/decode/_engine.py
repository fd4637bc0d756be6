"""Beam search over proposals: the part that runs compiled.

Plain Python functions, compiled by `_compile` for the lanes module of one kind of index. The
integer rules of `succinct.bits.lanes` apply.

Scores are compared as unsigned integers (`_order32`, `_order64`), so that one radix selection and
one radix sort serve frontier and results. Ties fall to the candidate that was found first, and
candidates are found in the order of step, parent and token; that is the order of the contract.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from succinct.bits.lanes import BitLanes
from succinct.decode import eligibility
from succinct.decode.eligibility import is_eligible, reaches_eligible
from succinct.trie.lanes import (
    child_range,
    find_child,
    has_children,
    is_terminal,
    key_number,
    listing_cost,
    nth_child,
)

PROTOCOL = (
    "child_range",
    "find_child",
    "has_children",
    "is_terminal",
    "key_number",
    "listing_cost",
    "nth_child",
    *eligibility.PROTOCOL,
)
# Called for every child or candidate; they allocate nothing.
INLINED = ("_order32", "_order64", "_rank_of", "_slot", "_unorder32", *eligibility.INLINED)

_DEAD = np.uint64(0xFFFFFFFFFFFFFFFF)
_LARGEST = np.uint64(0xFFFFFFFFFFFFFFFF)
_HASH = np.uint64(0x9E3779B1)
_SMALL_SORT = 24

_Keys = NDArray[np.uint64]


def _order32(score: np.float32) -> np.uint64:
    """Unsigned integer that grows with `score`; -0.0 and 0.0 give the same."""
    bits = np.uint64(np.float32(score + np.float32(0.0)).view(np.uint32))
    if bits >> np.uint64(31):
        return np.uint64(bits ^ np.uint64(0xFFFFFFFF))
    return np.uint64(bits | np.uint64(0x80000000))


def _unorder32(key: np.uint64) -> np.float32:
    """The score that `_order32` made `key` of."""
    if key >> np.uint64(31):
        return np.uint32(key & np.uint64(0x7FFFFFFF)).view(np.float32)
    return np.uint32(key ^ np.uint64(0xFFFFFFFF)).view(np.float32)


def _order64(score: np.float64) -> np.uint64:
    """As `_order32`, for float64."""
    bits = np.float64(score + np.float64(0.0)).view(np.uint64)
    if bits >> np.uint64(63):
        return np.uint64(bits ^ _LARGEST)
    return np.uint64(bits | np.uint64(0x8000000000000000))


def _keep_best(keys: _Keys, n: int, keep: int, chosen: NDArray[np.int64]) -> np.uint64:
    """Put the indices of the `keep` largest of ``keys[:n]`` into `chosen`, in ascending order.

    Of equal keys those with the lower index are chosen. Returns the smallest chosen key.
    Radix selection from the highest byte down: O(n) whatever the keys are. 0 < keep <= n.
    """
    counts = np.zeros(256, np.int64)
    prefix = np.uint64(0)
    mask = np.uint64(0)
    wanted = keep
    for byte in range(8):
        shift = np.uint64(56 - 8 * byte)
        counts[:] = 0
        for i in range(n):
            if keys[i] & mask == prefix:
                counts[np.int64((keys[i] >> shift) & np.uint64(255))] += 1
        digit = 255
        while counts[digit] < wanted:
            wanted -= counts[digit]
            digit -= 1
        prefix |= np.uint64(digit) << shift
        mask |= np.uint64(255) << shift
        if counts[digit] == wanted:
            # All that begin so are in: the bytes below do not matter.
            break
    found = 0
    ties = wanted
    least = _LARGEST
    for i in range(n):
        start = keys[i] & mask
        if start > prefix or (start == prefix and ties > 0):
            if start == prefix:
                ties -= 1
            chosen[found] = i
            found += 1
            least = min(least, keys[i])
    return np.uint64(least)


def _sort_descending(
    keys: _Keys, chosen: NDArray[np.int64], n: int, spare: NDArray[np.int64]
) -> None:
    """Sort ``chosen[:n]`` by ``keys[chosen]``, largest first, equal keys in the order given."""
    if n <= _SMALL_SORT:
        for i in range(1, n):
            moving = chosen[i]
            j = i
            while j > 0 and keys[chosen[j - 1]] < keys[moving]:
                chosen[j] = chosen[j - 1]
                j -= 1
            chosen[j] = moving
        return
    counts = np.zeros((8, 256), np.int64)
    for i in range(n):
        key = keys[chosen[i]]
        for byte in range(8):
            counts[byte, np.int64((key >> np.uint64(8 * byte)) & np.uint64(255))] += 1
    for byte in range(8):
        shift = np.uint64(8 * byte)
        if counts[byte, np.int64((keys[chosen[0]] >> shift) & np.uint64(255))] == n:
            continue
        start = 0
        for digit in range(255, -1, -1):
            count = counts[byte, digit]
            counts[byte, digit] = start
            start += count
        for i in range(n):
            digit = np.int64((keys[chosen[i]] >> shift) & np.uint64(255))
            spare[counts[byte, digit]] = chosen[i]
            counts[byte, digit] += 1
        chosen[:n] = spare[:n]


def _slot(token: np.int64, bits: int) -> np.int64:
    """Home of `token` in a hash table of 2**bits places."""
    mixed = (np.uint64(token) * _HASH) & np.uint64(0xFFFFFFFF)
    return np.int64(mixed >> np.uint64(32 - bits))


def _fill_table(tokens: NDArray[np.uint32], n: int, table: NDArray[np.int32], bits: int) -> None:
    """Hash table (linear probing) from a token to its rank + 1 among ``tokens[:n]``."""
    table[: 1 << bits] = 0
    for rank in range(n):
        at = _slot(np.int64(tokens[rank]), bits)
        while table[at] != 0:
            at = (at + 1) & ((1 << bits) - 1)
        table[at] = rank + 1


def _rank_of(
    token: np.int64, tokens: NDArray[np.uint32], table: NDArray[np.int32], bits: int
) -> int:
    """Rank of `token` among the tokens of the table, or -1."""
    at = _slot(token, bits)
    while table[at] != 0:
        rank = table[at] - 1
        if np.int64(tokens[rank]) == token:
            return int(rank)
        at = (at + 1) & ((1 << bits) - 1)
    return -1


def _bit_length(n: int) -> int:
    bits = 0
    while n > 0:
        n >>= 1
        bits += 1
    return bits


def _grown(array: Any, size: int) -> Any:
    """Copy of `array` with at least `size` places."""
    larger = np.empty(max(size, 2 * array.shape[0]), array.dtype)
    larger[: array.shape[0]] = array
    return larger


def search(
    index: Any,
    root: np.uint64,
    tokens: NDArray[np.uint32],
    logprobs: NDArray[np.float32],
    counts: NDArray[np.int64],
    widths: NDArray[np.int64],
    min_logprob: np.float32,
    factors: NDArray[np.float64],
    max_results: int,
    result_room: int,
    allowed: BitLanes,
    offsets: NDArray[np.int64],
) -> Any:
    """Search for every query.

    Parameters
    ----------
    index : namedtuple
        Arrays of the index.
    root : uint64
        State to start from; has children.
    tokens, logprobs : arrays [Q, T, K]
        Proposals; of step t of query q the first ``counts[q, t]`` count. Tokens ascend strictly.
    counts : array [Q, T]
    widths : array [T]
        Most states to keep after each step; with the widest, `widths` times K is below 2**32.
    min_logprob : float32
        Sums must be larger.
    factors : array [T + 1]
        What to multiply sums by, for every length.
    max_results : int
        For each query.
    result_room : int
        ``2 * max_results``, or less if a query cannot find that many keys.
    allowed : BitLanes
        Eligible keys.
    offsets : array [Q]
        Where those of each query begin; negative for every key.

    Returns
    -------
    tuple of arrays
        results of each query; then for the results of all queries, best first: score, sum,
        key number, state and length; then their tokens.
    """
    n_queries, n_steps, n_proposals = tokens.shape
    n_results = np.zeros(n_queries, np.int64)
    out = 0
    out_scores = np.empty(16, np.float64)
    out_sums = np.empty(16, np.float32)
    out_numbers = np.empty(16, np.int64)
    out_states = np.empty(16, np.uint64)
    out_lengths = np.empty(16, np.int64)
    out_end = 0
    out_tokens = np.empty(64, np.uint32)

    widest = 1
    for step in range(n_steps):
        widest = max(widest, widths[step])
    # Where each step's winners are noted: proposal taken and place of the parent before it.
    starts = np.zeros(n_steps + 1, np.int64)
    for step in range(n_steps):
        starts[step + 1] = starts[step] + widths[step]
    winner_tokens = np.empty(starts[n_steps], np.uint32)
    winner_parents = np.empty(starts[n_steps], np.int32)

    beam_states = np.empty(widest, np.uint64)
    beam_sums = np.empty(widest, np.float32)
    # Candidates: with twice the places needed, selecting costs O(1) for each.
    room = 2 * widest
    keys = np.empty(room, np.uint64)
    states = np.empty(room, np.uint64)
    chosen = np.empty(room, np.int64)
    spare = np.empty(room, np.int64)

    # As large as they can get from the start, which takes memory only when they are written to:
    # an array variable that the loops below assigned to would be reference-counted in each round.
    result_keys = np.empty(result_room, np.uint64)
    result_states = np.empty(result_room, np.uint64)
    result_sums = np.empty(result_room, np.float32)
    result_steps = np.empty(result_room, np.int32)
    result_parents = np.empty(result_room, np.int64)
    result_tokens = np.empty(result_room, np.uint32)
    result_chosen = np.empty(result_room, np.int64)
    result_spare = np.empty(result_room, np.int64)

    most_bits = _bit_length(4 * n_proposals)
    table = np.zeros(1 << most_bits, np.int32)

    for query in range(n_queries):
        offset = offsets[query]
        beams = np.int64(reaches_eligible(index, root, allowed, offset))
        beam_states[0] = root
        beam_sums[0] = np.float32(0.0)
        results = 0
        result_bound = np.uint64(0)
        for step in range(n_steps):
            n = counts[query, step]
            if beams == 0 or n == 0:
                break
            step_tokens = tokens[query, step]
            step_logprobs = logprobs[query, step]
            factor = factors[step + 1]
            bits = _bit_length(4 * n)
            _fill_table(step_tokens, n, table, bits)
            best = step_logprobs[0]
            for rank in range(1, n):
                best = max(best, step_logprobs[rank])
            width = widths[step]
            found = 0
            # Candidates for the frontier need a larger key; after the last step there is none.
            bound = _LARGEST if step + 1 == n_steps else np.uint64(0)
            for beam in range(beams):
                state = beam_states[beam]
                beam_sum = beam_sums[beam]
                # Sums cannot be larger than this from here on: neither this beam's nor, since
                # beams come best first, those of the beams behind it.
                top = np.float32(beam_sum + best)
                if not top > min_logprob:
                    break
                if ((_order32(top) << np.uint64(32)) | np.uint64(0xFFFFFFFF)) <= bound and _order64(
                    np.float64(top) * factor
                ) <= result_bound:
                    break
                first, count = child_range(index, state)
                cost = count * listing_cost(index, state)
                probe = cost <= n * 2 or cost <= n * _bit_length(count)
                trials = count if probe else n
                for trial in range(trials):
                    child = _DEAD
                    rank = trial
                    if probe:
                        token, child = nth_child(index, state, first, trial)
                        rank = _rank_of(token, step_tokens, table, bits)
                        if rank < 0 or child == _DEAD:
                            continue
                    total = np.float32(beam_sum + step_logprobs[rank])
                    if not total > min_logprob:
                        continue
                    place = np.uint64(beam * n + rank) ^ np.uint64(0xFFFFFFFF)
                    key = (_order32(total) << np.uint64(32)) | place
                    result_key = _order64(np.float64(total) * factor)
                    if key <= bound and result_key <= result_bound:
                        continue
                    if not probe:
                        token = np.int64(step_tokens[rank])
                        child = find_child(index, state, first, count, token)
                        if child == _DEAD:
                            continue
                    if (
                        key > bound
                        and has_children(index, child)
                        and reaches_eligible(index, child, allowed, offset)
                    ):
                        keys[found] = key
                        states[found] = child
                        found += 1
                        if found == 2 * width:
                            bound = _keep_best(keys, found, width, chosen)
                            found = width
                            for i in range(width):
                                keys[i] = keys[chosen[i]]
                                states[i] = states[chosen[i]]
                    if (
                        result_key > result_bound
                        and is_terminal(index, child)
                        and is_eligible(index, child, allowed, offset)
                    ):
                        result_keys[results] = result_key
                        result_states[results] = child
                        result_sums[results] = total
                        result_steps[results] = step
                        result_parents[results] = beam
                        result_tokens[results] = step_tokens[rank]
                        results += 1
                        if results == 2 * max_results:
                            result_bound = _keep_best(
                                result_keys, results, max_results, result_chosen
                            )
                            results = max_results
                            for i in range(results):
                                j = result_chosen[i]
                                result_keys[i] = result_keys[j]
                                result_states[i] = result_states[j]
                                result_sums[i] = result_sums[j]
                                result_steps[i] = result_steps[j]
                                result_parents[i] = result_parents[j]
                                result_tokens[i] = result_tokens[j]
            if found > width:
                _keep_best(keys, found, width, chosen)
                found = width
            else:
                for i in range(found):
                    chosen[i] = i
            _sort_descending(keys, chosen, found, spare)
            beams = found
            start = starts[step]
            for i in range(beams):
                key = keys[chosen[i]]
                place = (key & np.uint64(0xFFFFFFFF)) ^ np.uint64(0xFFFFFFFF)
                beam = np.int64(place) // n
                winner_parents[start + i] = beam
                winner_tokens[start + i] = step_tokens[np.int64(place) - beam * n]
                beam_states[i] = states[chosen[i]]
                beam_sums[i] = _unorder32(key >> np.uint64(32))

        if results > max_results:
            _keep_best(result_keys, results, max_results, result_chosen)
            results = max_results
        else:
            for i in range(results):
                result_chosen[i] = i
        _sort_descending(result_keys, result_chosen, results, result_spare)
        n_results[query] = results
        if out + results > out_scores.shape[0]:
            out_scores = _grown(out_scores, out + results)
            out_sums = _grown(out_sums, out + results)
            out_numbers = _grown(out_numbers, out + results)
            out_states = _grown(out_states, out + results)
            out_lengths = _grown(out_lengths, out + results)
        for i in range(results):
            j = result_chosen[i]
            step = np.int64(result_steps[j])
            length = step + 1
            if out_end + length > out_tokens.shape[0]:
                out_tokens = _grown(out_tokens, out_end + length)
            out_scores[out] = np.float64(result_sums[j]) * factors[length] + 0.0
            out_sums[out] = result_sums[j]
            out_states[out] = result_states[j]
            out_numbers[out] = key_number(index, result_states[j])
            out_lengths[out] = length
            out += 1
            out_tokens[out_end + step] = result_tokens[j]
            beam = result_parents[j]
            while step > 0:
                step -= 1
                out_tokens[out_end + step] = winner_tokens[starts[step] + beam]
                beam = np.int64(winner_parents[starts[step] + beam])
            out_end += length
    return (
        n_results,
        out_scores[:out],
        out_sums[:out],
        out_numbers[:out],
        out_states[:out],
        out_lengths[:out],
        out_tokens[:out_end],
    )

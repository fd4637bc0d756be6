"""One step of a beam search over proposals: `expand`, then `select`.

Plain Python functions, compiled by `_compile`. `expand` finds the candidates of consecutive rows
(beams) of a request, `select` makes the best of them the next rows. Candidates are found in the
order of parent and token, so rows that are expanded in several parts give the same as in one.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from succinct.bits.lanes import (
    BitLanes,
)
from succinct.decode._arrays import (
    NONE,
    Candidates,
    Found,
    Proposals,
    Room,
)
from succinct.decode._proposals import (
    clear_table,
    fill_table,
    match_children,
    order_by_token,
    owned,
    search_children,
)
from succinct.decode._select import (
    Scratch,
    bit_length,
    keep_best,
    order32,
    order64,
    sort_descending,
    unorder32,
)
from succinct.decode._team import (
    FLOOR,
    NEXT,
    TURN,
    Team,
    add,
    foremost,
    load,
    raise_to,
    rank_bits,
)
from succinct.decode.eligibility import (
    eligible_beyond,
    is_eligible,
)
from succinct.trie.lanes import (
    child_range,
    extensions,
    has_children,
    is_terminal,
    list_children,
)

# Called for every row, child or candidate.
INLINED = ("_move_candidate", "_move_found")

_DEAD = np.uint64(0xFFFFFFFFFFFFFFFF)

# What the logprobs of a row stand beside: the tokens that all rows share, tokens of its own, or
# every token of the vocabulary in turn.
SHARED, OWN, DENSE = range(3)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_INFINITE = np.float32(np.inf)


def is_hopeless(
    bound: np.uint64,
    factors: NDArray[np.float64],
    best: NDArray[np.float32],
    line: int,
    step: int,
    first: int,
    end: int,
) -> np.float32:
    """The largest sum after `step` with which no result can have a larger key than `bound`.

    Results are found in steps [first, end), `first` being `step` or the one after it; at most the
    best proposals of the steps after `step` are taken, whose lines follow `line`. Rounding is
    monotone, so that this is exact.
    """
    if first >= end:
        return _INFINITE
    low = order32(NONE)
    if bound == np.uint64(0):
        return NONE
    high = order32(_INFINITE)
    while low < high:
        middle = (low + high + np.uint64(1)) >> np.uint64(1)
        total = unorder32(middle)
        reaches = False
        for later in range(step, end):
            if later > step:
                total = np.float32(total + best[line + later - step])
            if later >= first and order64(np.float64(total) * factors[later + 1]) > bound:
                reaches = True
        if reaches:
            high = middle - np.uint64(1)
        else:
            low = middle
    return unorder32(low)


def _move_candidate(candidates: Candidates, to: int, at: int) -> None:
    candidates.keys[to] = candidates.keys[at]
    candidates.states[to] = candidates.states[at]
    candidates.parents[to] = candidates.parents[at]
    candidates.tokens[to] = candidates.tokens[at]


def _move_found(found: Found, to: int, at: int) -> None:
    found.keys[to] = found.keys[at]
    found.states[to] = found.states[at]
    found.sums[to] = found.sums[at]
    found.steps[to] = found.steps[at]
    found.parents[to] = found.parents[at]
    found.tokens[to] = found.tokens[at]


def _shrink_candidates(
    candidates: Candidates, base: int, n: int, keep: int, scratch: Scratch
) -> np.uint64:
    """Keep the best of the `n` at `base`, in their order; the smallest key kept."""
    least = keep_best(candidates.keys, base, n, keep, scratch)
    for i in range(keep):
        _move_candidate(candidates, base + i, scratch.chosen[i])
    return least


def shrink_found(found: Found, base: int, n: int, keep: int, scratch: Scratch) -> np.uint64:
    """As `_shrink_candidates`, for results."""
    least = keep_best(found.keys, base, n, keep, scratch)
    for i in range(keep):
        _move_found(found, base + i, scratch.chosen[i])
    return least


def expand(
    index: Any,
    n_tokens: np.int64,
    states: NDArray[np.uint64],
    sums: NDArray[np.float32],
    origin: int,
    first: int,
    end: int,
    mode: int,
    proposals: Proposals,
    line: int,
    min_token_logprob: np.float32,
    min_logprob: np.float32,
    hopeless: np.float32,
    factors: NDArray[np.float64],
    step: int,
    width: int,
    max_results: int,
    allowed: BitLanes,
    offset: np.int64,
    room: Room,
    candidates_base: int,
    found: Found,
    found_base: int,
    n_found: int,
    found_bound: np.uint64,
    team: Team,
) -> Any:
    """Find the candidates and results among the children of rows [first, end).

    Parameters
    ----------
    index : namedtuple
        Arrays of the index.
    n_tokens : int
        Vocabulary of the index.
    states, sums : arrays
        Of all rows. Those of the request begin at `origin` and come best first.
    mode, proposals, line
        If the mode is SHARED, `line` is that of all rows; otherwise a row is its own.
    min_logprob : float32
        Sums must be larger.
    hopeless : float32
        Candidates are of use only if their sum is larger.
    factors : array
        What to multiply sums by, for every length.
    width : int
        Most candidates that are of use; 0 after the last step.
    max_results : int
    allowed, offset
        Eligible keys; see `eligibility`.
    min_token_logprob : float32
        Log-probabilities must be larger; `read` has left out the others of proposals.
    room, candidates_base
        The candidates are left in the room, from this place on.
    found, found_base, n_found, found_bound
        Are added to the `n_found` at `found_base`, of which there are less than
        ``2 * max_results``; they need a larger key than `found_bound`.
    team : Team
        Whose members share the rows, if there are several.

    Returns
    -------
    candidates, results, bound of results
    """
    candidates = room.candidates
    shared = team.members > 1
    # What members find is put together in no order, and has to have one by itself.
    shift = rank_bits(team, end - origin)
    after = np.uint64(0)
    n_candidates = 0
    # Candidates and results need larger sums.
    floor = max(hopeless, min_logprob) if width > 0 else _INFINITE
    cut = is_hopeless(found_bound, factors, proposals.best, line, step, step, step + 1)
    values = proposals.logprobs if mode == DENSE else room.table
    mask = _ALL if mode == DENSE else np.uint64(len(room.owners) - 1)
    ordered = -1
    known_first = np.int64(0)
    known_end = np.int64(0)
    if mode == SHARED:
        fill_table(proposals, line, room, n_tokens)
    row = np.int64(first) - 1
    last = np.int64(first if shared else end) - 1
    while True:
        if row == last:
            row = np.int64(end) - 1
            if shared:
                row = first + add(team.words, NEXT, np.int64(TURN)) - 1
                last = min(row + TURN, np.int64(end) - 1)
                floor = max(floor, unorder32(np.uint64(load(team.words, FLOOR))))
            if row >= end - 1:
                break
        row += 1
        state = states[row]
        row_sum = sums[row]
        need = max(min(floor, cut), min_logprob)
        if mode != SHARED:
            line = row
        if mode != DENSE and not np.float32(row_sum + proposals.best[line]) > need:
            # Rows come best first.
            if mode == SHARED:
                break
            continue
        if shared:
            after = np.uint64(end - 1 - row)
        first_child, count = child_range(index, state)
        # A broken file may have rows that are longer than its vocabulary.
        count = min(count, np.int64(len(room.tokens)))
        n_proposed = proposals.counts[line]
        lists = (
            mode == DENSE
            or count <= n_proposed
            or count <= n_proposed * bit_length(np.uint64(count))
        )
        if lists:
            if mode == OWN:
                fill_table(proposals, line, room, n_tokens)
            list_children(index, state, first_child, count, room.tokens, room.children, np.int64(0))
            n_hits = match_children(
                values, line if mode == DENSE else 0, mask, row_sum, need, count, room
            )
        else:
            if ordered != line:
                order_by_token(proposals, line, room)
                ordered = line
            n_hits = search_children(
                index, state, first_child, count, row_sum, need, proposals, line, room
            )
        if offset >= 0:
            known_first, known_end = extensions(index, state)
        for hit in range(n_hits):
            place = room.hits[hit] if lists else np.int64(hit)
            child = room.children[place]
            total = room.totals[hit]
            is_key = total > cut and is_terminal(index, child)
            if not (is_key or total > floor):
                continue
            token = np.int64(room.tokens[place])
            if mode == DENSE:
                if not values[line, min(token, values.shape[1] - 1)] > min_token_logprob:
                    continue
            elif lists and n_tokens > len(room.owners):
                total = np.float32(row_sum + owned(proposals, line, token, room))
            if child == _DEAD or not total > min_logprob:
                continue
            if total > floor and has_children(index, child):
                goes_on = True
                if offset >= 0:
                    # In a chain the keys beyond stay the same, and one of them is eligible.
                    low, high = extensions(index, child)
                    goes_on = (low == known_first and high == known_end) or eligible_beyond(
                        index, low, high, allowed, offset
                    )
                if goes_on:
                    at = candidates_base + n_candidates
                    candidates.keys[at] = (order32(total) << shift) | after
                    candidates.states[at] = child
                    candidates.parents[at] = row - origin
                    candidates.tokens[at] = np.uint32(token)
                    n_candidates += 1
                    if n_candidates == 2 * width:
                        least = _shrink_candidates(
                            candidates, candidates_base, n_candidates, width, room.scratch
                        )
                        least = least >> shift
                        floor = max(floor, unorder32(least))
                        n_candidates = width
                        if shared:
                            # Others may have found the same sum in an earlier row. (The next
                            # smaller number might stand for -0.0, which is as large as 0.0.)
                            raise_to(team.words, FLOOR, np.int64(least) - 2)
            if is_key and total > cut and is_eligible(index, child, allowed, offset):
                at = found_base + n_found
                found.keys[at] = order64(np.float64(total) * factors[step + 1])
                found.states[at] = child
                found.sums[at] = total
                found.steps[at] = step
                found.parents[at] = row - origin
                found.tokens[at] = np.uint32(token)
                n_found += 1
                if n_found == 2 * max_results:
                    found_bound = shrink_found(
                        found, found_base, n_found, max_results, room.scratch
                    )
                    cut = is_hopeless(
                        found_bound, factors, proposals.best, line, step, step, step + 1
                    )
                    n_found = max_results
        if mode == OWN and lists:
            clear_table(proposals, line, room)
    if mode == SHARED:
        clear_table(proposals, line, room)
    return n_candidates, n_found, found_bound


def merge(
    team: Team,
    rows: int,
    width: int,
    max_results: int,
    room: Room,
    found: Found,
    n_found: int,
    bound: np.uint64,
) -> Any:
    """Put together what the members of a team found in a step: candidates, results, their bound."""
    candidates = room.candidates
    least = np.uint64(load(team.words, FLOOR)) << rank_bits(team, rows)
    n = team.counts[0, 0]
    for member in range(1, team.members):
        base = member * 2 * width
        for at in range(base, base + team.counts[member, 0]):
            # Without a branch, which could not be foreseen.
            _move_candidate(candidates, n, at)
            n += candidates.keys[at] > least
            if n == 2 * width:
                least = _shrink_candidates(candidates, 0, n, width, room.scratch)
                n = np.int64(width)
    for member in range(team.members):
        team.places[member] = 0
    while True:
        member = foremost(found.parents, 2 * max_results, team)
        if member < 0:
            break
        at = (member + 1) * 2 * max_results + team.places[member]
        team.places[member] += 1
        if found.keys[at] > bound:
            _move_found(found, n_found, at)
            n_found += 1
            if n_found == 2 * max_results:
                bound = shrink_found(found, 0, n_found, max_results, room.scratch)
                n_found = np.int64(max_results)
    return n, n_found, bound


def select(
    n: int,
    width: int,
    hopeless: np.float32,
    shift: np.uint64,
    room: Room,
    states: NDArray[np.uint64],
    sums: NDArray[np.float32],
    row: int,
    parents: NDArray[np.int32],
    tokens: NDArray[np.uint32],
    note: int,
) -> int:
    """Make the best of the `n` candidates whose sum is larger than `hopeless` the rows from `row`.

    Their keys have the sum in the bits from `shift` on. Their parents and tokens are noted from
    `note` on. Returns how many there are.
    """
    candidates = room.candidates
    chosen = room.scratch.chosen
    if n > width:
        keep_best(candidates.keys, 0, n, width, room.scratch)
        n = width
    else:
        for i in range(n):
            chosen[i] = i
    sort_descending(candidates.keys, n, room.scratch)
    for i in range(n):
        j = chosen[i]
        total = unorder32(candidates.keys[j] >> shift)
        if not total > hopeless:
            return i
        states[row + i] = candidates.states[j]
        sums[row + i] = total
        parents[note + i] = candidates.parents[j]
        tokens[note + i] = candidates.tokens[j]
    return n

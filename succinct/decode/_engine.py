"""Beam search over proposals: the part that runs compiled.

Plain Python functions, compiled by `_compile` for the lanes module of one kind of index. The
integer rules of `succinct.bits.lanes` apply.

`read` checks proposals. A step is `expand`, which finds the candidates of consecutive rows (beams)
of a request, and `select`, which makes the best of them the next rows. Candidates are found in the
order of parent and token, so rows that are expanded in several parts give the same as in one.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from succinct.bits.lanes import BitLanes
from succinct.decode._select import (
    Scratch,
    bit_length,
    keep_best,
    new_scratch,
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
    close_step,
    end_steps,
    enter_step,
    foremost,
    leave_step,
    load,
    open_step,
    raise_to,
    rank_bits,
)
from succinct.decode.eligibility import eligible_beyond, is_eligible, reaches_eligible
from succinct.trie.lanes import (
    child_range,
    extensions,
    find_child,
    has_children,
    is_terminal,
    key_number,
    list_children,
)

# Called for every row, child or candidate.
INLINED = ("_match", "_move_candidate", "_move_found", "_search")

# What the logprobs of a row stand beside: the tokens that all rows share, tokens of its own, or
# every token of the vocabulary in turn.
SHARED, OWN, DENSE = range(3)

# What may be wrong with a proposal.
NOTHING, IS_NAN, OUT_OF_RANGE, REPEATED = range(4)

_DEAD = np.uint64(0xFFFFFFFFFFFFFFFF)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_NONE = np.float32(-np.inf)
_INFINITE = np.float32(np.inf)
_HASH = np.uint64(0x9E3779B1)
_MAX_TOKEN = np.int64(0xFFFFFFFE)
# Stands for the token of a place in the table that several tokens fall to.
_SEVERAL = np.uint32(0xFFFFFFFF)
_MOST_PLACES = 1 << 20


class Proposals(NamedTuple):
    """Log-probabilities of one step in each line.

    Attributes
    ----------
    tokens : uint32 array [lines, K]
        Distinct within a line; not looked at if every token has its log-probability.
    logprobs : float32 array [lines, K]
    counts : int64 array [lines]
        How many of each line count.
    best : float32 array [lines]
        The largest log-probability of each line.
    """

    tokens: NDArray[np.uint32]
    logprobs: NDArray[np.float32]
    counts: NDArray[np.int64]
    best: NDArray[np.float32]


def new_proposals(lines: int, n: int) -> Proposals:
    """Room for `n` proposals in each line."""
    return Proposals(
        np.empty((lines, n), np.uint32),
        np.empty((lines, n), np.float32),
        np.empty(lines, np.int64),
        np.empty(lines, np.float32),
    )


class Candidates(NamedTuple):
    """Candidates for the next rows.

    Attributes
    ----------
    keys : uint64 array
        `order32` of their sums; below it, in a team, how many rows come after their parent.
    states : uint64 array
    parents : int32 array
        Rank of the row that they continue, within the request.
    tokens : uint32 array
    """

    keys: NDArray[np.uint64]
    states: NDArray[np.uint64]
    parents: NDArray[np.int32]
    tokens: NDArray[np.uint32]


class Found(NamedTuple):
    """Keys that were found.

    Attributes
    ----------
    keys : uint64 array
        `order64` of their scores.
    states : uint64 array
    sums : float32 array
    steps, parents : int32 arrays
        Step in which it was found, and rank of the row that it continued then.
    tokens : uint32 array
        The last of each.
    """

    keys: NDArray[np.uint64]
    states: NDArray[np.uint64]
    sums: NDArray[np.float32]
    steps: NDArray[np.int32]
    parents: NDArray[np.int32]
    tokens: NDArray[np.uint32]


class Room(NamedTuple):
    """Room to work in.

    Attributes
    ----------
    table : float32 array [1, places]
        Log-probability of the proposals whose token ends in the bits of a place; -inf for none,
        which all places hold before and after. `places` is a power of two.
    owners : uint32 array [places]
        The token of each proposal in the table, or `_SEVERAL`; not looked at if there is a place
        for every token of the index.
    tokens : uint32, children : uint64 arrays
        Children of a row; for as many as a state can have, and as many as there are proposals.
    hits : int64, totals : float32 arrays
        The places of those that are looked at again, and their sums.
    order : int64 array [K]
        Proposals of a line, tokens ascending.
    token_keys : uint64 array [K]
    candidates : Candidates
        For ``2 * width``, and as many again for each member of a team.
    scratch : Scratch
        For as many as there are candidates, results or proposals.
    """

    table: NDArray[np.float32]
    owners: NDArray[np.uint32]
    tokens: NDArray[np.uint32]
    children: NDArray[np.uint64]
    hits: NDArray[np.int64]
    totals: NDArray[np.float32]
    order: NDArray[np.int64]
    token_keys: NDArray[np.uint64]
    candidates: Candidates
    scratch: Scratch


def new_room(
    n_tokens: int, n_children: int, n_proposals: int, width: int, results: int, lists: int = 1
) -> Room:
    """Room for a vocabulary, fan-out, proposals, beam width, results, and lists of candidates."""
    places = min(_MOST_PLACES, 1 << int(n_tokens).bit_length())
    listed = max(n_children, n_proposals)
    return Room(
        np.full((1, places), _NONE),
        np.empty(places, np.uint32),
        np.empty(listed, np.uint32),
        np.empty(listed, np.uint64),
        np.empty(listed, np.int64),
        np.empty(listed, np.float32),
        np.empty(n_proposals, np.int64),
        np.empty(n_proposals, np.uint64),
        new_candidates(2 * width * lists),
        new_scratch(max(2 * width, results, n_proposals)),
    )


def seen_places(n: int) -> int:
    """Places that the hash table of `n` tokens needs."""
    return 1 << (4 * n).bit_length()


def read(
    ids: NDArray[np.int64],
    values: NDArray[np.float32],
    min_token_logprob: np.float32,
    first_counts: bool,
    seen: NDArray[np.uint32],
    proposals: Proposals,
) -> tuple[int, int, int]:
    """Check proposals, and keep those that are of use.

    Parameters
    ----------
    ids, values : arrays [lines, K]
        A value of -inf marks padding.
    min_token_logprob : float32
        Log-probabilities must be larger.
    first_counts : bool
        Whether a token may be repeated, and its first proposal counts.
    seen : uint32 array
        Room for `seen_places`.
    proposals : Proposals
        Is written to.

    Returns
    -------
    fault, line, place
        What is wrong with the first bad proposal, or `NOTHING`.
    """
    shift = np.uint64(33 - bit_length(np.uint64(len(seen))))
    last = len(seen) - 1
    for line in range(ids.shape[0]):
        for at in range(len(seen)):
            seen[at] = np.uint32(0)
        n = 0
        best = _NONE
        for k in range(ids.shape[1]):
            value = values[line, k]
            if value == _NONE:
                continue
            token = ids[line, k]
            if np.isnan(value):
                return IS_NAN, line, k
            if token < 0 or token > _MAX_TOKEN:
                return OUT_OF_RANGE, line, k
            mark = np.uint32(token + 1)
            at = np.int64(((np.uint64(token) * _HASH) & np.uint64(0xFFFFFFFF)) >> shift)
            while seen[at] != np.uint32(0) and seen[at] != mark:
                at = (at + 1) & last
            if seen[at] == mark:
                if first_counts:
                    continue
                return REPEATED, line, k
            seen[at] = mark
            if value > min_token_logprob:
                proposals.tokens[line, n] = np.uint32(token)
                proposals.logprobs[line, n] = value
                best = max(best, value)
                n += 1
        proposals.counts[line] = n
        proposals.best[line] = best
    return NOTHING, 0, 0


def _fill_table(proposals: Proposals, line: int, room: Room, n_tokens: np.int64) -> None:
    """Put the proposals of a line into the table, but for tokens that the index does not have."""
    mask = np.int64(len(room.owners) - 1)
    for k in range(proposals.counts[line]):
        token = np.int64(proposals.tokens[line, k])
        if token < n_tokens:
            place = token & mask
            value = proposals.logprobs[line, k]
            if n_tokens > len(room.owners):
                here = room.table[0, place]
                room.owners[place] = np.uint32(token) if here == _NONE else _SEVERAL
                value = max(here, value)
            room.table[0, place] = value


def _clear_table(proposals: Proposals, line: int, room: Room) -> None:
    mask = np.int64(len(room.owners) - 1)
    for k in range(proposals.counts[line]):
        room.table[0, np.int64(proposals.tokens[line, k]) & mask] = _NONE


def _order_by_token(proposals: Proposals, line: int, room: Room) -> None:
    n = proposals.counts[line]
    for k in range(n):
        room.token_keys[k] = np.uint64(_MAX_TOKEN - np.int64(proposals.tokens[line, k]))
        room.scratch.chosen[k] = k
    sort_descending(room.token_keys, n, room.scratch)
    for k in range(n):
        room.order[k] = room.scratch.chosen[k]


def _owned(proposals: Proposals, line: int, token: np.int64, room: Room) -> np.float32:
    """Log-probability of a token where several may share a place in the table."""
    place = token & np.int64(len(room.owners) - 1)
    if np.int64(room.owners[place]) == token:
        return np.float32(room.table[0, place])
    if room.owners[place] == _SEVERAL:
        for k in range(proposals.counts[line]):
            if np.int64(proposals.tokens[line, k]) == token:
                return np.float32(proposals.logprobs[line, k])
    return _NONE


def _match(
    values: NDArray[np.float32],
    line: int,
    mask: np.uint64,
    row_sum: np.float32,
    need: np.float32,
    count: np.int64,
    room: Room,
) -> np.int64:
    """Put the places of the listed children whose sum may be larger than `need` into `hits`.

    The sums are put into `totals`, and are not smaller than they should be.
    """
    n = np.uint64(0)
    # A broken file may hold tokens beyond its vocabulary.
    last = np.uint64(values.shape[1] - 1)
    # Unsigned places need no check of sign.
    for k in range(np.uint64(count)):
        # Without a branch, which could not be foreseen.
        place = min(np.uint64(room.tokens[k]) & mask, last)
        total = np.float32(row_sum + values[line, place])
        room.hits[n] = k
        room.totals[n] = total
        n += np.uint64(total > need)
    return np.int64(n)


def _search(
    index: Any,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    row_sum: np.float32,
    need: np.float32,
    proposals: Proposals,
    line: int,
    room: Room,
) -> int:
    """List the children whose sum is larger than `need`, by looking for each proposal.

    The proposals that led to them are put into `hits`.
    """
    n = 0
    for k in range(proposals.counts[line]):
        rank = room.order[k]
        total = np.float32(row_sum + proposals.logprobs[line, rank])
        if total > need:
            token = np.int64(proposals.tokens[line, rank])
            child = find_child(index, state, first, count, token)
            room.tokens[n] = np.uint32(token)
            room.children[n] = child
            room.hits[n] = rank
            room.totals[n] = total
            n += child != _DEAD
    return n


def _hopeless(
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
    low = order32(_NONE)
    if bound == np.uint64(0):
        return _NONE
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
    cut = _hopeless(found_bound, factors, proposals.best, line, step, step, step + 1)
    values = proposals.logprobs if mode == DENSE else room.table
    mask = _ALL if mode == DENSE else np.uint64(len(room.owners) - 1)
    ordered = -1
    known_first = np.int64(0)
    known_end = np.int64(0)
    if mode == SHARED:
        _fill_table(proposals, line, room, n_tokens)
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
                _fill_table(proposals, line, room, n_tokens)
            list_children(index, state, first_child, count, room.tokens, room.children, np.int64(0))
            n_hits = _match(values, line if mode == DENSE else 0, mask, row_sum, need, count, room)
        else:
            if ordered != line:
                _order_by_token(proposals, line, room)
                ordered = line
            n_hits = _search(index, state, first_child, count, row_sum, need, proposals, line, room)
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
                total = np.float32(row_sum + _owned(proposals, line, token, room))
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
                    cut = _hopeless(
                        found_bound, factors, proposals.best, line, step, step, step + 1
                    )
                    n_found = max_results
        if mode == OWN and lists:
            _clear_table(proposals, line, room)
    if mode == SHARED:
        _clear_table(proposals, line, room)
    return n_candidates, n_found, found_bound


def _merge(
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


def new_candidates(size: int) -> Candidates:
    """Room for `size` of them."""
    return Candidates(
        np.empty(size, np.uint64),
        np.empty(size, np.uint64),
        np.empty(size, np.int32),
        np.empty(size, np.uint32),
    )


def new_found(size: int) -> Found:
    """Room for `size` of them."""
    return Found(
        np.empty(size, np.uint64),
        np.empty(size, np.uint64),
        np.empty(size, np.float32),
        np.empty(size, np.int32),
        np.empty(size, np.int32),
        np.empty(size, np.uint32),
    )


class Notes(NamedTuple):
    """The paths to all rows of one request.

    Attributes
    ----------
    starts : int64 array [steps + 1]
        The rows that were made in step s are noted from ``starts[s]`` on.
    parents : int32 array
        Rank of the row before.
    tokens : uint32 array
    """

    starts: NDArray[np.int64]
    parents: NDArray[np.int32]
    tokens: NDArray[np.uint32]


class Output(NamedTuple):
    """Results of requests one after another, each's best first.

    Attributes
    ----------
    counts : int64 array [requests]
    scores : float64, sums : float32, numbers : int64, states : uint64, lengths : int64 arrays
    tokens : uint32 array
        Of all results, one after another.
    """

    counts: NDArray[np.int64]
    scores: NDArray[np.float64]
    sums: NDArray[np.float32]
    numbers: NDArray[np.int64]
    states: NDArray[np.uint64]
    lengths: NDArray[np.int64]
    tokens: NDArray[np.uint32]


def new_output(requests: int, places: int, steps: int) -> Output:
    """Room for `places` results of each request."""
    size = requests * places
    return Output(
        np.empty(requests, np.int64),
        np.empty(size, np.float64),
        np.empty(size, np.float32),
        np.empty(size, np.int64),
        np.empty(size, np.uint64),
        np.empty(size, np.int64),
        np.empty(size * steps, np.uint32),
    )


def written(out: Output, n: int, n_tokens: int) -> tuple[NDArray[Any], ...]:
    """The first `n` results, which have `n_tokens` in all."""
    columns = (out.scores, out.sums, out.numbers, out.states, out.lengths)
    return out.counts, *(column[:n] for column in columns), out.tokens[:n_tokens]


def trace(
    index: Any,
    found: Found,
    base: int,
    n: int,
    max_results: int,
    factors: NDArray[np.float64],
    notes: Notes,
    scratch: Scratch,
    out: Output,
    at: int,
    token_at: int,
) -> Any:
    """Write the best of the `n` results at `base`, and the paths to them.

    `at` and `token_at` are where results and tokens go, and are returned for the next.
    """
    chosen = scratch.chosen
    if n > max_results:
        keep_best(found.keys, base, n, max_results, scratch)
        n = max_results
    else:
        for i in range(n):
            chosen[i] = base + i
    sort_descending(found.keys, n, scratch)
    for i in range(n):
        j = chosen[i]
        step = np.int64(found.steps[j])
        out.scores[at] = np.float64(found.sums[j]) * factors[step + 1] + 0.0
        out.sums[at] = found.sums[j]
        out.numbers[at] = key_number(index, found.states[j])
        out.states[at] = found.states[j]
        out.lengths[at] = step + 1
        at += 1
        out.tokens[token_at + step] = found.tokens[j]
        row = np.int64(found.parents[j])
        end = token_at + step + 1
        while step > 0:
            step -= 1
            place = notes.starts[step] + row
            out.tokens[token_at + step] = notes.tokens[place]
            row = np.int64(notes.parents[place])
        token_at = end
    return at, token_at


def search(
    index: Any,
    n_tokens: np.int64,
    root: np.uint64,
    proposals: Proposals,
    widths: NDArray[np.int64],
    min_logprob: np.float32,
    factors: NDArray[np.float64],
    max_results: int,
    allowed: BitLanes,
    offsets: NDArray[np.int64],
    states: NDArray[np.uint64],
    sums: NDArray[np.float32],
    room: Room,
    found: Found,
    notes: Notes,
    out: Output,
    team: Team,
    member: int,
) -> tuple[int, int]:
    """Search for every query, or help another thread to search for the only one.

    Parameters
    ----------
    index : namedtuple
        Arrays of the index.
    n_tokens : int
        Vocabulary of the index.
    root : uint64
        State to start from; has children.
    proposals : Proposals
        Those of step t of query q on line ``q * T + t``.
    widths : array [T]
        Most states to keep after each step.
    min_logprob : float32
        Sums must be larger.
    factors : array [T + 1]
        What to multiply sums by, for every length.
    max_results : int
        For each query.
    allowed : BitLanes
        Eligible keys.
    offsets : array [Q]
        Where those of each query begin; negative for every key.
    states, sums, room, found, notes
        Room to work in: for the widest step, and for twice as many results as are wanted.
    out : Output
        Is written to.
    team, member : Team, int
        Member 0 leads, and alone uses `notes` and `out`; of the room it shares the candidates.

    Returns
    -------
    results, tokens
        How many were written.

    Notes
    -----
    Once there are as many results as are wanted, prefixes that cannot lead to a better one are
    dropped. They are the last of their step, and so is what follows from them, so that no other
    prefix changes.
    """
    n_steps = widths.shape[0]
    shared = team.members > 1
    at = np.int64(0)
    token_at = np.int64(0)
    for query in range(offsets.shape[0]):
        offset = offsets[query]
        rows = np.int64(0)
        if member == 0:
            rows = np.int64(reaches_eligible(index, root, allowed, offset))
            states[0] = root
            sums[0] = np.float32(0.0)
        n_found = np.int64(0)
        bound = np.uint64(0)
        hopeless = _NONE
        step = np.int64(-1)
        while True:
            step += 1
            if member > 0:
                step = enter_step(team, step)
                if step < 0:
                    return 0, 0
                rows = np.int64(team.task[0])
                bound = team.task[1]
                hopeless = unorder32(team.task[2])
            elif step == n_steps or rows == 0:
                break
            elif shared:
                team.task[0] = np.uint64(rows)
                team.task[1] = bound
                team.task[2] = order32(hopeless)
                open_step(team, step)
            line = query * n_steps + step
            width = np.int64(0) if step + 1 == n_steps else widths[step]
            place = np.int64(member + 1) if shared else np.int64(0)
            shift = rank_bits(team, rows)
            n, n_new, new_bound = expand(
                index,
                n_tokens,
                states,
                sums,
                0,
                0,
                rows,
                SHARED,
                proposals,
                line,
                _NONE,
                min_logprob,
                hopeless,
                factors,
                step,
                width,
                max_results,
                allowed,
                offset,
                room,
                member * 2 * width,
                found,
                place * 2 * max_results,
                np.int64(0) if shared else n_found,
                bound,
                team,
            )
            if shared:
                team.counts[member, 0] = n
                team.counts[member, 1] = n_new
                if member > 0:
                    leave_step(team)
                    continue
                close_step(team)
                n, n_found, bound = _merge(
                    team, rows, width, max_results, room, found, n_found, bound
                )
            else:
                n_found = n_new
                bound = new_bound
            if n_found >= max_results:
                bound = shrink_found(found, 0, n_found, max_results, room.scratch)
                n_found = np.int64(max_results)
            hopeless = _hopeless(bound, factors, proposals.best, line, step, step + 1, n_steps)
            rows = select(
                n,
                widths[step],
                hopeless,
                shift,
                room,
                states,
                sums,
                0,
                notes.parents,
                notes.tokens,
                notes.starts[step],
            )
            # No proposal adds more than the best one: what is hopeless now is no better later.
            if step + 2 < n_steps:
                hopeless = _hopeless(
                    bound, factors, proposals.best, line + 1, step + 1, step + 2, n_steps
                )
        if shared:
            end_steps(team)
        n_before = at
        at, token_at = trace(
            index,
            found,
            0,
            n_found,
            max_results,
            factors,
            notes,
            room.scratch,
            out,
            at,
            token_at,
        )
        out.counts[query] = at - n_before
    return at, token_at


def advance(
    index: Any,
    n_tokens: np.int64,
    states: NDArray[np.uint64],
    sums: NDArray[np.float32],
    offsets: NDArray[np.int64],
    first: int,
    end: int,
    mode: int,
    proposals: Proposals,
    min_token_logprob: np.float32,
    min_logprob: np.float32,
    factors: NDArray[np.float64],
    step: int,
    width: int,
    max_results: int,
    allowed: BitLanes,
    eligible: NDArray[np.int64],
    room: Room,
    found: Found,
    result_room: int,
    n_found: NDArray[np.int64],
    bounds: NDArray[np.uint64],
    new_counts: NDArray[np.int64],
    new_states: NDArray[np.uint64],
    new_sums: NDArray[np.float32],
    parents: NDArray[np.int32],
    tokens: NDArray[np.uint32],
    alone: Team,
) -> None:
    """One step of requests [first, end), for rows that have log-probabilities of their own.

    Parameters
    ----------
    states, sums, offsets
        Rows; those of request q are ``offsets[q]`` to ``offsets[q + 1]``.
    eligible : array [requests]
        Where the eligible keys of each request begin.
    found, n_found, bounds
        Results so far; those of request q begin at ``q * result_room``.
    new_counts, new_states, new_sums, parents, tokens
        Are written to: the next rows of request q from ``q * width`` on, with the ranks of their
        parents within the request.
    alone : Team
        Of one member.
    """
    for request in range(first, end):
        n, n_found[request], bounds[request] = expand(
            index,
            n_tokens,
            states,
            sums,
            offsets[request],
            offsets[request],
            offsets[request + 1],
            mode,
            proposals,
            0,
            min_token_logprob,
            min_logprob,
            _NONE,
            factors,
            step,
            width,
            max_results,
            allowed,
            eligible[request],
            room,
            0,
            found,
            request * result_room,
            n_found[request],
            bounds[request],
            alone,
        )
        new_counts[request] = select(
            n,
            width,
            _NONE,
            np.uint64(0),
            room,
            new_states,
            new_sums,
            request * width,
            parents,
            tokens,
            request * width,
        )


def report(
    index: Any,
    found: Found,
    result_room: int,
    n_found: NDArray[np.int64],
    max_results: int,
    factors: NDArray[np.float64],
    starts: NDArray[np.int64],
    parents: NDArray[np.int32],
    tokens: NDArray[np.uint32],
    scratch: Scratch,
    out: Output,
) -> tuple[int, int]:
    """The results of all requests of a stepwise search; row q of `starts` is for request q.

    Returns how many results and tokens were written.
    """
    at = np.int64(0)
    token_at = np.int64(0)
    for request in range(n_found.shape[0]):
        n_before = at
        at, token_at = trace(
            index,
            found,
            request * result_room,
            n_found[request],
            max_results,
            factors,
            Notes(starts[request], parents, tokens),
            scratch,
            out,
            at,
            token_at,
        )
        out.counts[request] = at - n_before
    return at, token_at

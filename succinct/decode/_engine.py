"""Beam search over proposals: the part that runs compiled.

Plain Python functions, compiled by `_compile` for the lanes module of one kind of index. The
integer rules of `succinct.bits.lanes` apply.

A step is `expand`, which finds the candidates of consecutive rows (beams) of a request, and
`select`, which makes the best of them the next rows. Candidates are found in the order of parent
and token, so rows that are expanded in several parts give the same as in one.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from succinct.bits.lanes import BitLanes
from succinct.decode._select import (
    Scratch,
    keep_best,
    order32,
    order64,
    sort_descending,
    unorder32,
)
from succinct.decode.eligibility import eligible_beyond, is_eligible, reaches_eligible
from succinct.trie.lanes import (
    child_range,
    extensions,
    find_child,
    has_children,
    is_terminal,
    key_number,
    listing_cost,
    nth_child,
)

# Called for every child or candidate.
INLINED = ("_lookup", "_slot")

# What the logprobs of a row stand beside: the tokens that all rows share, tokens of its own, or
# every token of the vocabulary in turn.
SHARED, OWN, DENSE = range(3)

_DEAD = np.uint64(0xFFFFFFFFFFFFFFFF)
_LARGEST = np.uint64(0xFFFFFFFFFFFFFFFF)
_HASH = np.uint64(0x9E3779B1)


class Proposals(NamedTuple):
    """Log-probabilities of one step.

    Attributes
    ----------
    tokens : uint32 array [lines, K]
        Ascend strictly within a line; not looked at if every token has its log-probability.
    logprobs : float32 array [lines, K]
    counts : int64 array [lines]
        How many of each line count.
    """

    tokens: NDArray[np.uint32]
    logprobs: NDArray[np.float32]
    counts: NDArray[np.int64]


class Candidates(NamedTuple):
    """Candidates for the next rows.

    Attributes
    ----------
    keys : uint64 array
        `order32` of their sums.
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


def _bit_length(n: int) -> int:
    bits = 0
    while n > 0:
        n >>= 1
        bits += 1
    return bits


def table_size(n: int) -> int:
    """Places that the hash table of `n` tokens needs."""
    return 1 << _bit_length(4 * n)


def _slot(token: np.int64, bits: int) -> np.int64:
    """Home of `token` in a hash table of 2**bits places."""
    mixed = (np.uint64(token) * _HASH) & np.uint64(0xFFFFFFFF)
    return np.int64(mixed >> np.uint64(32 - bits))


def _fill_table(tokens: NDArray[np.uint32], line: int, n: int, table: NDArray[np.int32]) -> int:
    """Hash table (linear probing) from a token to its rank + 1 among ``tokens[line, :n]``.

    Returns the bits of its size.
    """
    bits = _bit_length(4 * n)
    for at in range(1 << bits):
        table[at] = 0
    for rank in range(n):
        at = _slot(np.int64(tokens[line, rank]), bits)
        while table[at] != 0:
            at = (at + 1) & ((1 << bits) - 1)
        table[at] = rank + 1
    return bits


def _lookup(
    mode: int,
    token: np.int64,
    tokens: NDArray[np.uint32],
    line: int,
    n: int,
    table: NDArray[np.int32],
    bits: int,
) -> np.int64:
    """Rank of `token` among the `n` of a line, or -1."""
    if mode == SHARED:
        at = _slot(token, bits)
        while table[at] != 0:
            rank = np.int64(table[at]) - 1
            if np.int64(tokens[line, rank]) == token:
                return np.int64(rank)
            at = (at + 1) & ((1 << bits) - 1)
        return np.int64(-1)
    if mode == DENSE:
        return np.int64(token if token < n else -1)
    low = np.int64(0)
    high = np.int64(n)
    while low < high:
        middle = (low + high) >> 1
        if np.int64(tokens[line, middle]) < token:
            low = middle + 1
        else:
            high = middle
    if low < n and np.int64(tokens[line, low]) == token:
        return np.int64(low)
    return np.int64(-1)


def _shrink_candidates(
    candidates: Candidates, base: int, n: int, keep: int, scratch: Scratch
) -> np.uint64:
    """Keep the best of ``[base, base + n)``, in their order; the smallest key kept."""
    least = keep_best(candidates.keys, base, n, keep, 4, scratch)
    for i in range(keep):
        j = scratch.chosen[i]
        candidates.keys[base + i] = candidates.keys[j]
        candidates.states[base + i] = candidates.states[j]
        candidates.parents[base + i] = candidates.parents[j]
        candidates.tokens[base + i] = candidates.tokens[j]
    return np.uint64(least)


def _move_found(source: Found, j: int, target: Found, i: int) -> None:
    target.keys[i] = source.keys[j]
    target.states[i] = source.states[j]
    target.sums[i] = source.sums[j]
    target.steps[i] = source.steps[j]
    target.parents[i] = source.parents[j]
    target.tokens[i] = source.tokens[j]


def _shrink_found(found: Found, base: int, n: int, keep: int, scratch: Scratch) -> np.uint64:
    """As `_shrink_candidates`, for results."""
    least = keep_best(found.keys, base, n, keep, 8, scratch)
    for i in range(keep):
        _move_found(found, scratch.chosen[i], found, base + i)
    return np.uint64(least)


def expand(
    index: Any,
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
    factor: np.float64,
    step: int,
    width: int,
    max_results: int,
    allowed: BitLanes,
    offset: np.int64,
    table: NDArray[np.int32],
    scratch: Scratch,
    candidates: Candidates,
    base: int,
    found: Found,
    found_base: int,
    n_found: int,
    found_bound: np.uint64,
) -> Any:
    """Find the candidates and results among the children of rows [first, end).

    Parameters
    ----------
    index : namedtuple
        Arrays of the index.
    states, sums : arrays
        Of all rows. Those of the request begin at `origin` and come best first.
    mode, proposals, line
        If the mode is SHARED, `line` is that of all rows; otherwise a row is its own.
    min_token_logprob, min_logprob : float32
        Log-probabilities, and sums with them, must be larger.
    factor : float64
        What to multiply sums of this length by.
    width : int
        Most candidates that are of use; 0 after the last step.
    max_results : int
    allowed, offset
        Eligible keys; see `eligibility`.
    table : array
        Room for `table_size` of the shared tokens.
    scratch : Scratch
        For ``max(2 * width, 2 * max_results)`` keys.
    candidates, base
        Are written to from `base` on, ``2 * width`` places at most.
    found, found_base, n_found, found_bound
        Are added to the `n_found` at `found_base`, of which there are less than
        ``2 * max_results``; they need a larger key than `found_bound`.

    Returns
    -------
    candidates, results, bound of results
    """
    n_candidates = 0
    n = np.int64(0)
    bits = 0
    best = np.float32(np.inf)
    if mode == SHARED:
        n = proposals.counts[line]
        if n == 0:
            return n_candidates, n_found, found_bound
        bits = _fill_table(proposals.tokens, line, n, table)
        best = proposals.logprobs[line, 0]
        for rank in range(1, n):
            best = max(best, proposals.logprobs[line, rank])
    # Candidates need a larger key.
    bound = _LARGEST if width == 0 else np.uint64(0)
    known_first = np.int64(0)
    known_end = np.int64(0)
    for row in range(first, end):
        state = states[row]
        row_sum = sums[row]
        # Sums cannot be larger than this from here on: neither this row's nor, since rows come
        # best first, those of the rows behind it.
        top = np.float32(row_sum + best)
        if not top > min_logprob:
            break
        if order32(top) <= bound and order64(np.float64(top) * factor) <= found_bound:
            break
        if mode != SHARED:
            line = row
            n = proposals.counts[line]
        first_child, count = child_range(index, state)
        listing = count * listing_cost(index, state)
        if mode == OWN:
            listing += count * _bit_length(n)
        lists = mode == DENSE or listing <= n * 2 or listing <= n * _bit_length(count)
        if offset >= 0:
            known_first, known_end = extensions(index, state)
        trials = count if lists else n
        for trial in range(trials):
            child = _DEAD
            rank = np.int64(trial)
            if lists:
                token, child = nth_child(index, state, first_child, trial)
                rank = _lookup(mode, token, proposals.tokens, line, n, table, bits)
                if rank < 0 or child == _DEAD:
                    continue
            value = proposals.logprobs[line, rank]
            total = np.float32(row_sum + value)
            # Also false for NaN.
            if not (value > min_token_logprob and total > min_logprob):
                continue
            key = order32(total)
            found_key = order64(np.float64(total) * factor)
            if key <= bound and found_key <= found_bound:
                continue
            if not lists:
                token = np.int64(proposals.tokens[line, rank])
                child = find_child(index, state, first_child, count, token)
                if child == _DEAD:
                    continue
            if key > bound and has_children(index, child):
                if offset >= 0:
                    # In a chain the keys beyond stay the same, and one of them is eligible.
                    low, high = extensions(index, child)
                    if not (low == known_first and high == known_end) and not eligible_beyond(
                        index, low, high, allowed, offset
                    ):
                        key = np.uint64(0)
                if key > bound:
                    at = base + n_candidates
                    candidates.keys[at] = key
                    candidates.states[at] = child
                    candidates.parents[at] = row - origin
                    candidates.tokens[at] = np.uint32(token)
                    n_candidates += 1
                    if n_candidates == 2 * width:
                        bound = _shrink_candidates(candidates, base, n_candidates, width, scratch)
                        n_candidates = width
            if (
                found_key > found_bound
                and is_terminal(index, child)
                and is_eligible(index, child, allowed, offset)
            ):
                at = found_base + n_found
                found.keys[at] = found_key
                found.states[at] = child
                found.sums[at] = total
                found.steps[at] = step
                found.parents[at] = row - origin
                found.tokens[at] = np.uint32(token)
                n_found += 1
                if n_found == 2 * max_results:
                    found_bound = _shrink_found(found, found_base, n_found, max_results, scratch)
                    n_found = max_results
    return n_candidates, n_found, found_bound


def select(
    candidates: Candidates,
    base: int,
    n: int,
    width: int,
    scratch: Scratch,
    states: NDArray[np.uint64],
    sums: NDArray[np.float32],
    row: int,
    parents: NDArray[np.int32],
    tokens: NDArray[np.uint32],
    note: int,
) -> int:
    """Make the best of the candidates ``[base, base + n)`` the rows from `row` on.

    Their parents and tokens are noted from `note` on. Returns how many there are.
    """
    if n > width:
        keep_best(candidates.keys, base, n, width, 4, scratch)
        n = width
    else:
        for i in range(n):
            scratch.chosen[i] = base + i
    sort_descending(candidates.keys, n, 4, scratch)
    for i in range(n):
        j = scratch.chosen[i]
        states[row + i] = candidates.states[j]
        sums[row + i] = unorder32(candidates.keys[j])
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
    """Results of requests, each's best first.

    Attributes
    ----------
    counts : int64 array [requests]
        How many there are; the rest of a request's places is not written to.
    sums : float32, numbers : int64, states : uint64, lengths : int64 arrays [requests, places]
    tokens : uint32 array [requests, places, steps]
    """

    counts: NDArray[np.int64]
    sums: NDArray[np.float32]
    numbers: NDArray[np.int64]
    states: NDArray[np.uint64]
    lengths: NDArray[np.int64]
    tokens: NDArray[np.uint32]


def new_output(requests: int, places: int, steps: int) -> Output:
    """Room for results."""
    shape = requests, places
    return Output(
        np.zeros(requests, np.int64),
        np.empty(shape, np.float32),
        np.empty(shape, np.int64),
        np.empty(shape, np.uint64),
        np.empty(shape, np.int64),
        np.empty((*shape, steps), np.uint32),
    )


def trace(
    index: Any,
    found: Found,
    base: int,
    n: int,
    max_results: int,
    notes: Notes,
    scratch: Scratch,
    out: Output,
    request: int,
) -> None:
    """Write the best of the `n` results at `base`, and the paths to them."""
    if n > max_results:
        keep_best(found.keys, base, n, max_results, 8, scratch)
        n = max_results
    else:
        for i in range(n):
            scratch.chosen[i] = base + i
    sort_descending(found.keys, n, 8, scratch)
    out.counts[request] = n
    for i in range(n):
        j = scratch.chosen[i]
        step = np.int64(found.steps[j])
        out.sums[request, i] = found.sums[j]
        out.numbers[request, i] = key_number(index, found.states[j])
        out.states[request, i] = found.states[j]
        out.lengths[request, i] = step + 1
        out.tokens[request, i, step] = found.tokens[j]
        row = np.int64(found.parents[j])
        while step > 0:
            step -= 1
            place = notes.starts[step] + row
            out.tokens[request, i, step] = notes.tokens[place]
            row = np.int64(notes.parents[place])


def search(
    index: Any,
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
    table: NDArray[np.int32],
    scratch: Scratch,
    candidates: Candidates,
    found: Found,
    notes: Notes,
    out: Output,
) -> None:
    """Search for every query.

    Parameters
    ----------
    index : namedtuple
        Arrays of the index.
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
    states, sums, table, scratch, candidates, found, notes
        Room to work in: for the widest step, `table_size` of the proposals, twice the widest step
        and twice the results.
    out : Output
        Is written to.
    """
    n_steps = widths.shape[0]
    lowest = np.float32(-np.inf)
    for query in range(offsets.shape[0]):
        offset = offsets[query]
        rows = np.int64(reaches_eligible(index, root, allowed, offset))
        states[0] = root
        sums[0] = np.float32(0.0)
        n_found = np.int64(0)
        bound = np.uint64(0)
        for step in range(n_steps):
            if rows == 0:
                break
            n, n_found, bound = expand(
                index,
                states,
                sums,
                0,
                0,
                rows,
                SHARED,
                proposals,
                query * n_steps + step,
                lowest,
                min_logprob,
                factors[step + 1],
                step,
                0 if step + 1 == n_steps else widths[step],
                max_results,
                allowed,
                offset,
                table,
                scratch,
                candidates,
                0,
                found,
                0,
                n_found,
                bound,
            )
            rows = select(
                candidates,
                0,
                n,
                widths[step],
                scratch,
                states,
                sums,
                0,
                notes.parents,
                notes.tokens,
                notes.starts[step],
            )
        trace(index, found, 0, n_found, max_results, notes, scratch, out, query)


def advance(
    index: Any,
    states: NDArray[np.uint64],
    sums: NDArray[np.float32],
    offsets: NDArray[np.int64],
    first: int,
    end: int,
    mode: int,
    proposals: Proposals,
    min_token_logprob: np.float32,
    min_logprob: np.float32,
    factor: np.float64,
    step: int,
    width: int,
    max_results: int,
    allowed: BitLanes,
    eligible: NDArray[np.int64],
    table: NDArray[np.int32],
    scratch: Scratch,
    candidates: Candidates,
    found: Found,
    result_room: int,
    n_found: NDArray[np.int64],
    bounds: NDArray[np.uint64],
    new_counts: NDArray[np.int64],
    new_states: NDArray[np.uint64],
    new_sums: NDArray[np.float32],
    parents: NDArray[np.int32],
    tokens: NDArray[np.uint32],
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
    """
    for request in range(first, end):
        n, n_found[request], bounds[request] = expand(
            index,
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
            factor,
            step,
            width,
            max_results,
            allowed,
            eligible[request],
            table,
            scratch,
            candidates,
            0,
            found,
            request * result_room,
            n_found[request],
            bounds[request],
        )
        new_counts[request] = select(
            candidates,
            0,
            n,
            width,
            scratch,
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
    starts: NDArray[np.int64],
    parents: NDArray[np.int32],
    tokens: NDArray[np.uint32],
    scratch: Scratch,
    out: Output,
) -> None:
    """The results of all requests of a stepwise search; row q of `starts` is for request q."""
    for request in range(n_found.shape[0]):
        notes = Notes(starts[request], parents, tokens)
        base = request * result_room
        trace(index, found, base, n_found[request], max_results, notes, scratch, out, request)

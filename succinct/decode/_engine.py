"""Beam search over proposals: the functions that are called from outside.

Plain Python functions, compiled by `_compile` for the lanes module of one kind of index, as are
those of `_proposals` and `_expand`, which they call. The integer rules of `succinct.bits.lanes`
apply. `search` runs all steps of its requests, `advance` one step of a decoder, whose results
`report` writes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from succinct.bits.lanes import (
    BitLanes,
)
from succinct.decode._arrays import (
    NONE,
    Found,
    Notes,
    Output,
    Proposals,
    Room,
)
from succinct.decode._expand import (
    SHARED,
    expand,
    is_hopeless,
    merge,
    select,
    shrink_found,
)
from succinct.decode._select import (
    Scratch,
    keep_best,
    order32,
    sort_descending,
    unorder32,
)
from succinct.decode._team import (
    Team,
    close_step,
    end_steps,
    enter_step,
    leave_step,
    open_step,
    rank_bits,
)
from succinct.decode.eligibility import (
    reaches_eligible,
)
from succinct.trie.lanes import (
    key_number,
)


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
        hopeless = NONE
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
                NONE,
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
                n, n_found, bound = merge(
                    team, rows, width, max_results, room, found, n_found, bound
                )
            else:
                n_found = n_new
                bound = new_bound
            if n_found >= max_results:
                bound = shrink_found(found, 0, n_found, max_results, room.scratch)
                n_found = np.int64(max_results)
            hopeless = is_hopeless(bound, factors, proposals.best, line, step, step + 1, n_steps)
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
                hopeless = is_hopeless(
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
            NONE,
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
            NONE,
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

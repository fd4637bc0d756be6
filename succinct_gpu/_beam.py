"""Beam search over proposals as one cooperative kernel (FlashTrie, arXiv:2607.10044).

A team of blocks takes a query through all steps of one launch. A step is `expand`, which appends
8-byte keys to two lists of the query, the candidates for the next rows and the keys found, and
rounds of selection on both (`_topk`), of which the last makes the best candidates the next rows,
and merges the best keys found with those of the steps before. Nothing but keys is written for a
candidate; states, parents and tokens are for those that are kept.

Cost of a step with R rows, K proposals, c candidates and P threads: R K / P searches in the index,
of log2(d) dependent loads each; 8 c bytes written and, where c exceeds `CAPACITY`, read again for
each round; two synchronisations, and one more for each round. A team of one block synchronises
itself, a larger one the grid.
"""

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import cuda
from numba.cuda import types
from numba.cuda.extending import intrinsic

from succinct.decode._select import unorder32
from succinct.trie.lanes import child_range, find_child, key_number
from succinct_gpu._expand import BLOCK, Proposals, Step, expand, token_at
from succinct_gpu._topk import BINS, CAPACITY, PASSES, Lists, length_of

_DEAD = np.uint64(0xFFFFFFFFFFFFFFFF)
_LOW = np.uint64(0xFFFFFFFF)
_MINUS_INFINITY = np.float64(-np.inf)
#: Entries of a row of flags: rounds to come and rows that live, three of each, taken in turn.
FLAGS = 6


class Rows(NamedTuple):
    """Rows (beams) of every query, for even and for odd steps.

    Attributes
    ----------
    states : uint64 array [2, queries, width]
    sums : float32 array [2, queries, width]
    counts : int64 array [2, queries]
    """

    states: Any
    sums: Any
    counts: Any


class Notes(NamedTuple):
    """The paths to all rows: `parents` int32 and `tokens` uint32 [queries, steps, width]."""

    parents: Any
    tokens: Any


class Found(NamedTuple):
    """The best keys found so far, best first, in one of two places.

    Attributes
    ----------
    sums : float32, states : uint64, steps, parents : int32, tokens : uint32 [2, queries, results]
    counts : int64 array [queries]
    side : int64 array [queries]
        In which place they are.
    """

    sums: Any
    states: Any
    steps: Any
    parents: Any
    tokens: Any
    counts: Any
    side: Any


class Output(NamedTuple):
    """As `succinct_gpu._proposals.Output`."""

    counts: Any
    sums: Any
    numbers: Any
    states: Any
    lengths: Any
    tokens: Any


def choose_round(*arguments: Any) -> bool:
    """`radix_round` or `merge_round`; chosen when the kernel is compiled."""
    return True


def take(*arguments: Any) -> np.int64:
    """`take_radix` or `take_merge`; chosen when the kernel is compiled."""
    return np.int64(0)


@intrinsic  # type: ignore[untyped-decorator]
def ticks(typing_context: Any) -> Any:
    """Cycles of the multiprocessor; in the executor, accesses to memory."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.IntType(64), [])
        return builder.call(
            ir.InlineAsm(kind, "mov.u64 $0, %clock64;", "=l", side_effect=True), arguments
        )

    return types.int64(), generate


def read_clock(clocks: Any, query: np.int64, member: np.int64, at: np.int64) -> None:
    """Note the time of a query, or nothing; chosen when the kernel is compiled."""


def note_clock(clocks: Any, query: np.int64, member: np.int64, at: np.int64) -> None:
    """The first block of a team notes when it was where: the begin of the search is 0, then come
    the ends of expanding and of selecting of every step, then that of tracing back."""
    if member == 0 and cuda.threadIdx.x == 0:
        if at == 0:
            for k in range(clocks.shape[1]):
                clocks[query, k] = 0
        clocks[query, at] = ticks()


def no_clock(clocks: Any, query: np.int64, member: np.int64, at: np.int64) -> None:
    """For searches that are not timed."""


def search(
    share: np.int64,
    index: Any,
    root: np.uint64,
    proposals: Proposals,
    origins: Any,
    line_step: np.int64,
    widths: Any,
    min_token: np.float32,
    min_logprob: np.float32,
    factors: Any,
    max_results: np.int64,
    allowed: Any,
    offsets: Any,
    rows: Rows,
    lists: Lists,
    notes: Notes,
    found: Found,
    flags: Any,
    clocks: Any,
    out: Output,
) -> None:
    """Search for every query, by teams of `share` blocks.

    Either there is a team for every query, or teams are of one block, which takes several
    queries. The parameters are those of `succinct.decode._engine.search`; besides, the proposals
    of query q begin on line ``origins[q]``. With a `line_step` of 0 each step has a line; with 1
    there is one step, in which each row has a line, and whose rows the caller has put in place.
    What a step costs is at the head of this module.
    """
    grid = cuda.cg.this_grid()
    buffer = cuda.shared.array(CAPACITY, np.uint64)
    bins = cuda.shared.array(BINS, np.int32)
    firsts = cuda.shared.array(BLOCK, np.int64)
    counts = cuda.shared.array(BLOCK, np.int64)
    plan = cuda.shared.array((2, 5), np.uint64)

    i = np.int64(cuda.threadIdx.x)
    team = np.int64(cuda.blockIdx.x) // share
    member = np.int64(cuda.blockIdx.x) - team * share
    teams = np.int64(cuda.gridDim.x) // share
    # Of a grid that synchronises as a whole, all blocks look at the same flags.
    own_flags = team if share == 1 else np.int64(0)
    leads = member == 0 and (share == 1 or team == 0)
    n_steps = np.int64(widths.size)
    stride = np.int64(proposals.logprobs.shape[1])
    query = team
    while query < offsets.size:
        begin_query(root, line_step, query, member, share, rows, lists, found)
        if leads and i < FLAGS:
            flags[own_flags, i] = np.int32(0)
        if share > 1:
            grid.sync()
        else:
            cuda.syncthreads()
        read_clock(clocks, query, member, np.int64(0))
        step = np.int64(0)
        rounds = np.int64(0)
        alive = n_steps > 0
        while alive:
            parity = step & 1
            line = origins[query] + step
            bound = _MINUS_INFINITY
            n_found = found.counts[query]
            if n_found == max_results:
                side = found.side[query]
                shortest = found.steps[side, query, n_found - 1]
                bound = np.float64(found.sums[side, query, n_found - 1]) * factors[shortest + 1]
            now = Step(
                query,
                step,
                parity,
                line,
                line_step,
                np.int64(proposals.counts[line]) if line_step == 0 else stride,
                stride,
                step + 1 < n_steps or line_step != 0,
                min_token,
                min_logprob,
                factors[step + 1],
                bound,
                offsets[query],
            )
            if i == 0 and leads:
                flags[own_flags, 3 + (step + 1) % 3] = np.int32(0)
            expand(
                index,
                rows,
                rows.counts[parity, query],
                proposals,
                allowed,
                now,
                lists,
                member,
                share,
                buffer,
                firsts,
                counts,
            )
            if share > 1:
                grid.sync()
            else:
                cuda.syncthreads()
            read_clock(clocks, query, member, 1 + 2 * step)
            if i < 2:
                plan[i, 0] = np.uint64(0)
                plan[i, 1] = np.uint64(0)
                plan[i, 2] = np.uint64(0)
                plan[i, 3] = np.uint64(0)
            open_lists = np.int64(3)
            going = True
            cuda.syncthreads()
            while going:
                for which in range(2):
                    if open_lists >> which & 1:
                        number = 2 * query + which
                        n = length_of(lists, parity, number)
                        keep = max_results if which else widths[step]
                        ready = choose_round(
                            lists, number, n, keep, member, share, plan, which, bins, buffer
                        )
                        if ready:
                            open_lists -= np.int64(1) << which
                            if member == which % share:
                                kept = take(lists, number, n, keep, buffer, plan, which)
                                chosen = lists.winners[number]
                                settle(index, now, kept, proposals, rows, chosen, buffer)
                                if which == 0:
                                    begin_rows(now, kept, proposals, rows, notes, chosen, buffer)
                                    if kept > 0 and i == 0:
                                        at = own_flags, 3 + step % 3
                                        cuda.atomic.or_(flags, at, np.int32(1))
                                elif kept > 0:
                                    add_found(
                                        now,
                                        kept,
                                        max_results,
                                        proposals,
                                        factors,
                                        found,
                                        chosen,
                                        buffer,
                                    )
                                if i == 0:
                                    lists.counts[1 - parity, number] = np.int32(0)
                                cuda.syncthreads()
                if open_lists != 0 and i == 0:
                    cuda.atomic.or_(flags, (own_flags, rounds % 3), np.int32(1))
                if share > 1:
                    grid.sync()
                else:
                    cuda.syncthreads()
                going = flags[own_flags, rounds % 3] != 0
                if i == 0 and leads:
                    flags[own_flags, (rounds + 2) % 3] = np.int32(0)
                rounds += 1
            read_clock(clocks, query, member, 2 + 2 * step)
            alive = flags[own_flags, 3 + step % 3] != 0 and step + 1 < n_steps
            step += 1
        trace(index, query, member, share, notes, found, out)
        cuda.syncthreads()
        read_clock(clocks, query, member, 1 + 2 * n_steps)
        query += teams


def begin_query(
    root: np.uint64,
    line_step: np.int64,
    query: np.int64,
    member: np.int64,
    share: np.int64,
    rows: Rows,
    lists: Lists,
    found: Found,
) -> None:
    """Make the root the only row, unless there are rows, and everything else empty."""
    i = np.int64(cuda.threadIdx.x)
    if member == 0 and i == 0:
        if line_step == 0:
            rows.states[0, query, 0] = root
            rows.sums[0, query, 0] = np.float32(0.0)
            rows.counts[0, query] = np.int64(1)
        found.counts[query] = np.int64(0)
        found.side[query] = np.int64(0)
    if member == 0 and i < 2:
        lists.counts[0, 2 * query + i] = np.int32(0)
        lists.counts[1, 2 * query + i] = np.int32(0)
        lists.n_winners[2 * query + i] = np.int32(0)
    for which in range(2):
        k = member * np.int64(cuda.blockDim.x) + i
        while k < PASSES * BINS:
            lists.histograms[2 * query + which, k // BINS, k % BINS] = np.int32(0)
            k += share * np.int64(cuda.blockDim.x)


def settle(
    index: Any,
    step: Step,
    kept: np.int64,
    proposals: Proposals,
    rows: Rows,
    chosen: Any,
    buffer: Any,
) -> None:
    """Write the states of the keys in shared memory to ``chosen[:kept]``."""
    i = np.int64(cuda.threadIdx.x)
    while i < kept:
        number = np.int64(_LOW - (buffer[i] & _LOW))
        parent = number // step.stride
        line = step.line + parent * step.line_step
        token = token_at(proposals, line, number - parent * step.stride)
        state = rows.states[step.parity, step.query, parent]
        first, count = child_range(index, state)
        chosen[i] = find_child(index, state, first, count, token)
        i += np.int64(cuda.blockDim.x)


def begin_rows(
    step: Step,
    kept: np.int64,
    proposals: Proposals,
    rows: Rows,
    notes: Notes,
    chosen: Any,
    buffer: Any,
) -> None:
    """Make the candidates in shared memory the next rows, and note the paths to them."""
    after = 1 - step.parity
    i = np.int64(cuda.threadIdx.x)
    if i == 0:
        rows.counts[after, step.query] = kept
    while i < kept:
        key = buffer[i]
        number = np.int64(_LOW - (key & _LOW))
        parent = number // step.stride
        rows.states[after, step.query, i] = chosen[i]
        rows.sums[after, step.query, i] = unorder32(key >> np.uint64(32))
        notes.parents[step.query, step.number, i] = np.int32(parent)
        line = step.line + parent * step.line_step
        token = token_at(proposals, line, number - parent * step.stride)
        notes.tokens[step.query, step.number, i] = np.uint32(token)
        i += np.int64(cuda.blockDim.x)


def add_found(
    step: Step,
    kept: np.int64,
    max_results: np.int64,
    proposals: Proposals,
    factors: Any,
    found: Found,
    chosen: Any,
    buffer: Any,
) -> None:
    """Merge the keys in shared memory, which this step found, with those of the steps before.

    Within a step scores grow with sums. Of equal scores those of earlier steps come first.
    """
    query = step.query
    side = found.side[query]
    n_before = found.counts[query]
    cuda.syncthreads()
    i = np.int64(cuda.threadIdx.x)
    while i < kept:
        key = buffer[i]
        total = unorder32(key >> np.uint64(32))
        score = np.float64(total) * step.factor
        low = np.int64(0)
        high = n_before
        while low < high:
            middle = (low + high) >> 1
            of_step = np.int64(found.steps[side, query, middle])
            if np.float64(found.sums[side, query, middle]) * factors[of_step + 1] >= score:
                low = middle + 1
            else:
                high = middle
        place = i + low
        if place < max_results:
            number = np.int64(_LOW - (key & _LOW))
            parent = number // step.stride
            found.sums[1 - side, query, place] = total
            found.states[1 - side, query, place] = chosen[i]
            found.steps[1 - side, query, place] = np.int32(step.number)
            found.parents[1 - side, query, place] = np.int32(parent)
            line = step.line + parent * step.line_step
            token = token_at(proposals, line, number - parent * step.stride)
            found.tokens[1 - side, query, place] = np.uint32(token)
        i += np.int64(cuda.blockDim.x)
    i = np.int64(cuda.threadIdx.x)
    while i < n_before:
        total = found.sums[side, query, i]
        of_step = np.int64(found.steps[side, query, i])
        score = np.float64(total) * factors[of_step + 1]
        low = np.int64(0)
        high = kept
        while low < high:
            middle = (low + high) >> 1
            if np.float64(unorder32(buffer[middle] >> np.uint64(32))) * step.factor > score:
                low = middle + 1
            else:
                high = middle
        place = i + low
        if place < max_results:
            found.sums[1 - side, query, place] = total
            found.states[1 - side, query, place] = found.states[side, query, i]
            found.steps[1 - side, query, place] = np.int32(of_step)
            found.parents[1 - side, query, place] = found.parents[side, query, i]
            found.tokens[1 - side, query, place] = found.tokens[side, query, i]
        i += np.int64(cuda.blockDim.x)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        found.side[query] = 1 - side
        found.counts[query] = min(max_results, n_before + kept)


def trace(
    index: Any,
    query: np.int64,
    member: np.int64,
    share: np.int64,
    notes: Notes,
    found: Found,
    out: Output,
) -> None:
    """Write the results and the paths to them, a thread for each."""
    side = found.side[query]
    n = found.counts[query]
    i = member * np.int64(cuda.blockDim.x) + np.int64(cuda.threadIdx.x)
    if i == 0:
        out.counts[query] = n
    while i < n:
        state = found.states[side, query, i]
        step = np.int64(found.steps[side, query, i])
        out.sums[query, i] = found.sums[side, query, i]
        out.states[query, i] = state
        out.numbers[query, i] = key_number(index, state)
        out.lengths[query, i] = step + 1
        out.tokens[query, i, step] = found.tokens[side, query, i]
        row = np.int64(found.parents[side, query, i])
        while step > 0:
            step -= 1
            out.tokens[query, i, step] = notes.tokens[query, step, row]
            row = np.int64(notes.parents[query, step, row])
        i += np.int64(cuda.blockDim.x) * share


def no_trace(
    index: Any,
    query: np.int64,
    member: np.int64,
    share: np.int64,
    notes: Notes,
    found: Found,
    out: Output,
) -> None:
    """For a single step, whose paths the host has."""

"""Expansion: which proposals continue which rows, and what becomes of them.

A block takes its rows in two passes, as FlashTrie's Algorithms 2 and 3 do. In the first a thread
takes a row: it finds the row's range of children, and if there is one child only, as inside a
chain, looks its token up among the proposals. In the second the whole block takes one row after
another, in one of several ways (`VARIANTS`), which find the same:

binary
    A thread for each proposal, a binary search in the sorted children: K searches of log2(d)
    dependent loads, P at a time.
probe
    Where a row has fewer children than K log2(d), a thread for each child instead, and a hash
    table in shared memory from a token to its place among the proposals: d loads that do not
    depend on each other.
linear, two_pointer, per_child
    The paper's weaker inner loops, for comparison: each thread scans children that the block has
    put into shared memory; one thread walks children and proposals in step; each thread scans the
    proposals for its child.
ppt
    A filter of the tokens that occur at each place in any key stands in front of the binary
    search. (The paper's ablation has the filter alone, and finds sequences that are no keys.)

Proposals of a line ascend strictly by token. A candidate's number is parent * K + place of its
proposal, so that numbers order candidates by parent and token.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import cuda

from succinct.decode._select import order32
from succinct.decode.eligibility import eligible_beyond, is_eligible
from succinct.trie.lanes import (
    child_range,
    extensions,
    find_child,
    has_children,
    is_terminal,
    nth_child,
)
from succinct_gpu._topk import CAPACITY, Lists, append

#: Most threads of a block.
BLOCK = 256

_DEAD = np.uint64(0xFFFFFFFFFFFFFFFF)
_EMPTY = np.uint64(0)
_LOW = np.uint64(0xFFFFFFFF)
_HASH = np.uint64(0x9E3779B1)
_SLOTS = np.int64(CAPACITY)
# With more proposals than this the hash table would be too full.
_MOST_HASHED = np.int64(CAPACITY // 2)


class Step(NamedTuple):
    """What holds for a query during a step.

    Attributes
    ----------
    query, number, parity : int64
        Number of the query; of the step, and whether that is odd.
    line, line_step : int64
        The line of the first row's proposals, and how much further that of the next row is.
    n, stride : int64
        Most proposals of a line, and how many numbers a parent takes.
    more : bool
        Whether another step follows.
    min_token, min_logprob : float32
    factor, bound : float64
        What to multiply sums by; what a score must exceed to be among the results.
    offset : int64
        Where the query's eligible keys begin; negative for every key.
    """

    query: Any
    number: Any
    parity: Any
    line: Any
    line_step: Any
    n: Any
    stride: Any
    more: Any
    min_token: Any
    min_logprob: Any
    factor: Any
    bound: Any
    offset: Any


class Proposals(NamedTuple):
    """Log-probabilities of every line; `tokens` and `logprobs` [lines, K], `counts` [lines].

    `known` are the tokens that keys have at each place, ascending, those of place t from
    ``known_starts[t]`` on (for "ppt").
    """

    tokens: Any
    logprobs: Any
    counts: Any
    known: Any
    known_starts: Any


def find_place(proposals: Any, line: np.int64, n: np.int64, token: np.int64) -> np.int64:
    """Place of `token` among the n proposals of a line, or -1."""
    return place_of(proposals.tokens, line, n, token)


def find_dense(proposals: Any, line: np.int64, n: np.int64, token: np.int64) -> np.int64:
    """As `find_place`, where every token has its log-probability."""
    return token if token < n else np.int64(-1)


def token_at(proposals: Any, line: np.int64, place: np.int64) -> np.int64:
    """The token at a place."""
    return np.int64(proposals.tokens[line, place])


def token_dense(proposals: Any, line: np.int64, place: np.int64) -> np.int64:
    """As `token_at`, where every token has its log-probability."""
    return place


def place_of(tokens: Any, line: np.int64, n: np.int64, token: np.int64) -> np.int64:
    """Place of `token` among the first n of a line, or -1."""
    low = np.int64(0)
    high = n
    while low < high:
        middle = (low + high) >> 1
        if np.int64(tokens[line, middle]) < token:
            low = middle + 1
        else:
            high = middle
    if low < n and np.int64(tokens[line, low]) == token:
        return low
    return np.int64(-1)


def offer(
    index: Any,
    child: np.uint64,
    row_sum: np.float32,
    row: np.int64,
    line: np.int64,
    place: np.int64,
    proposals: Proposals,
    allowed: Any,
    step: Step,
    lists: Lists,
) -> None:
    """Append a continuation to the lists that it belongs to; all lanes of a warp together.

    A negative `place`, or DEAD as the child, stands for none.
    """
    key = _EMPTY
    goes_on = False
    is_result = False
    if place >= 0 and child != _DEAD:
        value = np.float32(proposals.logprobs[line, place])
        total = np.float32(row_sum + value)
        if value > step.min_token and total > step.min_logprob:  # also false for NaN
            number = np.uint64(row * step.stride + place)
            key = (order32(total) << np.uint64(32)) | (_LOW - number)
            if step.more and has_children(index, child):
                goes_on = True
                if step.offset >= 0:
                    first, end = extensions(index, child)
                    goes_on = eligible_beyond(index, first, end, allowed, step.offset)
            if np.float64(total) * step.factor > step.bound and is_terminal(index, child):
                is_result = is_eligible(index, child, allowed, step.offset)
    append(goes_on, key, lists, step.parity, 2 * step.query)
    append(is_result, key, lists, step.parity, 2 * step.query + 1)


def expand(
    index: Any,
    rows: Any,
    n_rows: np.int64,
    proposals: Proposals,
    allowed: Any,
    step: Step,
    lists: Lists,
    member: np.int64,
    share: np.int64,
    buffer: Any,
    firsts: Any,
    counts: Any,
) -> None:
    """Offer all continuations of the rows that fall to block `member` of `share`.

    `buffer` is uint64 shared memory of `CAPACITY`, `firsts` and `counts` int64 of `BLOCK`.
    """
    i = np.int64(cuda.threadIdx.x)
    width = np.int64(cuda.blockDim.x)
    # Where there are more blocks than rows, several take parts of the trials of one.
    parts = np.int64(1)
    if n_rows > 0:
        parts = max(parts, min(share // n_rows, (step.n + width - 1) // width))
    tasks = n_rows * parts
    if member < tasks:
        prepare(proposals, step, buffer)
    begin = member
    while begin < tasks:
        # First a task for each thread, then each task for all; in one loop, for there to be one
        # place that offers what was found.
        task = begin + i * share
        row = np.int64(0)
        state = _DEAD
        row_sum = np.float32(0.0)
        child = _DEAD
        place = np.int64(-1)
        line = step.line
        n = step.n
        count = np.int64(0)
        if task < tasks:
            row = task // parts
            state = rows.states[step.parity, step.query, row]
            row_sum = rows.sums[step.parity, step.query, row]
            first, count = child_range(index, state)
            firsts[i] = first
            if count == 1:
                if task == row * parts:
                    token, child = nth_child(index, state, first, np.int64(0))
                    line = step.line + row * step.line_step
                    n = np.int64(proposals.counts[line])
                    place = find_place(proposals, line, n, token)
                count = np.int64(0)
        counts[i] = count
        k = np.int64(-1)
        trial = np.int64(0)
        trials = np.int64(0)
        going = True
        while going:
            offer(index, child, row_sum, row, line, place, proposals, allowed, step, lists)
            trial += parts * width
            if trial >= trials:
                cuda.syncthreads()
                k += 1
                while k < width and begin + k * share < tasks and counts[k] == 0:
                    k += 1
                going = bool(k < width and begin + k * share < tasks)
                if going:
                    task = begin + k * share
                    row = task // parts
                    state = rows.states[step.parity, step.query, row]
                    row_sum = rows.sums[step.parity, step.query, row]
                    line = step.line + row * step.line_step
                    n = np.int64(proposals.counts[line])
                    trials = stage(
                        index, state, firsts[k], counts[k], proposals, line, n, step, buffer
                    )
                    trial = (task - row * parts) * width
            child = _DEAD
            place = np.int64(-1)
            if going and trial + i < trials:
                child, place = attempt(
                    index, state, firsts[k], counts[k], trial + i, proposals, line, n, step, buffer
                )
        cuda.syncthreads()
        begin += width * share


# What a variant is made of; chosen when the kernel is compiled. All threads of a block call the
# first two together.


def prepare(proposals: Proposals, step: Step, buffer: Any) -> None:
    """What to do once a step, in shared memory that `stage` may overwrite."""


def stage(
    index: Any,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    proposals: Proposals,
    line: np.int64,
    n: np.int64,
    step: Step,
    buffer: Any,
) -> np.int64:
    """What to do once a row; how many trials it takes."""
    return np.int64(n)


def attempt(
    index: Any,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    trial: np.int64,
    proposals: Proposals,
    line: np.int64,
    n: np.int64,
    step: Step,
    buffer: Any,
) -> tuple[np.uint64, np.int64]:
    """A child and the place of its proposal; DEAD or a negative place for none."""
    place = trial
    token = np.int64(proposals.tokens[line, place])
    return find_child(index, state, first, count, token), place


def attempt_known(
    index: Any,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    trial: np.int64,
    proposals: Proposals,
    line: np.int64,
    n: np.int64,
    step: Step,
    buffer: Any,
) -> tuple[np.uint64, np.int64]:
    """As `attempt`, for tokens that occur at this place of some key."""
    token = np.int64(proposals.tokens[line, trial])
    low = proposals.known_starts[step.number]
    end = proposals.known_starts[step.number + 1]
    high = end
    while low < high:
        middle = (low + high) >> 1
        if np.int64(proposals.known[middle]) < token:
            low = middle + 1
        else:
            high = middle
    child = _DEAD
    if low < end and np.int64(proposals.known[low]) == token:
        child = find_child(index, state, first, count, token)
    return child, trial


def prepare_hash(proposals: Proposals, step: Step, buffer: Any) -> None:
    """Fill the hash table (linear probing): token above, place + 1 below; 0 is free."""
    if step.n <= _MOST_HASHED:
        slot = np.int64(cuda.threadIdx.x)
        while slot < _SLOTS:
            buffer[slot] = _EMPTY
            slot += np.int64(cuda.blockDim.x)
        cuda.syncthreads()
        place = np.int64(cuda.threadIdx.x)
        while place < step.n:
            token = np.uint64(proposals.tokens[step.line, place])
            entry = (token << np.uint64(32)) | np.uint64(place + 1)
            slot = home(token)
            while cuda.atomic.cas(buffer, slot, _EMPTY, entry) != _EMPTY:
                slot = (slot + 1) & (_SLOTS - 1)
            place += np.int64(cuda.blockDim.x)
        cuda.syncthreads()


def home(token: np.uint64) -> np.int64:
    """Where the hash table has `token`, unless others were there first."""
    return np.int64(((token * _HASH) & _LOW) >> np.uint64(20))


def hashed(buffer: Any, token: np.uint64) -> np.int64:
    """Place of `token` among the proposals in the hash table, or -1."""
    slot = home(token)
    entry = buffer[slot]
    while entry != _EMPTY:
        if entry >> np.uint64(32) == token:
            return np.int64(entry & _LOW) - 1
        slot = (slot + 1) & (_SLOTS - 1)
        entry = buffer[slot]
    return np.int64(-1)


def by_child(count: np.int64, n: np.int64) -> bool:
    """Whether looking up `count` children is cheaper than `n` searches among them."""
    searches = np.int64(1)
    while np.int64(1) << searches < count:
        searches += 1
    return bool(count <= n * searches)


def stage_cheaper(
    index: Any,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    proposals: Proposals,
    line: np.int64,
    n: np.int64,
    step: Step,
    buffer: Any,
) -> np.int64:
    """A trial for each child or for each proposal."""
    return count if by_child(count, n) else n


def attempt_cheaper(
    index: Any,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    trial: np.int64,
    proposals: Proposals,
    line: np.int64,
    n: np.int64,
    step: Step,
    buffer: Any,
) -> tuple[np.uint64, np.int64]:
    """Look a child up among the proposals, or search a proposal among the children."""
    place = trial
    if by_child(count, n):
        token, child = nth_child(index, state, first, trial)
        if n > _MOST_HASHED:
            place = place_of(proposals.tokens, line, n, token)
        else:
            place = hashed(buffer, np.uint64(token))
    else:
        token = np.int64(proposals.tokens[line, place])
        child = find_child(index, state, first, count, token)
    return child, place


def stage_children(
    index: Any,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    proposals: Proposals,
    line: np.int64,
    n: np.int64,
    step: Step,
    buffer: Any,
) -> np.int64:
    """A trial for each child."""
    return count


def attempt_child(
    index: Any,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    trial: np.int64,
    proposals: Proposals,
    line: np.int64,
    n: np.int64,
    step: Step,
    buffer: Any,
) -> tuple[np.uint64, np.int64]:
    """Scan the proposals for a child."""
    token, child = nth_child(index, state, first, trial)
    place = np.int64(0)
    while place < n and np.int64(proposals.tokens[line, place]) != token:
        place += 1
    if place == n:
        place = np.int64(-1)
    return child, place


def stage_labels(
    index: Any,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    proposals: Proposals,
    line: np.int64,
    n: np.int64,
    step: Step,
    buffer: Any,
) -> np.int64:
    """Put the tokens of the first children into shared memory."""
    k = np.int64(cuda.threadIdx.x)
    while k < min(count, np.int64(CAPACITY)):
        token, _ = nth_child(index, state, first, k)
        buffer[k] = np.uint64(token)
        k += np.int64(cuda.blockDim.x)
    cuda.syncthreads()
    return np.int64(n)


def attempt_labels(
    index: Any,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    trial: np.int64,
    proposals: Proposals,
    line: np.int64,
    n: np.int64,
    step: Step,
    buffer: Any,
) -> tuple[np.uint64, np.int64]:
    """Scan the children for a proposal."""
    wanted = np.uint64(proposals.tokens[line, trial])
    k = np.int64(0)
    while k < min(count, np.int64(CAPACITY)) and buffer[k] < wanted:
        k += 1
    child = _DEAD
    place = np.int64(-1)
    token = np.int64(-1)
    while k < count and token < np.int64(wanted):
        token, child = nth_child(index, state, first, k)
        k += 1
    if token == np.int64(wanted):
        place = trial
    return child, place


def stage_pairs(
    index: Any,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    proposals: Proposals,
    line: np.int64,
    n: np.int64,
    step: Step,
    buffer: Any,
) -> np.int64:
    """One thread walks through children and proposals; pairs of the same token into `buffer`.

    There are less than `CAPACITY` proposals. The first place is for the number of pairs.
    """
    if cuda.threadIdx.x == 0:
        pairs = np.int64(0)
        k = np.int64(0)
        place = np.int64(0)
        while k < count and place < n and pairs < CAPACITY - 1:
            token, _ = nth_child(index, state, first, k)
            proposed = np.int64(proposals.tokens[line, place])
            if token == proposed:
                pairs += 1
                buffer[pairs] = (np.uint64(k) << np.uint64(32)) | np.uint64(place)
            if token <= proposed:
                k += 1
            if token >= proposed:
                place += 1
        buffer[0] = np.uint64(pairs)
    cuda.syncthreads()
    return np.int64(buffer[0])


def attempt_pair(
    index: Any,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    trial: np.int64,
    proposals: Proposals,
    line: np.int64,
    n: np.int64,
    step: Step,
    buffer: Any,
) -> tuple[np.uint64, np.int64]:
    """Take a pair that was found."""
    pair = buffer[1 + trial]
    _, child = nth_child(index, state, first, np.int64(pair >> np.uint64(32)))
    return child, np.int64(pair & _LOW)


def attempt_dense(
    index: Any,
    state: np.uint64,
    first: np.int64,
    count: np.int64,
    trial: np.int64,
    proposals: Proposals,
    line: np.int64,
    n: np.int64,
    step: Step,
    buffer: Any,
) -> tuple[np.uint64, np.int64]:
    """Take a child whose log-probability lies at its token."""
    token, child = nth_child(index, state, first, trial)
    return child, token if token < n else np.int64(-1)


#: What `prepare`, `stage` and `attempt` can be.
VARIANTS = {
    "binary": (prepare, stage, attempt),
    "probe": (prepare_hash, stage_cheaper, attempt_cheaper),
    "linear": (prepare, stage_labels, attempt_labels),
    "two_pointer": (prepare, stage_pairs, attempt_pair),
    "per_child": (prepare, stage_children, attempt_child),
    "ppt": (prepare, stage, attempt_known),
}

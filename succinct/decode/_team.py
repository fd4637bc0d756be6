"""Threads that search for one query together: a leader, and helpers that come when they can.

In each step the leader opens the rows for all; whoever is there takes some at a time, the best
first, until none is left. The leader closes the step, waits for those who are still inside, and
goes on alone to the next. A helper that comes late or never is not waited for.

Each member lists what it finds in order of the rows it took, so that the leader can merge the
lists into the order in which one thread would have found everything; what is found does not depend
on who found it. A member that has found enough tells the others what larger sums must be.

Plain Python functions, as those of `_engine`. Those that several threads call at a time, `load`,
`store`, `add` and `raise_to`, are replaced by atomic operations when they are compiled, and `rest`
by a call of the operating system.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from succinct.decode._select import bit_length

# Rows that are taken at a time.
TURN = 8

# The words that members share, each in a cache line of its own: the step that is open, counted
# from 1; the first row that nobody has taken; helpers inside; and `order32` of a sum that so many
# rows reach that a smaller one is of no use.
GATE, NEXT, INSIDE, FLOOR = 0, 8, 16, 24
N_WORDS = 32

# What the gate is between steps, and at the end.
_CLOSED = np.int64(0)
_OVER = np.int64(-1)
# `order32` of -inf, below which are NaNs.
_NO_FLOOR = np.int64(0x007FFFFF)

# Looks at a word before other threads are let onto the processor, and after that. A leader that
# stops without a word, as it never should, is not waited for any longer.
_LOOKS = 20_000
_RESTS = 2_000_000


class Team(NamedTuple):
    """What the members share besides rows, candidates and results.

    Attributes
    ----------
    members : int64
        1 for a thread alone, which uses nothing else of this.
    words : int64 array [N_WORDS]
    task : uint64 array [3]
        Rows of the open step; bound of results; `order32` of what sums must exceed.
    counts : int64 array [members, 2]
        Candidates and results that each found in this step.
    places : int64 array [members]
        Room for merging.
    """

    members: np.int64
    words: NDArray[np.int64]
    task: NDArray[np.uint64]
    counts: NDArray[np.int64]
    places: NDArray[np.int64]


def new_team(members: int) -> Team:
    """A team that has not begun."""
    return Team(
        np.int64(members),
        np.zeros(N_WORDS, np.int64),
        np.zeros(3, np.uint64),
        np.zeros((members, 2), np.int64),
        np.zeros(members, np.int64),
    )


#: One thread.
ALONE = new_team(1)


def load(words: NDArray[np.int64], at: int) -> np.int64:
    """A word."""
    return np.int64(words[at])


def store(words: NDArray[np.int64], at: int, value: np.int64) -> None:
    """Set a word."""
    words[at] = value


def add(words: NDArray[np.int64], at: int, value: np.int64) -> np.int64:
    """Add to a word; what it was before."""
    before = np.int64(words[at])
    words[at] = before + value
    return before


def raise_to(words: NDArray[np.int64], at: int, value: np.int64) -> None:
    """Set a word unless it is larger."""
    words[at] = max(np.int64(words[at]), value)


def rest() -> None:
    """Let other threads have the processor."""


def open_step(team: Team, step: int) -> None:
    """Let helpers in; the task has been written."""
    for member in range(team.members):
        team.counts[member, 0] = 0
        team.counts[member, 1] = 0
    store(team.words, NEXT, np.int64(0))
    store(team.words, FLOOR, _NO_FLOOR)
    store(team.words, GATE, np.int64(step + 1))


def close_step(team: Team) -> None:
    """Let nobody in any more, and wait until all have left."""
    store(team.words, GATE, _CLOSED)
    looks = 0
    while load(team.words, INSIDE) != 0:
        looks += 1
        if looks > _LOOKS:
            rest()


def end_steps(team: Team) -> None:
    """Let helpers go."""
    store(team.words, GATE, _OVER)


def enter_step(team: Team, step: int) -> int:
    """As a helper, enter the next step that opens, `step` or a later one; -1 when all is over."""
    looks = 0
    while looks < _LOOKS + _RESTS:
        gate = load(team.words, GATE)
        if gate == _OVER:
            break
        if gate > step:
            # The leader closes first and looks who is inside then; here it is the other way round.
            add(team.words, INSIDE, np.int64(1))
            if load(team.words, GATE) == gate:
                return int(gate - 1)
            leave_step(team)
        looks += 1
        if looks > _LOOKS:
            rest()
    return -1


def leave_step(team: Team) -> None:
    """As a helper, leave a step; what was found has been written."""
    add(team.words, INSIDE, np.int64(-1))


def rank_bits(team: Team, rows: int) -> np.uint64:
    """Bits for the rank of a row where the keys of what is found hold it, otherwise 0."""
    return np.uint64(bit_length(np.uint64(rows)) if team.members > 1 else 0)


def foremost(parents: NDArray[np.int32], room: int, team: Team) -> np.int64:
    """The member whose next result has the first parent, -1 if there is none.

    Member m has ``counts[m, 1]`` results from ``(m + 1) * room`` on, of which ``places[m]`` have
    been taken.
    """
    first = np.int64(-1)
    least = np.int64(0)
    for member in range(team.members):
        if team.places[member] < team.counts[member, 1]:
            parent = np.int64(parents[(member + 1) * room + team.places[member]])
            if first < 0 or parent < least:
                first = np.int64(member)
                least = parent
    return first

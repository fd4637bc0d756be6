"""How to run launches, and what they report."""

from dataclasses import dataclass
from typing import NamedTuple

SCHEDULES = ("in-order", "reversed", "random")


class SimtError(RuntimeError):
    """A kernel did what it must not do on a device."""


class Counters(NamedTuple):
    """What a launch did. Accesses are counted per thread and only in checked launches.

    Attributes
    ----------
    global_loads, global_stores, global_atomics : int
    shared_loads, shared_stores, shared_atomics : int
    barriers : int
        Of blocks.
    warp_operations : int
        Votes, shuffles, matches and syncs, each once for its warp.
    grid_syncs : int
    """

    global_loads: int = 0
    global_stores: int = 0
    global_atomics: int = 0
    shared_loads: int = 0
    shared_stores: int = 0
    shared_atomics: int = 0
    barriers: int = 0
    warp_operations: int = 0
    grid_syncs: int = 0


@dataclass(frozen=True)
class Options:
    """How to run launches.

    Attributes
    ----------
    schedule : str
        Order in which warps and lanes get their turns: "in-order", "reversed" or "random".
    seed : int
        Of the random schedule.
    memory_check : bool
        Whether an access outside the arrays that the kernel was given is an error.
    race_check : bool
        Whether two accesses that nothing orders are an error, if one of them writes; and a read
        of shared memory that nothing wrote.
    timeout : float
        Seconds after which a checked launch is given up.
    stack : int
        Bytes of each thread's stack.
    """

    schedule: str = "in-order"
    seed: int = 0
    memory_check: bool = True
    race_check: bool = False
    timeout: float = 300.0
    stack: int = 1 << 16

    def __post_init__(self) -> None:
        if self.schedule not in SCHEDULES:
            raise ValueError(
                f"schedule: expected one of {', '.join(SCHEDULES)}, got {self.schedule!r}"
            )
        if not 0 <= self.seed < 2**63:
            raise ValueError(f"seed: expected 0 to 2**63 - 1, got {self.seed}")

    @property
    def check(self) -> int:
        """The number that the runtime knows: nothing, memory, or memory and races."""
        return 2 if self.race_check else int(self.memory_check)

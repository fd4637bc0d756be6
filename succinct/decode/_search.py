"""What beam searches of an index keep from one call to the next: compiled code and room to work."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf, prod
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from succinct import _args
from succinct._threads import in_threads
from succinct.decode import _arrays, _proposals
from succinct.decode._team import ALONE, end_steps, new_team

# Larger rooms are not kept.
_MOST_KEPT = 1 << 26


class Sizes(NamedTuple):
    """What there must be room for: proposals of so many lines, beams, results, their paths, and
    what the members of a team find."""

    lines: int = 1
    proposals: int = 1
    width: int = 1
    results: int = 1
    notes: int = 1
    members: int = 0


class Space:
    """Room for one thread."""

    def __init__(self, engine: Engine, sizes: Sizes) -> None:
        self.sizes = sizes
        n = max(1, sizes.proposals)
        places = 1 + sizes.members
        self.room = _arrays.new_room(
            engine.n_tokens, engine.fan_out, n, sizes.width, sizes.results, places
        )
        self.states = np.empty(sizes.width, np.uint64)
        self.sums = np.empty(sizes.width, np.float32)
        self.found = _arrays.new_found(sizes.results * places)
        self.notes = np.empty(sizes.notes, np.int32), np.empty(sizes.notes, np.uint32)
        self._seen = np.empty(_proposals.seen_places(n), np.uint32)
        self._proposals = _arrays.new_proposals(1, sizes.lines * n)
        self._lines = _arrays.new_proposals(sizes.lines, 0)

    def proposals(self, lines: int, n: int) -> tuple[NDArray[np.uint32], _arrays.Proposals]:
        """Room for the hash table and for what `_proposals.read` writes."""
        tokens = self._proposals.tokens.reshape(-1)[: lines * n].reshape(lines, n)
        logprobs = self._proposals.logprobs.reshape(-1)[: lines * n].reshape(lines, n)
        counts, best = self._lines.counts[:lines], self._lines.best[:lines]
        seen = self._seen[: _proposals.seen_places(n)]
        return seen, _arrays.Proposals(tokens, logprobs, counts, best)


class Engine:
    """Searches one index."""

    def __init__(self, index: Any) -> None:
        self.arrays = index.lane_arrays()
        self.root = np.uint64(index.root)
        self.n_tokens = int(index.vocab_size)
        self.n_keys, self.n_states = int(index.n_keys), int(index.n_states)
        self.fan_out = min(self.n_tokens, self.n_states)
        self._lanes = index.lanes
        self.compiled: dict[str, Callable[..., Any]] = {}
        self._spaces: list[Space] = []

    @contextmanager
    def space(self, sizes: Sizes) -> Iterator[Space]:
        """Room that nobody else uses meanwhile."""
        try:
            space = self._spaces.pop()
        except IndexError:
            space = Space(self, sizes)
        if any(have < need for have, need in zip(space.sizes, sizes, strict=True)):
            space = Space(self, Sizes(*map(max, space.sizes, sizes)))
        yield space
        # After an error the table may hold something, so that such a room is left.
        if _bytes(space.sizes) <= _MOST_KEPT:
            self._spaces.append(space)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call one of the compiled functions, always with arguments of the same types."""
        if name not in self.compiled:
            # Imports numba, which takes longer than most searches.
            from succinct.decode import _compile

            if name == "read":
                function = _compile.compiled_read()
            elif name == "search":
                function = _compile.compiled_search(self._lanes)
            else:
                function = _compile.compiled_steps(self._lanes)[name == "report"]
            self.compiled[name] = _compile.entry_point(function, arguments)
        return self.compiled[name](*arguments)

    def search(
        self,
        members: int,
        space: Space,
        proposals: _arrays.Proposals,
        options: tuple[Any, ...],
        starts: NDArray[np.int64],
        out: _arrays.Output,
    ) -> tuple[int, int]:
        """Search as `_engine.search` does; `options` are those from `widths` to `offsets`.

        If there are several members, for the only query, and `space` has room for them.
        """
        team = new_team(members) if members > 1 else ALONE

        def work(member: int) -> tuple[int, int]:
            if member == 0:
                try:
                    return call(space.room, 0)
                finally:
                    end_steps(team)
            sizes = space.sizes._replace(lines=1, notes=1, members=0)
            with self.space(sizes) as own:
                room = own.room._replace(candidates=space.room.candidates)
                return call(room, member)

        def call(room: _arrays.Room, member: int) -> tuple[int, int]:
            found: tuple[int, int] = self.call(
                "search",
                self.arrays,
                self.n_tokens,
                self.root,
                proposals,
                *options,
                space.states,
                space.sums,
                room,
                space.found,
                _arrays.Notes(starts, *space.notes),
                out,
                team,
                member,
            )
            return found

        if members == 1:
            return call(space.room, 0)
        return in_threads(work, range(members), members)[0]

    def read(
        self,
        space: Space,
        ids: NDArray[Any],
        values: NDArray[np.float32],
        min_token: np.float32,
        duplicates: str,
        first: Sequence[int],
        advice: str = "",
    ) -> _arrays.Proposals:
        """Check proposals [..., K], whose first line stands at `first`; ValueError names places.

        `advice` ends the message of an error about duplicates.
        """
        shape = ids.shape
        lines = prod(shape[:-1])
        seen, proposals = space.proposals(lines, shape[-1])
        # An unsigned token of more than 63 bits becomes a negative one, which is no better.
        fault, line, k = self.call(
            "read",
            np.ascontiguousarray(ids, np.int64).reshape(lines, shape[-1]),
            np.ascontiguousarray(values).reshape(lines, shape[-1]),
            min_token,
            duplicates == "first",
            seen,
            proposals,
        )
        if fault != _proposals.NOTHING:
            at = tuple(map(int, np.unravel_index(line, shape[:-1])))
            row = [a + b for a, b in zip(at, first, strict=True)]
            token = ids[at][k]
            if fault == _proposals.IS_NAN:
                raise ValueError(f"logprobs{[*row, k]} is nan")
            if fault == _proposals.OUT_OF_RANGE:
                raise ValueError(
                    f"token_ids{[*row, k]}: expected 0 to {_args.MAX_TOKEN}, got {token}"
                )
            earlier = int(np.argmax((ids[at] == token) & (values[at] != -inf)))
            raise ValueError(f"token_ids{row}: token {token} appears at {earlier} and {k}{advice}")
        return proposals


def _bytes(sizes: Sizes) -> int:
    beams = 64 * (1 + sizes.members) * (sizes.width + sizes.results)
    return 8 * sizes.lines * sizes.proposals + beams + 8 * sizes.notes


_engines: WeakKeyDictionary[Any, Engine] = WeakKeyDictionary()


def engine_of(index: Any) -> Engine:
    """The engine of an index, the same for all its searches."""
    engine = _engines.get(index)
    if engine is None:
        engine = _engines.setdefault(index, Engine(index))
    return engine

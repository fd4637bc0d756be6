"""Beam search step by step, as the contract reads."""

from collections.abc import Sequence
from copy import deepcopy
from math import inf, isnan
from typing import Any

from succinct.reference.beam import Beam, Result, Searchable, float32, length_factor
from succinct.reference.eligibility import Bits, for_each_request
from succinct.reference.trie import DEAD


class BeamDecoder:
    """Up to `beam_width` live rows for each request, which `step` extends by a token each.

    Examples
    --------
    >>> from succinct.reference import Trie
    >>> decoder = BeamDecoder(Trie([(1, 2), (1, 3), (2,)]), beam_width=2)
    >>> decoder.step(token_ids=[[1, 2]], logprobs=[[-1.0, -2.0]])
    ([0], [1])
    >>> [result.sequence for result in decoder.finish()[0]]
    [(2,)]
    """

    def __init__(
        self,
        index: Searchable,
        batch: int = 1,
        beam_width: int | Sequence[int] = 1,
        *,
        max_results: int | None = None,
        length_penalty: float = 0.0,
        min_token_logprob: float = -inf,
        min_logprob: float = -inf,
        allowed: Bits | Sequence[Bits | None] | None = None,
    ) -> None:
        self.index = index
        self.widths = beam_width
        widest = beam_width if isinstance(beam_width, int) else max(beam_width, default=1)
        self.max_results = widest if max_results is None else max_results
        self.length_penalty = length_penalty
        self.limits = float32(min_token_logprob), float32(min_logprob)
        self.eligible = for_each_request(index, allowed, batch)
        self.n_steps = 0
        root = Beam(0.0, 0, (), index.root)
        self.rows = [[root] if () in eligible.prefixes else [] for eligible in self.eligible]
        self.found: list[list[Any]] = [[] for _ in self.eligible]

    @property
    def states(self) -> list[Any]:
        return [row.state for rows in self.rows for row in rows]

    @property
    def offsets(self) -> list[int]:
        offsets = [0]
        for rows in self.rows:
            offsets.append(offsets[-1] + len(rows))
        return offsets

    def step(
        self,
        logprobs: Sequence[Sequence[float]],
        *,
        token_ids: Sequence[Sequence[int]] | None = None,
    ) -> tuple[list[int], list[int]]:
        """Parents and tokens of the new rows; without `token_ids` every token has its column."""
        if len(logprobs) != self.offsets[-1]:
            raise ValueError(f"expected {self.offsets[-1]} rows, got {len(logprobs)}")
        width = self.widths if isinstance(self.widths, int) else self.widths[self.n_steps]
        factor = length_factor(self.n_steps + 1, self.length_penalty)
        parents, tokens = [], []
        for request, origin in enumerate(self.offsets[:-1]):
            eligible = self.eligible[request]
            grown = []
            for rank, row in enumerate(self.rows[request]):
                line = logprobs[origin + rank]
                ids = range(len(line)) if token_ids is None else token_ids[origin + rank]
                for token, value in zip(ids, map(float32, line), strict=True):
                    total = float32(row.logprob + value)
                    if isnan(value) or not (value > self.limits[0] and total > self.limits[1]):
                        continue
                    state = self.index.advance(row.state, token)
                    if state == DEAD:
                        continue
                    child = Beam(total, rank, (*row.sequence, token), state)
                    if self.index.is_terminal(state) and child.sequence in eligible.keys:
                        result = Result(total * factor + 0.0, child.sequence, total)
                        place = -result.score, self.n_steps, rank, token
                        self.found[request].append((*place, result))
                    if self.index.has_children(state) and child.sequence in eligible.prefixes:
                        grown.append(child)
            grown.sort(key=lambda beam: (-beam.logprob, beam.parent, beam.sequence[-1]))
            self.rows[request] = grown[:width]
            parents += [origin + row.parent for row in self.rows[request]]
            tokens += [row.sequence[-1] for row in self.rows[request]]
        self.n_steps += 1
        return parents, tokens

    def finish(self) -> list[list[Result]]:
        """The keys found so far, of each request, best first."""
        return [[entry[-1] for entry in sorted(found)[: self.max_results]] for found in self.found]

    def state_dict(self) -> dict[str, Any]:
        return deepcopy({name: getattr(self, name) for name in ("n_steps", "rows", "found")})

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in deepcopy(state).items():
            setattr(self, name, value)

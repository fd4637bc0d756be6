"""The index protocol over a set of tuples.

A state is the number of a prefix when all prefixes are listed shorter first and
lexicographically among one length: level order, the order that keys are numbered in too.
Arguments are one integer or a list of them; a list gives a list.
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import index as as_int
from typing import Any

from succinct.reference.bits import check_position

DEAD = 2**64 - 1  # the state of no prefix
MAX_TOKEN = 2**32 - 2

Key = tuple[int, ...]


def level_order(sequences: Iterable[Key]) -> list[Key]:
    """Sort shorter sequences first, lexicographically among those of one length."""
    return sorted(sequences, key=lambda sequence: (len(sequence), sequence))


def as_sequence(tokens: Iterable[int]) -> Key:
    """Return the tokens as a tuple of ints, each checked to lie in [0, 2**32 - 2]."""
    sequence = tuple(as_int(token) for token in tokens)
    for place, token in enumerate(sequence):
        if not 0 <= token <= MAX_TOKEN:
            raise ValueError(f"token {place}: expected 0..{MAX_TOKEN}, got {token}")
    return sequence


def is_many(argument: Any) -> bool:
    return isinstance(argument, (list, tuple, range))


class Trie:
    """All prefixes of a catalog of token sequences.

    Parameters
    ----------
    sequences
        The catalog, in any order; repetitions count once.
    names
        The item name of each sequence, for `items`.

    Examples
    --------
    >>> trie = Trie([(1, 2, 3), (1, 2, 4), (2,)])
    >>> trie.children(trie.walk((1, 2)))
    ([3, 4], [4, 5])
    >>> [trie.key(number) for number in range(trie.n_keys)]
    [(2,), (1, 2, 3), (1, 2, 4)]
    """

    root = 0

    def __init__(
        self, sequences: Iterable[Iterable[int]], names: Sequence[str] | None = None
    ) -> None:
        rows = [as_sequence(sequence) for sequence in sequences]
        if not rows:
            raise ValueError("an index needs at least one sequence, got none")
        if () in rows:
            raise ValueError(f"sequence {rows.index(())}: expected at least one token, got none")
        self.keys = level_order(set(rows))
        self.number = {key: number for number, key in enumerate(self.keys)}
        self.prefix = level_order({key[:n] for key in self.keys for n in range(len(key) + 1)})
        self.state = {prefix: state for state, prefix in enumerate(self.prefix)}
        self.tokens: dict[Key, list[int]] = {prefix: [] for prefix in self.prefix}
        for prefix in self.prefix[1:]:  # in level order, so the tokens of each come ascending
            self.tokens[prefix[:-1]].append(prefix[-1])
        self.names: dict[Key, list[str]] = {key: [] for key in self.keys}
        for row, name in zip(rows, names or [], strict=False):
            self.names[row].append(name)

    # Sizes

    @property
    def n_keys(self) -> int:
        return len(self.keys)

    @property
    def n_states(self) -> int:
        """Distinct prefixes, the empty one included."""
        return len(self.prefix)

    @property
    def max_length(self) -> int:
        return len(self.keys[-1])

    @property
    def vocab_size(self) -> int:
        """The largest token + 1."""
        return 1 + max(max(key) for key in self.keys)

    def token_range(self, step: int) -> tuple[int, int]:
        """Bounds low and high such that every token at place `step` lies in [low, high)."""
        check_position(as_int(step), self.max_length, "step")
        used = [key[step] for key in self.keys if len(key) > step]
        return min(used), max(used) + 1

    def density(self, step: int) -> float:
        """Continuations at `step` / (prefixes of that length x width of `token_range`)."""
        low, high = self.token_range(step)
        prefixes = sum(len(prefix) == step for prefix in self.prefix)
        continuations = sum(len(prefix) == step + 1 for prefix in self.prefix)
        return continuations / (prefixes * (high - low))

    # From prefixes to states and on

    def walk(self, prefix: Iterable[int]) -> int:
        """The state of a prefix; DEAD if no key starts so."""
        return self.state.get(as_sequence(prefix), DEAD)

    def advance(self, states: Any, tokens: Any) -> Any:
        """The state one token further; DEAD if there is none."""
        if is_many(states):
            return [self.advance(s, t) for s, t in zip(states, tokens, strict=True)]
        (token,) = as_sequence([tokens])
        prefix = self._prefix_of(states)
        return DEAD if prefix is None else self.state.get((*prefix, token), DEAD)

    def children(self, states: Any) -> Any:
        """Of one state: tokens ascending and the states they lead to.

        Of a list of states: offsets, tokens, states; those of the i-th state are at
        offsets[i] .. offsets[i + 1].
        """
        if not is_many(states):
            prefix = self._prefix_of(states)
            tokens = [] if prefix is None else self.tokens[prefix]
            return list(tokens), [self.state[(*(prefix or ()), token)] for token in tokens]
        offsets, all_tokens, all_states = [0], [], []
        for state in states:
            tokens, next_states = self.children(state)
            all_tokens += tokens
            all_states += next_states
            offsets.append(len(all_tokens))
        return offsets, all_tokens, all_states

    def has_children(self, state: int) -> bool:
        return bool(self.children(state)[0])

    def is_terminal(self, states: Any) -> Any:
        """Whether the prefix of a state is a key."""
        if is_many(states):
            return [self.is_terminal(state) for state in states]
        return self._prefix_of(states) in self.number

    def allowed_mask(self, states: Any) -> Any:
        """A row per state of signed 32-bit words: token t is bit t % 32 of word t // 32."""
        if is_many(states):
            return [self.allowed_mask(state) for state in states]
        words = [0] * -(-self.vocab_size // 32)
        for token in self.children(states)[0]:
            words[token // 32] |= 1 << token % 32
        return [word - 2**32 if word >= 2**31 else word for word in words]

    def _prefix_of(self, state: int) -> Key | None:
        state = as_int(state)
        if state == DEAD:
            return None
        if not 0 <= state < self.n_states:
            raise ValueError(f"expected a state in [0, {self.n_states}) or DEAD, got {state}")
        return self.prefix[state]

    # Keys and their numbers

    def __contains__(self, sequence: Iterable[int]) -> bool:
        return tuple(sequence) in self.number

    def key_id(self, sequence: Iterable[int]) -> int:
        """The number of a key; KeyError if it is none."""
        return self.number[as_sequence(sequence)]

    def key_ids(self, sequences: Iterable[Iterable[int]]) -> list[int]:
        """The number of each sequence, -1 where it is not a key."""
        return [self.number.get(as_sequence(sequence), -1) for sequence in sequences]

    def key(self, number: int) -> Key:
        return self.keys[check_position(as_int(number), self.n_keys, "key number")]

    def from_table_ids(self, numbers: Any) -> Any:
        """Key numbers of a KeyTable in those of this index: here they are the same."""
        return numbers

    def items(self, number: int) -> list[str]:
        """The names of the items that share a key, in the order they were given."""
        return self.names[self.key(number)]

    def prefixes(self, sequence: Iterable[int]) -> Iterator[Key]:
        """The keys that `sequence` starts with, shortest first."""
        whole = as_sequence(sequence)
        return iter([whole[:n] for n in range(len(whole) + 1) if whole[:n] in self.number])

    def completions(self, prefix: Iterable[int]) -> Iterator[Key]:
        """The keys that start with `prefix`, itself included, in lexicographic order."""
        start = as_sequence(prefix)
        return iter(sorted(key for key in self.keys if key[: len(start)] == start))

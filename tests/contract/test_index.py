"""The index protocol, held against sets of tuples."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.implementations import (
    DEAD,
    each_index,
    each_level_ordered,
    each_library_index,
)
from tests.strategies import (
    LABEL_BORDER,
    MAX_TOKEN,
    catalogs,
    long_chains,
    narrow_catalogs,
    sequences,
)

probes = st.lists(sequences(st.sampled_from([0, 1, 2, 5, 7, *LABEL_BORDER, MAX_TOKEN])), max_size=8)


def prefixes_of(catalog):
    """All prefixes, the empty one first, in level order."""
    found = {key[:n] for key in catalog for n in range(len(key) + 1)}
    return sorted(found, key=lambda prefix: (len(prefix), prefix))


def continuations_of(catalog):
    """Prefix -> tokens that may follow it, ascending."""
    following = {prefix: [] for prefix in prefixes_of(catalog)}
    for prefix in prefixes_of(catalog)[1:]:
        following[prefix[:-1]].append(prefix[-1])
    return following


def in_level_order(keys):
    return sorted(set(keys), key=lambda key: (len(key), key))


# Sizes


@each_index
@given(catalog=catalogs)
def test_sizes(build, catalog):
    index = build(catalog)
    assert index.n_keys == len(set(catalog))
    assert index.n_states == len(prefixes_of(catalog))
    assert index.max_length == max(map(len, catalog))
    assert index.vocab_size == 1 + max(map(max, catalog))


@each_index
@given(catalog=catalogs)
def test_density_and_token_range(build, catalog):
    index = build(catalog)
    following = continuations_of(catalog)
    for step in range(index.max_length):
        level = [tokens for prefix, tokens in following.items() if len(prefix) == step]
        used = {token for tokens in level for token in tokens}
        low, high = index.token_range(step)
        assert (low, high) == (min(used), max(used) + 1)
        expected = sum(map(len, level)) / (len(level) * (high - low))
        assert math.isclose(index.density(step), expected, rel_tol=1e-12)
    for step in (-1, index.max_length):
        with pytest.raises(IndexError):
            index.token_range(step)
        with pytest.raises(IndexError):
            index.density(step)


# States


@each_index
@given(catalog=catalogs)
def test_every_prefix_has_a_state_of_its_own(build, catalog):
    index = build(catalog)
    prefixes = prefixes_of(catalog)
    states = {prefix: index.walk(prefix) for prefix in prefixes}
    assert states[()] == index.root
    assert len(set(states.values())) == len(prefixes)
    assert DEAD not in states.values()
    # One step is as good as a walk, one by one and all at once.
    before = [states[prefix[:-1]] for prefix in prefixes[1:]]
    tokens = [prefix[-1] for prefix in prefixes[1:]]
    after = [states[prefix] for prefix in prefixes[1:]]
    assert index.advance(before, tokens) == after
    assert [index.advance(s, t) for s, t in zip(before, tokens, strict=True)] == after


@each_index
@given(catalog=catalogs, others=probes)
def test_unknown_prefixes_are_dead(build, catalog, others):
    index = build(catalog)
    prefixes = set(prefixes_of(catalog))
    for sequence in others:
        for n in range(len(sequence) + 1):
            known = sequence[:n] in prefixes
            assert (index.walk(sequence[:n]) != DEAD) == known
    known = [index.walk(prefix) for prefix in prefixes]
    for token in (0, 1, 3, 65535, 65536, MAX_TOKEN):
        expected = [index.walk((*p, token)) if (*p, token) in prefixes else DEAD for p in prefixes]
        assert index.advance(known, [token] * len(known)) == expected


@each_index
@given(catalog=catalogs)
def test_children(build, catalog):
    index = build(catalog)
    following = continuations_of(catalog)
    prefixes = list(following)
    states = [index.walk(prefix) for prefix in prefixes]
    expected_states = {p: [index.walk((*p, t)) for t in following[p]] for p in prefixes}
    for prefix, state in zip(prefixes, states, strict=True):
        assert index.children(state) == (following[prefix], expected_states[prefix])
    # Any order, repetitions and dead states among them.
    asked = [DEAD, *states[::-1], states[0], DEAD]
    of_asked = [None, *prefixes[::-1], prefixes[0], None]
    offsets, tokens, next_states = index.children(asked)
    assert len(offsets) == len(asked) + 1
    assert offsets[0] == 0
    for i, prefix in enumerate(of_asked):
        mine = slice(offsets[i], offsets[i + 1])
        assert tokens[mine] == following.get(prefix, [])
        assert next_states[mine] == expected_states.get(prefix, [])
    assert len(tokens) == len(next_states) == offsets[-1]


@each_index
@given(catalog=catalogs)
def test_is_terminal(build, catalog):
    index = build(catalog)
    prefixes = prefixes_of(catalog)
    states = [index.walk(prefix) for prefix in prefixes]
    expected = [prefix in set(catalog) for prefix in prefixes]
    assert index.is_terminal(states) == expected
    assert [index.is_terminal(state) for state in states] == expected


@each_index
@given(catalog=narrow_catalogs)
def test_allowed_mask_has_a_bit_for_every_continuation(build, catalog):
    index = build(catalog)
    following = list(continuations_of(catalog).items())[:20]
    mask = index.allowed_mask([*(index.walk(prefix) for prefix, _ in following), DEAD])
    assert len(mask) == len(following) + 1
    for (_, tokens), row in zip(following, mask[:-1], strict=True):
        assert len(row) == -(-index.vocab_size // 32)
        assert all(-(2**31) <= word < 2**31 for word in row)
        allowed = [32 * i + b for i, word in enumerate(row) if word for b in range(32)
                   if word >> b & 1]  # fmt: skip
        assert allowed == tokens
    assert not any(mask[-1])


@each_index
@given(catalog=catalogs)
def test_nothing_follows_the_dead_state(build, catalog):
    index = build(catalog)
    assert index.advance(DEAD, 0) == DEAD
    assert index.advance([DEAD, DEAD], [0, MAX_TOKEN]) == [DEAD, DEAD]
    assert index.children(DEAD) == ([], [])
    assert index.children([DEAD]) == ([0, 0], [], [])
    assert index.is_terminal(DEAD) is False
    assert index.is_terminal([DEAD]) == [False]


@each_index
def test_no_questions_no_answers(build):
    index = build([(1, 2)])
    assert index.advance([], []) == []
    assert index.children([]) == ([0], [], [])
    assert index.is_terminal([]) == []
    assert index.allowed_mask([]) == []
    assert index.key_ids([]) == []


# Keys


@each_index
@given(catalog=catalogs)
def test_key_numbers_are_a_bijection(build, catalog):
    index = build(catalog)
    keys = sorted(set(catalog))
    numbers = index.key_ids(keys)
    assert sorted(numbers) == list(range(len(keys)))
    assert [index.key_id(key) for key in keys] == numbers
    assert [index.key(number) for number in numbers] == keys
    assert all(key in index for key in keys)


@each_index
@given(catalog=catalogs)
def test_table_numbers_are_level_order(build, catalog):
    index = build(catalog)
    keys = in_level_order(catalog)
    numbers = index.from_table_ids(list(range(len(keys))))
    assert [index.key(number) for number in numbers] == keys


@each_level_ordered
@given(catalog=catalogs)
def test_key_numbers_are_ranks_in_level_order(build, catalog):
    index = build(catalog)
    assert [index.key(i) for i in range(index.n_keys)] == in_level_order(catalog)
    # So those below a prefix are one range for each length.
    for prefix in prefixes_of(catalog):
        below = [key for key in set(catalog) if key[: len(prefix)] == prefix]
        for length in {len(key) for key in below}:
            numbers = sorted(index.key_id(key) for key in below if len(key) == length)
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


@each_index
@given(catalog=catalogs, others=probes)
def test_what_is_no_key(build, catalog, others):
    index = build(catalog)
    keys = set(catalog)
    others += [p for p in prefixes_of(catalog) if p] + [(*key, 0) for key in catalog]
    expected = [sequence in keys for sequence in others]
    assert [number >= 0 for number in index.key_ids(others)] == expected
    assert [sequence in index for sequence in others] == expected
    for sequence in set(others) - keys:
        assert index.key_ids([sequence]) == [-1]
        with pytest.raises(KeyError):
            index.key_id(sequence)


@each_index
@given(catalog=catalogs, data=st.data())
def test_prefixes_and_completions(build, catalog, data):
    index = build(catalog)
    keys = sorted(set(catalog))
    for start in data.draw(st.lists(st.sampled_from(prefixes_of(catalog)), max_size=6)):
        expected = [key for key in keys if key[: len(start)] == start]
        assert list(index.completions(start)) == expected
        for sequence in (start, (*start, 0, 1)):
            expected = [sequence[:n] for n in range(len(sequence) + 1) if sequence[:n] in keys]
            assert list(index.prefixes(sequence)) == expected
    assert list(index.completions(())) == keys
    assert list(index.completions((3, 3, 3, 3))) == [k for k in keys if k[:4] == (3,) * 4]


@each_index
def test_the_empty_sequence_is_no_key(build):
    index = build([(1, 2), (1,)])
    assert () not in index
    assert index.key_ids([(), (1,)])[0] == -1
    with pytest.raises(KeyError):
        index.key_id(())
    assert list(index.prefixes(())) == []
    assert index.is_terminal(index.root) is False


@each_index
@settings(max_examples=5)
@given(catalog=long_chains())
def test_long_chains(build, catalog):
    index = build(catalog)
    keys = sorted(set(catalog))
    assert index.max_length == max(map(len, keys))
    assert list(index.completions(())) == keys
    assert [index.key(number) for number in index.key_ids(keys)] == keys
    assert index.key_ids([key[:-1] for key in keys]) == [
        index.key_id(key[:-1]) if key[:-1] in keys else -1 for key in keys
    ]
    for key in keys:
        states = [index.root]
        for token in key:
            states.append(index.advance(states[-1], token))
        assert DEAD not in states
        assert len(set(states)) == len(key) + 1
        assert index.is_terminal(states[-1])


# What bad input gets


@each_index
@pytest.mark.parametrize(
    "catalog", [[], [()], [(1,), ()], [(1, -1)], [(2**32 - 1,)], [(1,), (2**64,)]]
)
def test_catalogs_that_are_refused(build, catalog):
    with pytest.raises(ValueError):
        build(catalog)


@each_index
@pytest.mark.parametrize("catalog", [[(1.5,)], [("a",)], [(1, None)]])
def test_tokens_that_are_no_integers(build, catalog):
    with pytest.raises((TypeError, ValueError)):
        build(catalog)


@each_index
@pytest.mark.parametrize("token", [-1, 2**32 - 1])
def test_tokens_out_of_range(build, token):
    index = build([(1, 2), (1, 3, 4)])
    assert (1, token) not in index
    for ask in (
        lambda: index.walk((1, token)),
        lambda: index.advance(index.root, token),
        lambda: index.advance([index.root, index.root], [1, token]),
        lambda: index.key_id((1, token)),
        lambda: index.key_ids([(1, 2), (1, token)]),
        lambda: list(index.prefixes((1, token))),
        lambda: list(index.completions((token,))),
    ):
        with pytest.raises(ValueError):
            ask()


@each_index
@given(catalog=catalogs)
def test_states_of_no_prefix_are_refused(build, catalog):
    index = build(catalog)
    valid = {index.walk(prefix) for prefix in prefixes_of(catalog)}
    for state in (-1, max(valid) + 1, 2**63, DEAD - 1):
        assume(state not in valid)
        for ask in (index.children, index.is_terminal, lambda s: index.advance(s, 0)):
            with pytest.raises(ValueError):
                ask(state)
        for ask in (index.children, index.is_terminal, index.allowed_mask):
            # Many at once; the masks of a large vocabulary would be too large to ask for.
            if ask != index.allowed_mask or index.vocab_size < 2**20:
                with pytest.raises(ValueError):
                    ask([state])
        with pytest.raises(ValueError):
            index.advance([state], [0])


@each_index
def test_key_numbers_out_of_range(build):
    index = build([(1,), (2,)])
    for number in (-1, 2, 2**40):
        with pytest.raises(IndexError):
            index.key(number)


@each_index
@pytest.mark.parametrize("wrong", [0.5, "1", None])
def test_wrong_types(build, wrong):
    index = build([(1,), (2,)])
    for ask in (index.key, index.is_terminal, index.children, lambda s: index.advance(s, 1)):
        with pytest.raises(TypeError):
            ask(wrong)
    with pytest.raises(TypeError):
        index.advance(index.root, wrong)


# Arrays in and out


@each_library_index
@given(catalog=narrow_catalogs)
def test_array_types(build, catalog):
    index = build(catalog).raw
    state = index.walk(catalog[0][:1])
    assert type(state) is np.uint64
    assert type(index.root) is np.uint64
    assert type(index.walk((3, 3, 3, 3))) is np.uint64
    assert type(index.advance(index.root, catalog[0][0])) is np.uint64
    assert index.advance(index.root, catalog[0][0]) == state
    assert type(index.is_terminal(state)) is bool
    for dtype in (np.uint64, np.int64) if state >= 2**32 else (np.uint64, np.int64, np.uint32):
        states = np.array([state, index.root, state]).astype(dtype)
        after = index.advance(states, np.zeros(3, dtype=np.uint16))
        assert (after.dtype, after.shape) == (np.uint64, (3,))
        terminal = index.is_terminal(states)
        assert (terminal.dtype, terminal.shape) == (np.bool_, (3,))
        offsets, tokens, next_states = index.children(states)
        assert (offsets.dtype, tokens.dtype, next_states.dtype) == (
            np.int64,
            np.uint32,
            np.uint64,
        )
        assert offsets.shape == (4,)
        mask = index.allowed_mask(states)
        assert (mask.dtype, mask.shape) == (np.int32, (3, -(-index.vocab_size // 32)))
    tokens, next_states = index.children(state)
    assert (tokens.dtype, next_states.dtype) == (np.uint32, np.uint64)
    assert index.key_ids(catalog).dtype == np.int64
    assert type(index.key_id(catalog[0])) is int
    assert all(type(token) is int for token in index.key(0))
    assert all(type(token) is int for token in next(iter(index.completions(()))))


@each_library_index
def test_key_ids_of_rows(build):
    index = build([(1, 2), (3, 4), (5,)]).raw
    for dtype in (np.uint8, np.int32, np.int64, np.uint64):
        rows = np.array([[3, 4], [1, 2], [5, 5]], dtype=dtype)
        assert index.key_ids(rows).tolist() == [index.key_id((3, 4)), index.key_id((1, 2)), -1]
        assert index.key_ids(rows[:, :1]).tolist() == [-1, -1, index.key_id((5,))]
        assert index.key_ids(np.asfortranarray(rows)[::2]).tolist() == [index.key_id((3, 4)), -1]
    with pytest.raises(ValueError):
        index.key_ids(np.array([[1, 2], [-1, 2]]))
    with pytest.raises((TypeError, ValueError)):
        index.key_ids(np.array([[1.5, 2.0]]))


@each_library_index
@given(catalog=catalogs)
def test_bytes_are_counted(build, catalog):
    index = build(catalog).raw
    assert index.nbytes > 0
    assert math.isclose(index.bits_per_key, 8 * index.nbytes / index.n_keys)


@each_library_index
def test_states_may_not_be_floats(build):
    index = build([(1, 2)]).raw
    with pytest.raises((TypeError, ValueError)):
        index.is_terminal(np.array([0.0]))
    with pytest.raises((TypeError, ValueError)):
        index.advance(np.array([0]), np.array([1.0]))
    with pytest.raises(ValueError):
        index.advance(np.array([0, 0]), np.array([1, 1, 1]))

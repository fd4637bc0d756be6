"""The scalar navigation of the lanes modules, run uncompiled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from succinct.bits import lanes as bit_lanes
from succinct.trie import lanes
from tests import strategies
from tests.implementations import build_steps
from tests.lanes_encoder import EncodedTrie, encode_bits, encode_packed

DEAD = np.uint64(2**64 - 1)


@given(strategies.bit_lists(), st.sampled_from([0, 3, 9]))
def test_bits(bits, shift):
    encoded = encode_bits(bits, shift)
    n = len(bits)
    positions = sorted({*range(0, n + 1, 1 + n // 60), *range(max(0, n - 3), n + 1)})
    for i in positions:
        assert bit_lanes.rank1(encoded, i) == sum(bits[:i])
        if i < n:
            assert bit_lanes.get_bit(encoded, i) == bits[i]
        for limit in (i, min(i + 70, n), n):
            ones = (j for j in range(i, limit) if bits[j])
            zeros = (j for j in range(i, limit) if not bits[j])
            assert bit_lanes.next_one(encoded, i, limit) == next(ones, limit)
            assert bit_lanes.next_zero(encoded, i, limit) == next(zeros, limit)
    ones = [i for i in range(n) if bits[i]]
    zeros = [i for i in range(n) if not bits[i]]
    for select, places in ((bit_lanes.select1, ones), (bit_lanes.select0, zeros)):
        for k in {*range(0, len(places), 1 + len(places) // 60), *range(len(places))[-2:]}:
            assert select(encoded, k) == places[k]


@given(strategies.packed_values())
def test_packed(packed):
    values, width = packed
    encoded = encode_packed(values, width)
    assert [bit_lanes.packed_get(encoded, i) for i in range(len(values))] == values


@given(st.integers(1, 2**64 - 1))
def test_words(word):
    ones = [i for i in range(64) if word >> i & 1]
    assert bit_lanes.popcount(np.uint64(word)) == len(ones)
    assert bit_lanes.lowest_one(np.uint64(word)) == ones[0]
    assert [bit_lanes.select_in_word(np.uint64(word), k) for k in range(len(ones))] == ones


@given(strategies.catalogs, st.booleans(), st.sampled_from([0, 0, 65530]))
def test_navigation(catalog, tails, tail_start):
    trie = EncodedTrie(catalog, tails, tail_start)
    arrays = trie.arrays
    keys = set(catalog)
    below = {}
    for key in keys:
        for i, token in enumerate(key):
            below.setdefault(key[:i], set()).add(token)
    prefixes = {key[:i] for key in keys for i in range(len(key) + 1)}
    states = {}
    for prefix in sorted(prefixes, key=len):
        state = trie.walk(prefix)
        states[prefix] = int(state)
        tokens = sorted(below.get(prefix, ()))
        first, count = lanes.child_range(arrays, state)
        assert count == len(tokens)
        children = [lanes.nth_child(arrays, state, first, k) for k in range(count)]
        assert [token for token, _ in children] == tokens
        for token, child in children:
            assert lanes.find_child(arrays, state, first, count, token) == child
            assert lanes.parent(arrays, child) == state
        for token in (0, 65535, 65536, strategies.MAX_TOKEN):
            if token not in tokens:
                assert lanes.find_child(arrays, state, first, count, np.int64(token)) == DEAD
        assert lanes.has_children(arrays, state) == bool(tokens)
        assert lanes.is_terminal(arrays, state) == (prefix in keys)
        assert (lanes.key_number(arrays, state) >= 0) == (prefix in keys)
    assert len(set(states.values())) == len(prefixes)
    numbers = {int(lanes.key_number(arrays, trie.walk(key))) for key in keys}
    assert numbers == set(range(len(keys)))
    if not tails:
        in_order = sorted(keys, key=lambda key: (len(key), key))
        assert trie.key_ids(in_order) == list(range(len(keys)))


@pytest.mark.parametrize("tails", [False, True])
def test_dead_state(tails):
    trie = EncodedTrie([(1, 2, 3), (4,)], tails).arrays
    assert lanes.child_range(trie, DEAD) == (0, 0)
    assert not lanes.has_children(trie, DEAD)
    assert not lanes.is_terminal(trie, DEAD)
    assert lanes.key_number(trie, DEAD) == -1
    assert lanes.parent(trie, DEAD) == DEAD
    assert lanes.parent(trie, np.uint64(0)) == DEAD


def check_keys_beyond(lanes, arrays, catalog, walk):
    """The ranges of keys beyond a state hold those of all longer keys, and no other's."""
    keys = set(catalog)
    for prefix in {key[:i] for key in keys for i in range(len(key) + 1)}:
        numbers = []
        first, end = lanes.extensions(arrays, walk(prefix))
        while first < end:
            numbers += range(*lanes.key_range(arrays, first, end))
            first, end = lanes.descend(arrays, first, end)
        beyond = [k for k in keys if len(k) > len(prefix) and k[: len(prefix)] == prefix]
        expected = [lanes.key_number(arrays, walk(key)) for key in beyond]
        assert sorted(numbers) == sorted(expected)
    first, end = lanes.extensions(arrays, DEAD)
    assert first >= end


@given(strategies.catalogs, st.booleans())
def test_keys_beyond_a_state(catalog, tails):
    trie = EncodedTrie(catalog, tails)
    check_keys_beyond(lanes, trie.arrays, catalog, trie.walk)


@given(
    strategies.catalogs,
    st.sampled_from(["small", "bitmap", "joint", "packed", "sparse", "rice", "huffman"]),
)
def test_keys_beyond_a_state_of_steps(catalog, layout):
    index = build_steps(catalog, layout).raw
    check_keys_beyond(index.lanes, index.lane_arrays(), catalog, index.walk)


@given(strategies.catalogs_over(strategies.LARGE), st.randoms())
def test_hostile_contents_stay_inside_the_arrays(catalog, random):
    """Whatever slots, labels, links and tail hold; plain Python would raise IndexError."""
    trie = EncodedTrie(catalog, tails=True)
    arrays = trie.arrays

    def scrambled(array):
        return np.array([random.randrange(2 ** (8 * array.itemsize)) for _ in array], array.dtype)

    def packed(lanes):
        return lanes._replace(words=scrambled(lanes.words))

    ends = [random.random() < 0.3 for _ in range(arrays.tail_length)]
    broken = arrays._replace(
        slots=scrambled(arrays.slots) & np.uint16(random.choice([3, 65535])),
        label_high=packed(arrays.label_high),
        link_high=packed(arrays.link_high) if random.random() < 0.5 else arrays.link_high,
        tail=packed(arrays.tail),
        tail_end=encode_bits(ends),
    )
    trie.arrays = broken
    frontier = [trie.root]
    for _ in range(8):
        grown = []
        for state in frontier:
            first, count = lanes.child_range(broken, state)
            assert lanes.has_children(broken, state) or count == 0
            for k in range(count):
                token, child = lanes.nth_child(broken, state, first, k)
                lanes.find_child(broken, state, first, count, token)
                lanes.parent(broken, child)
                if child != DEAD:
                    grown.append(child)
        frontier = grown[:50]

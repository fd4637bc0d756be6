"""Small cases that other libraries got wrong, from their public bug reports."""

import pytest

from tests.implementations import DEAD, each_bits, each_index, each_library_index


def tokens_after(index, prefix):
    return index.children(index.walk(prefix))[0]


def masked(index, state):
    """The tokens whose bit is set in the mask of a state."""
    (row,) = index.allowed_mask([state])
    return [32 * i + bit for i, word in enumerate(row) for bit in range(32) if word >> bit & 1]


@each_index
def test_nothing_but_the_end_after_a_key_whose_tokens_go_on_elsewhere(build):
    index = build([(2, 6, 47, 3), (2, 3, 6)])
    state = index.walk((2, 3, 6))
    assert index.is_terminal(state)
    assert index.children(state) == ([], [])
    assert masked(index, state) == []
    assert index.advance(state, 47) == DEAD


@each_index
def test_tokens_are_bound_to_their_prefix_not_to_their_step(build):
    index = build([(1, 2, 3), (8, 2, 9)])
    assert tokens_after(index, (1, 2)) == [3]
    assert masked(index, index.walk((1, 2))) == [3]
    assert index.walk((1, 2, 9)) == DEAD
    (found,) = index.search([[[1], [2], [9, 3]]], [[[-1.0], [-1.0], [0.0, -9.0]]], beam_width=5)
    assert [result.sequence for result in found] == [(1, 2, 3)]


@each_index
def test_unknown_prefix_is_dead_and_raises_nothing(build):
    index = build([(1, 2, 3), (8, 2, 9)])
    assert index.walk((9,)) == DEAD
    assert index.walk((9, 2, 9)) == DEAD
    assert masked(index, DEAD) == []
    assert index.children(DEAD) == ([], [])
    assert index.search([[[9], [2]]], [[[-1.0], [-1.0]]], beam_width=2) == [[]]


@each_index
def test_a_key_can_have_children(build):
    index = build([(10,), (10, 11)])
    state = index.walk((10,))
    assert index.is_terminal(state) is True
    assert tokens_after(index, (10,)) == [11]
    (found,) = index.search([[[10], [11]]], [[[-1.0], [-1.0]]], beam_width=2)
    assert [result.sequence for result in found] == [(10,), (10, 11)]


@each_index
def test_more_beams_than_keys(build):
    catalog = [(1, 4), (2, 5), (3, 6)]
    token_ids, logprobs = [[[1, 2, 3], [4, 5, 6]]], [[[-1.0, -1.0, -1.0]] * 2]
    (found,) = build(catalog).search(token_ids, logprobs, beam_width=5)
    assert sorted(result.sequence for result in found) == catalog
    assert all(result.score == -2.0 for result in found)


@each_index
def test_a_prefix_comes_before_its_extension(build):
    index = build([(1, 1), (1,)])
    assert list(index.completions(())) == [(1,), (1, 1)]
    assert list(index.prefixes((1, 1))) == [(1,), (1, 1)]
    assert [index.key(number) for number in index.from_table_ids([0, 1])] == [(1,), (1, 1)]


@each_index
def test_one_long_sequence_needs_no_recursion(build):
    key = tuple(range(2000))
    index = build([key])
    assert list(index.completions(())) == [key]
    assert list(index.completions(key[:1000])) == [key]
    assert list(index.prefixes((*key, 1))) == [key]
    assert index.key(0) == key
    assert index.is_terminal(index.walk(key))


@each_library_index
def test_one_long_sequence_saves_and_loads(build, tmp_path):
    from succinct import load

    key = tuple(range(2000))
    build([key]).raw.save(tmp_path / "long.safetensors")
    loaded = load(tmp_path / "long.safetensors")
    assert list(loaded.completions(())) == [key]


def test_items_that_share_a_key_all_come_back_reference():
    from succinct.reference import Trie

    trie = Trie([(1, 2, 3), (4,), (1, 2, 3)], ["a", "c", "b"])
    assert trie.items(trie.key_id((1, 2, 3))) == ["a", "b"]


@each_library_index
def test_items_that_share_a_key_all_come_back(build, tmp_path):
    from succinct import ItemMap, KeyTable, load

    sequences = [(1, 2, 3), (4,), (1, 2, 3)]
    index = build(sequences).raw
    items = ItemMap(index, KeyTable.from_sequences(sequences).key_ids, ["a", "c", "b"])
    assert list(items.items(index.key_id((1, 2, 3)))) == ["a", "b"]
    assert list(items.items(index.key_id((4,)))) == ["c"]
    index.save(tmp_path / "items.safetensors", items=items)
    loaded = load(tmp_path / "items.safetensors")
    assert list(loaded.items.items(loaded.key_id((1, 2, 3)))) == ["a", "b"]


@each_bits
@pytest.mark.parametrize("length", [1, 63, 65, 127, 500, 513, 1000])
def test_select0_at_the_end_of_an_incomplete_word(bits, length):
    vector = bits.BitVector.from_bools([True] * (length - 1) + [False])
    assert vector.select0(0) == length - 1
    with pytest.raises(IndexError):
        vector.select0(1)  # the padding behind the end is no zero of the vector
    full = bits.BitVector.from_bools([True] * length)
    with pytest.raises(IndexError):
        full.select0(0)

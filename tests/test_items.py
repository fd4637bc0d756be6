"""ItemMap over a stub index that numbers its keys backwards."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from succinct.errors import FormatError
from succinct.keys import ItemMap, KeyTable
from succinct.keys.names import Names


class Backwards:
    """An index with key numbers of its own."""

    def __init__(self, keys: KeyTable) -> None:
        self.n_keys = keys.n_keys

    def from_table_ids(self, ids: Any) -> Any:
        return self.n_keys - 1 - ids


def made(rows: list[tuple[int, ...]], names: list[str]) -> tuple[KeyTable, ItemMap]:
    keys = KeyTable.from_sequences(rows)
    return keys, ItemMap(Backwards(keys), keys, names)


def test_both_items_of_a_key_come_back() -> None:
    keys, items = made([(1, 2, 3), (7,), (1, 2, 3)], ["a", "x", "b"])
    assert items.items(items.index.from_table_ids(keys.key_id((1, 2, 3)))) == ["a", "b"]
    assert items.items(items.index.from_table_ids(keys.key_id((7,)))) == ["x"]
    assert len(items) == items.n_items == 3
    assert items.nbytes > 0
    for number in (-1, 2):
        with pytest.raises(IndexError, match=rf"key number {number} is not in \[0, 2\)"):
            items.items(number)


@given(st.lists(st.tuples(st.integers(0, 5), st.text(max_size=4)), max_size=30))
def test_items_equal_a_dict(pairs: list[tuple[int, str]]) -> None:
    pairs = [(token, name.encode(errors="replace").decode()) for token, name in pairs]
    keys, items = made([(token,) for token, _ in pairs], [name for _, name in pairs])
    arrays = items.to_arrays()
    for each in (items, ItemMap.from_arrays(items.index, arrays)):
        each.verify()
        for token in {token for token, _ in pairs}:
            number = each.index.from_table_ids(keys.key_id((token,)))
            assert each.items(number) == [name for other, name in pairs if other == token]


def test_table_ids_and_any_iterable_of_names() -> None:
    keys = KeyTable.from_sequences([(1,), (2,)])
    items = ItemMap(Backwards(keys), [1, 1, 0], iter(["a", "b", "c"]))
    assert [items.items(0), items.items(1)] == [["a", "b"], ["c"]]
    items = ItemMap(Backwards(keys), [1], ["only"])
    assert items.items(1) == []


@pytest.mark.parametrize(
    ("ids", "names", "error", "message"),
    [
        ([0, 1], ["a"], ValueError, "2 rows need as many names, not 1"),
        ([0, 2], ["a", "b"], ValueError, r"row 1: key number 2 is not in \[0, 2\)"),
        ([0, -1], ["a", "b"], ValueError, r"row 1: key number -1"),
        ([0.5, 1], ["a", "b"], TypeError, "key numbers must be integers, got .*float64"),
        ([[0]], ["a"], ValueError, "one dimension"),
        ([0, 1], ["a", 5], TypeError, "name 1 must be a str, not int 5"),
        ([0, 1], "ab", TypeError, "names must be an iterable of str"),
    ],
)
def test_bad_input(ids: Any, names: Any, error: type[Exception], message: str) -> None:
    index = Backwards(KeyTable.from_sequences([(1,), (2,)]))
    with pytest.raises(error, match=message):
        ItemMap(index, ids, names)


def u4(*values: int) -> Any:
    return np.array(values, np.uint32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": None}, "item array text is missing"),
        ({"text": u4(1, 2, 3)}, "item array text must have one dimension and a dtype of u1"),
        ({"name_offsets": u4()}, "name_offsets must run from 0 to 3, but has nothing"),
        ({"name_offsets": u4(0, 1, 2, 4)}, "name_offsets must run from 0 to 3, but has 0 to 4"),
        ({"name_offsets": u4(1, 1, 2, 3)}, "name_offsets must run from 0 to 3, but has 1 to 3"),
        ({"name_offsets": np.zeros((2, 2), np.uint32)}, "name_offsets must have one dimension"),
        ({"key_offsets": u4(0, 3)}, "key_offsets must have 3 entries, not 2"),
        ({"key_offsets": u4(0, 1, 2)}, "key_offsets must run from 0 to 3"),
    ],
)
def test_arrays_that_disagree(change: dict[str, Any], message: str) -> None:
    _, items = made([(1,), (2,), (2,)], ["a", "b", "c"])
    arrays = {**items.to_arrays(), **change}
    with pytest.raises(FormatError, match=message):
        ItemMap.from_arrays(items.index, {k: v for k, v in arrays.items() if v is not None})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key_offsets": u4(0, 2**32 - 1, 3)}, "offsets 0, 4294967295 do not ascend"),
        ({"key_offsets": u4(0, 2**32 - 1, 3)}, "key_offsets falls at entry 2"),
        ({"name_offsets": u4(0, 9, 2, 3)}, "name_offsets falls at entry 2"),
        ({"text": np.full(3, 255, np.uint8)}, "items of key 0: .* can't decode"),
    ],
)
def test_damage_between_the_ends_is_found(change: dict[str, Any], message: str) -> None:
    _, items = made([(1,), (2,), (2,)], ["a", "b", "c"])
    damaged = ItemMap.from_arrays(items.index, {**items.to_arrays(), **change})
    with pytest.raises(FormatError, match=message):
        if "entry" in message:
            damaged.verify()
        else:
            damaged.items(0)


def test_names_are_a_sequence() -> None:
    names = Names.of(["a", "", "été"])
    assert list(names) == ["a", "", "été"]
    assert names[-1] == "été"
    assert list(names[::-1]) == ["été", "", "a"]
    assert "été" in names
    assert list(Names.of([])) == []
    with pytest.raises(IndexError, match="name 3"):
        names[3]

"""What is pickled or copied comes back equal, and works."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from succinct import (
    BitVector,
    CsrMap,
    EliasFano,
    ItemMap,
    KeyTable,
    LoudsTrie,
    PackedArray,
    StepMap,
)
from succinct.index import Index

KEYS = [(1,), (1, 2, 3), (1, 2, 4), (5, 70_000), (5, 70_000, 2**32 - 2), (6, 1, 1, 1, 1)]
BUILDS: dict[str, Callable[[KeyTable], Index]] = {
    "louds": lambda keys: LoudsTrie.build(keys, tail=False),
    "louds-tail": lambda keys: LoudsTrie.build(keys, tail=True),
    "steps": lambda keys: StepMap.build(keys, tail=False),
    "steps-tail": lambda keys: StepMap.build(keys, tail=True),
    "csr": CsrMap.build,
}

each_way = pytest.mark.parametrize(
    "again",
    [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deepcopy"],
)


@each_way
@pytest.mark.parametrize(
    "original",
    [
        BitVector.from_bools([1, 0] * 300),
        PackedArray([], 7),
        PackedArray([5, 0, 2**40]),
        EliasFano([]),
        EliasFano([3, 3, 900, 2**50]),
    ],
    ids=repr,
)
def test_bits(again: Callable[[Any], Any], original: Any) -> None:
    twin = again(original)
    assert twin == original
    assert twin[:].tolist() == original[:].tolist()
    assert len(twin) == len(original)
    assert original != 1
    assert twin != type(original)([9]) if not isinstance(original, BitVector) else True


@each_way
def test_key_table(again: Callable[[Any], Any]) -> None:
    keys = KeyTable.from_sequences(KEYS[::-1] + KEYS[:2])
    twin = again(keys)
    assert list(twin) == list(keys)
    assert twin.n_duplicates == 2
    assert twin.key_ids.tolist() == keys.key_ids.tolist()
    assert StepMap.build(twin).key_ids(KEYS).tolist() == StepMap.build(keys).key_ids(KEYS).tolist()


@each_way
@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_index(again: Callable[[Any], Any], build: Callable[[KeyTable], Index]) -> None:
    index = build(KeyTable.from_sequences(KEYS))
    twin = again(index)
    assert type(twin) is type(index)
    assert twin is not index
    assert twin.info() == index.info()
    assert list(twin.completions()) == sorted(KEYS)
    assert [twin.key_id(key) for key in KEYS] == [index.key_id(key) for key in KEYS]
    assert twin.items is None


@each_way
@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_items(again: Callable[[Any], Any], build: Callable[[KeyTable], Index]) -> None:
    keys = KeyTable.from_sequences(KEYS)
    index = build(keys)
    items = ItemMap(index, keys, map(str, KEYS))
    for twin in (again(items), again((items, index))[0]):
        assert twin.index is not None
        assert [twin.items(twin.index.key_id(key)) for key in KEYS] == [[str(key)] for key in KEYS]
    index.items = items
    carried = again(index).items
    assert carried.items(carried.index.key_id(KEYS[3])) == [str(KEYS[3])]
    twin = again(items)
    assert twin.index.items is twin


def test_memory_mapped(tmp_path: Any) -> None:
    from succinct import load

    index = StepMap.build(KeyTable.from_rows(np.arange(4000).reshape(-1, 2)))
    index.save(tmp_path / "x")
    twin = pickle.loads(pickle.dumps(load(tmp_path / "x")))
    assert twin.key_ids(np.arange(4000).reshape(-1, 2)).tolist() == list(range(2000))


def test_an_index_never_made_is_empty() -> None:
    for cls in (LoudsTrie, StepMap, CsrMap):
        index = cls.__new__(cls)
        assert (1,) not in index
        assert index.walk((1,)) == 2**64 - 1
        with pytest.raises(KeyError):
            index.key_id([1])
        with pytest.raises(ValueError, match="no state of this index"):
            index.is_terminal(0)

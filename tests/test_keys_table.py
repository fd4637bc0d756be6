"""KeyTable against Python's sorted(set(...)) on tuples."""

import itertools
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from succinct.keys import KeyTable, external, sorting
from succinct.keys.sorting import sort_sequences

# Widths at the borders of dtypes, and of tokens that pack into 63, 64 and 65 bits.
BORDERS = [0, 1, 254, 255, 256, 65534, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 3, 2**32 - 2]


def vocabulary(draw: st.DrawFn) -> st.SearchStrategy[int]:
    top = draw(st.sampled_from([1, 3, *BORDERS[2:], 2**13 - 2, 2**13 - 1, 2**21 - 2, 2**21 - 1]))
    return st.one_of(st.integers(0, min(top, 3)), st.integers(0, top), st.just(top))


@st.composite
def ragged(draw: st.DrawFn) -> list[tuple[int, ...]]:
    tokens = vocabulary(draw)
    prefix = draw(st.lists(tokens, max_size=12))
    rows = draw(st.lists(st.lists(tokens, min_size=1, max_size=7), max_size=30))
    rows += [prefix[: draw(st.integers(0, len(prefix)))] + row for row in rows[:10]]
    rows += [row[: draw(st.integers(1, len(row)))] for row in rows[:10]]
    return draw(st.permutations([tuple(row) for row in rows]))


@st.composite
def matrices(draw: st.DrawFn) -> list[tuple[int, ...]]:
    tokens = vocabulary(draw)
    length = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 9, 17]))
    row = st.lists(tokens, min_size=length, max_size=length)
    rows = draw(st.lists(row, max_size=20))
    rows += draw(st.lists(st.sampled_from(rows), max_size=5)) if rows else []
    return [tuple(row) for row in rows]


def check(keys: KeyTable, rows: list[tuple[int, ...]]) -> None:
    """Everything that a table promises, by the plainest means."""
    ordered = sorted(set(rows))
    numbered = sorted(ordered, key=lambda key: (len(key), key))
    assert keys.tokens.tolist() == [token for key in ordered for token in key]
    assert keys.offsets.tolist() == np.cumsum([0, *map(len, ordered)]).tolist()
    assert keys.tokens.dtype.kind == "u"
    assert not keys.tokens.flags.writeable
    assert keys.tokens.flags.c_contiguous
    assert keys.n_keys == len(keys) == len(ordered)
    assert keys.n_duplicates == len(rows) - len(ordered)
    assert keys.max_length == max(map(len, rows), default=0)
    assert keys.vocab_size == max(map(max, rows), default=-1) + 1
    lengths = set(map(len, rows))
    assert keys.fixed_length == (lengths.pop() if len(lengths) == 1 else None)
    assert list(keys) == numbered
    number = {key: i for i, key in enumerate(numbered)}
    assert keys.key_ids.dtype == np.int64
    assert keys.key_ids.tolist() == [number[row] for row in rows]
    if keys.numbers is None:
        assert numbered == ordered
    else:
        assert keys.numbers.tolist() == [number[key] for key in ordered]
    for key in ordered[:5]:
        assert key in keys
        assert keys.key_id(key) == number[key]
    for absent in [(), (-1,), (2**32 - 1,), *(key[:-1] for key in ordered[:5])]:
        assert (absent in keys) == (absent in number)


def flat(rows: list[tuple[int, ...]]) -> tuple[Any, Any]:
    tokens = np.array([token for row in rows for token in row], np.int64)
    return tokens, np.cumsum([0, *map(len, rows)])


@pytest.fixture(params=[0, 4096], ids=["rounds", "bytes"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs a test with and without the short cut for few tied rows."""
    monkeypatch.setattr(sorting, "_FEW", request.param)
    monkeypatch.setattr(sorting, "_FEW_OF_GROUP", request.param)


@pytest.mark.parametrize("limit", [0, 4096])
@given(rows=ragged())
def test_ragged_equals_sorted_set(rows: list[tuple[int, ...]], limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "_FEW", limit)
        patch.setattr(sorting, "_FEW_OF_GROUP", limit)
        check(KeyTable.from_sequences(iter(rows)), rows)
        check(KeyTable.from_flat(*flat(rows)), rows)


@pytest.mark.parametrize("limit", [0, 4096])
@given(rows=matrices())
def test_matrix_equals_sorted_set(rows: list[tuple[int, ...]], limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "_FEW", limit)
        patch.setattr(sorting, "_FEW_OF_GROUP", limit)
        check(KeyTable.from_rows(rows), rows)
        if rows:
            check(KeyTable.from_rows(np.array(rows)), rows)
            check(KeyTable.from_rows(np.array(sorted(rows))), sorted(rows))
            check(KeyTable.from_rows(np.array(sorted(set(rows)))), sorted(set(rows)))


@pytest.mark.parametrize("width", [12, 13, 14, 16, 17])
def test_rows_wider_than_a_word(width: int) -> None:
    rng = np.random.default_rng(width)
    rows = rng.integers(0, 1 << width, (300, 5))
    rows[:, 0] = rng.choice([0, 1, 5, (1 << width) - 1], 300)
    rows = rows[rng.integers(0, 300, 500)] + 70_000
    check(KeyTable.from_rows(rows), list(map(tuple, rows.tolist())))


@given(rows=st.one_of(ragged(), matrices()))
def test_parts_equal_sorted_set(rows: list[tuple[int, ...]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "AT_ONCE", 0)
        check(KeyTable.from_flat(*flat(rows)), rows)
        if len({*map(len, rows)}) == 1:
            patch.setattr(sorting, "_columns", lambda _: None)
            check(KeyTable.from_rows(np.array(rows)), rows)


@pytest.mark.parametrize("repeated", [1, 3])
@pytest.mark.parametrize("shape", ["word", "word and head", "narrow", "wide", "ragged"])
def test_sorting_takes_little_memory(shape: str, repeated: int) -> None:
    rng = np.random.default_rng(0)
    codes, dtype = {"narrow": (256, "u1"), "wide": (2**20, "u4"), "word": (2**12, "u2")}.get(
        shape, (2**16, "u2")
    )
    rows = rng.integers(0, codes, (70_000, 5), dtype)
    rows = rng.permutation(np.repeat(rows, repeated, axis=0))
    offsets = np.arange(len(rows) + 1) * 5
    if shape == "ragged":
        offsets[1:-1] += rng.integers(0, 3, len(rows) - 1)
    tokens = rows.reshape(-1)
    tracemalloc.start()
    keys = KeyTable.from_flat(tokens, offsets) if shape == "ragged" else KeyTable.from_rows(rows)
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    ids = keys.key_ids
    of_ids = tracemalloc.get_traced_memory()[1] - now
    tracemalloc.stop()
    assert now < keys.nbytes + 2**16
    # Eight bytes a row are the result, and twice as much a key are numbers of keys of all lengths.
    assert of_ids < 12 * len(rows) + 16 * keys.n_keys * (shape == "ragged") + 2**19
    # Rows of fewer than eight bytes are sorted as words of eight.
    made = max(rows.nbytes, 8 * len(rows)) + offsets.nbytes * (shape == "ragged")
    assert peak < 1.1 * made + 2**21
    lists = [tuple(tokens[a:b].tolist()) for a, b in itertools.pairwise(offsets.tolist())]
    found = [tuple(keys.tokens[a:b].tolist()) for a, b in itertools.pairwise(keys.offsets.tolist())]
    assert found == sorted(set(lists))
    number = {key: i for i, key in enumerate(sorted(set(lists), key=lambda key: (len(key), key)))}
    assert ids.tolist() == [number[key] for key in lists]


@pytest.mark.parametrize("shape", ["word", "wide", "ragged"])
def test_external_sort_uses_its_limit(
    shape: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2**12 if shape == "word" else 2**20, (400_000, 5), np.uint32)
    offsets = np.arange(len(rows) + 1) * 5
    offsets[1:-1] += rng.integers(0, 3, len(rows) - 1)
    runs = 0
    written = external._written

    def counted(*arguments: Any) -> Any:
        nonlocal runs
        runs += 1
        return written(*arguments)

    monkeypatch.setattr(external, "_written", counted)
    limit: dict[str, Any] = {"memory_limit": 2**23, "temp_dir": tmp_path, "key_ids": False}
    tracemalloc.start()
    if shape == "ragged":
        keys = KeyTable.from_flat(rows.reshape(-1), offsets, **limit)
    else:
        keys = KeyTable.from_rows(rows, **limit)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**23
    assert 1 < runs <= 1 + 3 * keys.nbytes // 2**23


@given(rows=st.one_of(ragged(), matrices()))
def test_sort_sequences(rows: list[tuple[int, ...]]) -> None:
    tokens, offsets = flat(rows)
    order = sort_sequences(tokens.astype(np.uint32), offsets)
    assert sorted(order.tolist()) == list(range(len(rows)))
    assert [rows[i] for i in order] == sorted(rows)


def test_sort_sequences_takes_empty_ones() -> None:
    tokens, offsets = flat([(1,), (), (0, 5), ()])
    order = sort_sequences(tokens.astype(np.uint8), offsets)
    assert [[(1,), (), (0, 5), ()][i] for i in order] == [(), (), (0, 5), (1,)]


@pytest.mark.parametrize("dtype", ["u1", "i2", ">u2", "i4", ">i4", "u4", "i8", "u8", ">u8"])
def test_any_integer_dtype_and_layout(dtype: str) -> None:
    rows = [(5, 1), (3, 2), (5, 1), (0, 127)]
    matrix = np.array(rows, dtype)
    check(KeyTable.from_rows(matrix), rows)
    check(KeyTable.from_rows(np.asfortranarray(matrix)), rows)
    check(KeyTable.from_rows(np.repeat(matrix, 2, axis=1)[::-1, ::2]), rows[::-1])
    check(KeyTable.from_sequences(list(matrix)), rows)
    check(KeyTable.from_flat(matrix.ravel(), np.array([0, 2, 4, 6, 8], dtype)), rows)


def test_elements_may_be_any_sequence() -> None:
    rows = [[1, 2], (np.int32(3), np.uint64(4)), np.array([5], ">i8"), range(3)]
    check(KeyTable.from_sequences(rows), [(1, 2), (3, 4), (5,), (0, 1, 2)])


@pytest.mark.parametrize("dtype", [np.uint16, np.int64])
def test_sorted_memory_map_is_used_in_place(tmp_path: Any, dtype: Any) -> None:
    rows = np.unique(np.random.default_rng(1).integers(0, 999, (500, 4)), axis=0).astype(dtype)
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    keys = KeyTable.from_rows(mapped)
    assert np.shares_memory(keys.tokens, mapped)
    check(keys, list(map(tuple, rows.tolist())))
    shuffled = rows[np.random.default_rng(2).permutation(len(rows))]
    np.save(tmp_path / "rows.npy", shuffled)
    keys = KeyTable.from_rows(np.load(tmp_path / "rows.npy", mmap_mode="r"))
    assert keys.tokens.dtype == np.uint16
    check(keys, list(map(tuple, shuffled.tolist())))


def test_input_stays_writable() -> None:
    rows = np.array([[1], [2]], np.uint8)
    KeyTable.from_rows(rows)
    rows[0] = 0


def test_no_keys() -> None:
    for keys in (
        KeyTable.from_sequences([]),
        KeyTable.from_rows([]),
        KeyTable.from_rows(np.zeros((0, 3), np.int32)),
        KeyTable.from_rows(np.zeros((0, 0), np.int32)),
        KeyTable.from_flat([], [0]),
    ):
        check(keys, [])
        assert keys.nbytes >= 0
        with pytest.raises(IndexError, match="key number 0"):
            keys.key(0)


def test_long_shared_prefixes_are_not_quadratic(few: None) -> None:
    rng = np.random.default_rng(3)
    prefix = rng.integers(0, 70_000, 2000)
    tails = rng.integers(0, 70_000, (5000, 3))
    rows = np.concatenate([np.broadcast_to(prefix, (5000, 2000)), tails], axis=1)
    order = sort_sequences(np.ascontiguousarray(rows, np.uint32).ravel(), 2003)
    assert (tails[order] == tails[np.lexsort(tails.T[::-1])]).all()


def test_key_ids_are_let_go_on_request() -> None:
    keys = KeyTable.from_sequences([(1,)], key_ids=False)
    with pytest.raises(ValueError, match="key_ids=False"):
        _ = keys.key_ids


ROWS = KeyTable.from_rows
SEQUENCES = KeyTable.from_sequences
BAD = [
    (lambda: ROWS([[1, 2], [3, -4]]), ValueError, r"row 1, position 1: token -4"),
    (lambda: ROWS(np.array([[1, 2], [3, -4]])), ValueError, r"row 1, column 1: token -4"),
    (lambda: ROWS(np.array([[1], [-4]], np.int8)), ValueError, r"row 1, column 0: token -4"),
    (lambda: ROWS(np.array([[2**32 - 1]])), ValueError, r"token 4294967295 is not in \[0, "),
    (lambda: ROWS(np.array([[2**64 - 1]], "u8")), ValueError, r"token 18446744073709551615"),
    (lambda: ROWS([[1, 2], [3]]), ValueError, "row 1 has 1 tokens where row 0 has 2"),
    (lambda: ROWS(np.zeros((2, 0), int)), ValueError, "row 0 is empty"),
    (
        lambda: ROWS(np.zeros(3, int)),
        ValueError,
        r"a matrix \[N, L\], not .* shape \(3,\)",
    ),
    (lambda: ROWS(np.zeros((2, 2))), TypeError, "integer dtype, not float64"),
    (lambda: ROWS(np.zeros((2, 2), bool)), TypeError, "integer dtype, not bool"),
    (lambda: ROWS([[1, 2], [3, 4.5]]), TypeError, r"row 1, position 1: 4\.5 is a float"),
    (lambda: SEQUENCES([(1,), (2, -7)]), ValueError, "sequence 1, position 1: token -7"),
    (lambda: SEQUENCES([(1,), (2, 2**70)]), ValueError, "sequence 1, position 1: token 1180"),
    (lambda: SEQUENCES([(1,), ()]), ValueError, "sequence 1 is empty"),
    (lambda: SEQUENCES([(1,), [2.0]]), TypeError, r"sequence 1, position 0: 2\.0 is a float"),
    (lambda: SEQUENCES([(1,), "12"]), TypeError, "sequence 1 must be .* not a str '12'"),
    (lambda: SEQUENCES([(1,), b"12"]), TypeError, "sequence 1 must be .* not a bytes"),
    (lambda: SEQUENCES([(1,), 5]), TypeError, "sequence 1 must be .* not an int"),
    (lambda: SEQUENCES([(1,), ["a"]]), TypeError, "position 0: 'a' is a str"),
    (lambda: SEQUENCES("12"), TypeError, "not a str"),
    (lambda: SEQUENCES([np.array([1.0])]), TypeError, "sequence 0 must have an integer dtype"),
    (lambda: SEQUENCES([np.array([True])]), TypeError, "sequence 0 must have an integer dtype"),
    (lambda: SEQUENCES([np.array([2**64 - 1], "u8")]), ValueError, "token 18446744073709551615"),
    (lambda: SEQUENCES([np.zeros((1, 1), int)]), ValueError, "one dimension"),
    (lambda: KeyTable.from_flat([1, 2], [1, 2]), ValueError, "start at 0, not at 1"),
    (lambda: KeyTable.from_flat([1, 2], [0, 1]), ValueError, "number of tokens, 2, not 1"),
    (lambda: KeyTable.from_flat([1, 2], [0, 2, 1, 2]), ValueError, r"offsets\[1\] is 2, .* is 1"),
    (lambda: KeyTable.from_flat([1, 2], [0, 2, 2]), ValueError, "sequence 1 is empty"),
    (lambda: KeyTable.from_flat([1, -2], [0, 1, 2]), ValueError, "row 1, .*|sequence 1, .* -2"),
    (lambda: KeyTable.from_flat([1, 2], [0.0, 2.0]), TypeError, "offsets must be integers"),
    (lambda: KeyTable.from_flat([1, 2], []), ValueError, r"shape \[N \+ 1\]"),
    (lambda: KeyTable.from_flat([1.5], [0, 1]), TypeError, "integer dtype, not float64"),
    (lambda: SEQUENCES([(1,)], memory_limit=0), ValueError, "memory_limit must be"),
]


@pytest.mark.parametrize(("call", "error", "message"), BAD)
def test_bad_input_names_the_place(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_place_is_right_beyond_the_first_chunk() -> None:
    def rows() -> Any:
        for _ in range(300_000):
            yield (1, 2, 3, 4)
        yield (5, -1)

    with pytest.raises(ValueError, match="sequence 300000, position 1: token -1"):
        KeyTable.from_sequences(rows())


def test_lookup_errors() -> None:
    keys = KeyTable.from_sequences([(1, 2)])
    for absent in [(1,), (1, 2, 3), ()]:
        with pytest.raises(KeyError):
            keys.key_id(absent)
    with pytest.raises(ValueError, match="token -1"):
        keys.key_id((-1,))
    with pytest.raises(IndexError, match=r"key number -1 is not in \[0, 1\)"):
        keys.key(-1)


def random_rows(kind: str, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    if kind == "fixed":
        return [tuple(row) for row in rng.integers(0, 30, (20_000, 3)).tolist()]
    lengths = rng.integers(1, 9, 20_000)
    top = 4 if kind == "prefixes" else 100_000
    rows = [tuple(rng.integers(0, top, length).tolist()) for length in lengths]
    return rows + rows[:500]


@pytest.mark.parametrize("kind", ["fixed", "ragged", "prefixes"])
def test_external_sort_equals_sort_in_memory(kind: str, tmp_path: Any) -> None:
    rows = random_rows(kind, 5)
    limit = {"memory_limit": 1 << 16, "temp_dir": tmp_path}
    check(KeyTable.from_sequences(iter(rows), **limit), rows)
    check(KeyTable.from_flat(*flat(rows), **limit), rows)
    if kind == "fixed":
        check(KeyTable.from_rows(np.array(rows, np.uint16), **limit), rows)
    assert list(tmp_path.iterdir()) == []


def test_external_sort_of_equal_and_of_sorted_rows(tmp_path: Any) -> None:
    for rows in ([(7, 8)] * 20_000, [(i,) for i in range(20_000)]):
        check(KeyTable.from_sequences(rows, memory_limit=1, temp_dir=tmp_path), rows)


def test_external_sort_leaves_nothing_behind_on_error(tmp_path: Any) -> None:
    rows = [*random_rows("ragged", 1), (1, -1)]
    with pytest.raises(ValueError, match="token -1"):
        KeyTable.from_sequences(rows, memory_limit=1, temp_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        KeyTable.from_sequences(rows[:-1], memory_limit=1, temp_dir=tmp_path / "absent")


def test_pieces_cover_all_rows() -> None:
    rows = KeyTable.from_sequences([(i, i) for i in range(1000)])._rows
    parts = list(external.pieces(rows, 5000))
    assert len(parts) > 5
    assert np.concatenate([part.tokens for part in parts]).tolist() == rows.tokens.tolist()

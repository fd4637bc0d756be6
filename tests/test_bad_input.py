"""Wrong arguments get an error that says what was expected, what came and where.

And odd but right ones are taken: any integer dtype, byte order and layout.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from succinct import (
    DEAD,
    BeamResult,
    BitVector,
    EliasFano,
    ItemMap,
    KeyTable,
    LoudsTrie,
    PackedArray,
    QueryResult,
    beam_search,
    load,
    verify,
)

KEYS = [(1, 2, 3), (1, 2, 4), (2,), (5, 70_000, 6, 7)]
Ask = Callable[[Any], Any]


class Five:
    """An integer in all but name."""

    def __index__(self) -> int:
        return 5


def case_name(value):
    """The name of a case; the same in every process, which an address would not be."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


@pytest.fixture(params=[False, True], ids=["plain", "tails"])
def trie(request: pytest.FixtureRequest) -> LoudsTrie:
    return LoudsTrie.build(KeyTable.from_sequences(KEYS), tail=request.param)


def odd_arrays(values: list[int]) -> list[Any]:
    """The same non-negative numbers in every way in which an array can hold them."""
    top = max(values, default=0)
    arrays: list[Any] = [values, tuple(values), [np.uint64(v) for v in values]]
    for code in "bBhHiIqQ":
        if top <= np.iinfo(code).max:
            array = np.array(values, code)
            arrays += [array, array.astype(array.dtype.newbyteorder(">"))]
            arrays.append(np.repeat(array, 2)[::2])  # strided
            arrays.append(np.array(values[::-1], code)[::-1])
    fixed = np.array(values, np.int64)
    fixed.flags.writeable = False
    unaligned = np.frombuffer(b"x" + fixed.tobytes(), np.uint8)[1:].view(np.int64)
    return [*arrays, fixed, unaligned]


# ---- bits ---------------------------------------------------------------------------------------

BITS = BitVector.from_bools([i % 3 == 0 for i in range(1000)])
PACKED = PackedArray(range(1000))
FANO = EliasFano([3 * i for i in range(1000)])

# Calls that take positions or numbers below a limit: name, call, limit.
POSITIONS: list[tuple[str, Ask, int]] = [
    ("rank1", BITS.rank1, 1001),
    ("rank0", BITS.rank0, 1001),
    ("select1", BITS.select1, 334),
    ("select0", BITS.select0, 666),
    ("next_zero", BITS.next_zero, 1001),
    ("next_one", BITS.next_one, 1001),
    ("bits", BITS.__getitem__, 1000),
    ("packed", PACKED.__getitem__, 1000),
    ("fano", FANO.__getitem__, 1000),
    ("access", FANO.access, 1000),
]
VALUES: list[tuple[str, Ask]] = [("rank", FANO.rank), ("next_geq", FANO.next_geq)]
TAKERS = [*((name, ask) for name, ask, _ in POSITIONS), *VALUES]
named = pytest.mark.parametrize(
    ("ask", "limit"), [pytest.param(*c[1:], id=c[0]) for c in POSITIONS]
)
asked = pytest.mark.parametrize("ask", [pytest.param(ask, id=name) for name, ask in TAKERS])


@asked
def test_bits_take_any_integers(ask: Ask) -> None:
    want = [ask(0), ask(7), ask(100)]
    for array in odd_arrays([0, 7, 100]):
        assert ask(array).tolist() == want
    matrix = np.array([[0, 7], [100, 7]], order="F")
    assert ask(matrix).tolist() == [[want[0], want[1]], [want[2], want[1]]]
    assert ask(np.array(7)) == want[1] == ask(np.uint8(7)) == ask(np.int64(7))
    assert ask(Five()) == ask(5)
    for empty in ([], (), np.zeros(0, np.int8), np.zeros((2, 0), np.uint64)):
        assert ask(empty).shape == np.shape(empty)


@asked
@pytest.mark.parametrize(
    "wrong",
    [
        None, 1.0, float("nan"), "5", b"5", [1.0], ["5"], [None], [True, False], {1: 2}, {5},
        np.array([0.5]), np.array([1.0]), np.array(["1"]), np.array([True]), np.array([1 + 0j]),
        np.array([1], "M8[s]"), np.array([1], "m8[s]"), np.array([1], object), np.zeros(0),
        np.float64(1), [1, 2.5], (i for i in [1]), object(),
    ],
    ids=case_name,
)  # fmt: skip
def test_bits_take_nothing_else(ask: Ask, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"must be integers|cannot be interpreted as an integer"):
        ask(wrong)


@named
def test_positions_out_of_range(ask: Ask, limit: int) -> None:
    for bad in (limit, -1001, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**64), 10**30):
        with pytest.raises(IndexError):
            ask(bad)
        for place, numbers in ((1, [0, bad]), (0, [bad, 2**64 - 1]), (2, [0, 1, bad, 5])):
            if bad == 2**64 - 1 and place == 0:
                continue
            with pytest.raises(IndexError, match=rf"\[{place}\] = {bad}|out of range"):
                ask(numbers)
    with pytest.raises(IndexError, match=r"\[1, 0\] = 5000 is out of range \(0\.\."):
        ask(np.array([[0, 1], [5000, 2]]))
    for code in "hiqHIQ":
        with pytest.raises(IndexError, match=r"\[1\] = 1001 is out of range"):
            ask(np.array([0, 1001], code))
        assert ask(np.array([1], code)) == [ask(1)]


@pytest.mark.parametrize("ask", [ask for _, ask in VALUES])
def test_values_out_of_range(ask: Ask) -> None:
    for bad in (-1, 2**64, -(2**70)):
        with pytest.raises(ValueError, match=rf"x = {bad} is out of range"):
            ask(bad)
        with pytest.raises(ValueError, match=rf"x\[1\] = {bad} is out of range"):
            ask([0, bad])
    assert ask([0, 2**64 - 1]).tolist() == [ask(0), ask(2**64 - 1)]


def test_negative_positions_count_back() -> None:
    for code in "bhiq":
        assert BITS[np.array([-1, 0, 1], code)].tolist() == [True, True, False]
    assert BITS[-1000] is True
    with pytest.raises(IndexError, match=r"position -1001 is out of range for 1000"):
        BITS[-1001]


@pytest.mark.parametrize("empty", [BitVector.from_bools([]), PackedArray([]), EliasFano([])])
def test_nothing_is_in_empty_ones(empty: Any) -> None:
    assert len(empty) == 0
    for bad in (0, -1, [0]):
        with pytest.raises(IndexError, match="out of range"):
            empty[bad]


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: BitVector(), TypeError, "from_bools"),
        (lambda: BitVector.from_bools([0, 1, 2]), ValueError, r"bools\[2\] must be 0 or 1, got 2"),
        (lambda: BitVector.from_bools([0, -1]), ValueError, r"bools\[1\] must be 0 or 1, got -1"),
        (lambda: BitVector.from_bools([0.0]), TypeError, "bools must be integers.*float64"),
        (lambda: BitVector.from_bools(["0"]), TypeError, "bools must be integers"),
        (lambda: BitVector.from_bools("01"), TypeError, "sequence of bools, got '01'"),
        (lambda: BitVector.from_bools(None), TypeError, "sequence of bools, got None"),
        (lambda: BitVector.from_bools(True), TypeError, "sequence of bools, got True"),
        (lambda: BitVector.from_bools([[1], [0]]), ValueError, r"one dimension.*\(2, 1\)"),
        (lambda: BitVector.from_bools([[1], [0, 1]]), ValueError, "inhomogeneous|regular"),
        (lambda: BitVector.from_bools([0, 2**64]), ValueError, r"bools\[1\]"),
        (lambda: BitVector.from_indices([3], 3), IndexError, r"indices\[0\] = 3.*0\.\.2"),
        (lambda: BitVector.from_indices([-1], 3), IndexError, r"indices\[0\] = -1"),
        (lambda: BitVector.from_indices([0], 0), IndexError, "none is valid"),
        (lambda: BitVector.from_indices([0.5], 3), TypeError, "indices must be integers"),
        (lambda: BitVector.from_indices([True], 3), TypeError, "indices must be integers"),
        (lambda: BitVector.from_indices(None, 3), TypeError, "indices must be integers.*None"),
        (lambda: BitVector.from_indices([], -1), ValueError, "length must be in .*got -1"),
        (lambda: BitVector.from_indices([], 2**70), ValueError, "length must be in"),
        (lambda: BitVector.from_indices([], 1.5), TypeError, "length must be an integer.*1.5"),
        (lambda: BitVector.from_indices([], "3"), TypeError, "length must be an integer.*'3'"),
        (lambda: BitVector.from_indices([], None), TypeError, "length must be an integer"),
        (lambda: BitVector.from_words([1], 3), TypeError, "uint64 array, got int64"),
        (lambda: BitVector.from_words(np.zeros(1), 3), TypeError, "uint64 array, got float64"),
        (lambda: BitVector.from_words(None, 3), TypeError, "uint64 array, got object"),
        (lambda: BitVector.from_words(np.zeros((1, 1), "u8"), 3), TypeError, r"shape \(1, 1\)"),
        (lambda: BitVector.from_words(np.zeros(1, "u8"), 65), ValueError, "need 2 words, got 1"),
        (lambda: BitVector.from_words(np.zeros(1, "u8"), -1), ValueError, "length must be in"),
        (lambda: PackedArray([-1]), ValueError, r"values\[0\] = -1 is out of range"),
        (lambda: PackedArray([0, 2**64]), ValueError, r"values\[1\] = 18446744073709551616"),
        (lambda: PackedArray([1, 5], width=2), ValueError, r"values\[1\] = 5.*2 bits"),
        (lambda: PackedArray([1], width=0), ValueError, r"values\[0\] = 1.*0 bits"),
        (lambda: PackedArray([1], width=65), ValueError, r"width must be in 0\.\.64, got 65"),
        (lambda: PackedArray([1], width=-1), ValueError, r"width must be in 0\.\.64, got -1"),
        (lambda: PackedArray([1], width=1.0), TypeError, "width must be an integer, got 1.0"),
        (lambda: PackedArray([1], width="1"), TypeError, "width must be an integer, got '1'"),
        (lambda: PackedArray([[1]]), ValueError, r"one dimension.*\(1, 1\)"),
        (lambda: PackedArray(3), ValueError, r"one dimension.*\(\)"),
        (lambda: PackedArray([1.0]), TypeError, "values must be integers.*float64"),
        (lambda: PackedArray([[1], [1, 2]]), ValueError, "regular"),
        (lambda: EliasFano([2, 1]), ValueError, r"sorted: \[1\] = 1 follows 2"),
        (lambda: EliasFano([-1, 1]), ValueError, r"sorted_values\[0\] = -1"),
        (lambda: EliasFano([2**64 - 1]), ValueError, r"at most 2\*\*64 - 2"),
        (lambda: EliasFano([2**64]), ValueError, "out of range"),
        (lambda: EliasFano([[1]]), ValueError, r"one dimension.*\(1, 1\)"),
        (lambda: EliasFano([0.5]), TypeError, "sorted_values must be integers"),
        (lambda: EliasFano(None), TypeError, "sorted_values must be integers.*None"),
    ],
)
def test_making_bits(make: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


def test_making_bits_of_any_integers() -> None:
    for array in odd_arrays([0, 1, 1, 0]):
        assert BitVector.from_bools(array).count() == 2
        assert BitVector.from_indices(array, 2).count() == 2
        assert PackedArray(array)[:].tolist() == [0, 1, 1, 0]
    for array in odd_arrays([1, 3, 3, 100]):
        assert EliasFano(array).rank(4) == 3
    assert PackedArray([0, 2**64 - 1])[1] == 2**64 - 1
    assert EliasFano([0, 2**64 - 2]).next_geq(1) == 2**64 - 2
    words = np.arange(4, dtype=np.uint64)
    assert BitVector.from_words(words[::2], 128).count() == 1
    assert len(BitVector.from_indices([], Five())) == 5


def test_the_place_for_results_is_checked() -> None:
    queries = np.arange(4)
    wrong = [
        np.zeros(3, np.int64),
        np.zeros((4, 1), np.int64),
        np.zeros(4, np.uint64),
        np.zeros(8, np.int64)[::2],
        [0] * 4,
        "4",
    ]
    fixed = np.zeros(4, np.int64)
    fixed.flags.writeable = False
    for out in [*wrong, fixed]:
        with pytest.raises(ValueError, match=r"out must be a writable .* shape \(4,\), got"):
            BITS.rank1(queries, out=out)


# ---- states -------------------------------------------------------------------------------------

STATE_TAKERS: list[Callable[[LoudsTrie], Ask]] = [
    lambda trie: trie.children,
    lambda trie: trie.is_terminal,
    lambda trie: trie.allowed_mask,
    lambda trie: trie.state_key_ids,
    lambda trie: lambda states: trie.advance(states, 1),
]
states_of = pytest.mark.parametrize("taker", STATE_TAKERS)


def shown(result: Any) -> Any:
    return [part.tolist() for part in result] if isinstance(result, tuple) else result.tolist()


@states_of
def test_states_of_any_integers(trie: LoudsTrie, taker: Any) -> None:
    ask = taker(trie)
    states = [0, int(trie.walk((1,))), int(trie.walk((5, 70_000))), int(DEAD)]
    for values in (states, states[:2], [0]):
        want = shown(ask(np.array(values, np.uint64)))
        for array in odd_arrays(values) if max(values) < 2**63 else [values, tuple(values)]:
            assert shown(ask(array)) == want
    for empty in ([], np.zeros(0, np.uint8), np.zeros((0, 3), np.int64)):
        ask(empty)
    ask(np.array(0))
    ask(np.uint64(0))
    ask(int(DEAD))


@states_of
def test_numbers_that_are_no_states(trie: LoudsTrie, taker: Any) -> None:
    ask = taker(trie)
    n = len(trie._core.terminal)
    inside = int(trie.walk((5,)))
    foreign = [n, n + 1, 2**40 - 1, 1 << 40, 3 << 40, inside + (5 << 40), 2**63, 2**64 - 2]
    for bad in foreign:
        with pytest.raises(ValueError, match=rf"states = {bad} is no state of this index"):
            ask(bad)
        with pytest.raises(ValueError, match=rf"states\[1\] = {bad} is no state"):
            ask([0, bad])
        with pytest.raises(ValueError, match=rf"states\[1, 0\] = {bad} is no state"):
            ask(np.array([[0, 0], [bad, bad]], np.uint64))
    for bad in (-1, -(2**63), 2**64, -(2**70), 10**30):
        with pytest.raises(ValueError, match=rf"states = {bad} is out of range"):
            ask(bad)
        with pytest.raises(ValueError, match=rf"states\[1\] = {bad} is out of range"):
            ask([0, bad])


@states_of
@pytest.mark.parametrize(
    "wrong",
    [None, 0.0, float("nan"), "0", [0.0], ["a"], [None], [True], np.array([False]), np.zeros(0),
     np.array([0.0]), np.array([0], object), {0}, object(), np.float32(0), (i for i in [0])],
    ids=case_name,
)  # fmt: skip
def test_what_is_no_state_at_all(trie: LoudsTrie, taker: Any, wrong: Any) -> None:
    with pytest.raises(TypeError, match="states must be integers, got"):
        taker(trie)(wrong)


def test_ragged_states(trie: LoudsTrie) -> None:
    with pytest.raises(ValueError, match="states must be a regular array of integers"):
        trie.children([[0], [0, 1]])


def test_states_and_tokens_that_do_not_fit(trie: LoudsTrie) -> None:
    with pytest.raises(ValueError, match=r"broadcast|shape mismatch"):
        trie.advance([0, 0, 0], [1, 2])
    assert trie.advance(np.zeros((3, 1), int), np.array([1, 2], np.uint8)).shape == (3, 2)
    assert trie.advance(0, []).shape == (0,)
    assert isinstance(trie.advance(0, 1), np.uint64)
    assert isinstance(trie.advance(np.array(0), np.array(1)), np.uint64)


# ---- sequences ----------------------------------------------------------------------------------

SEQUENCE_TAKERS: list[tuple[str, Callable[[LoudsTrie], Ask]]] = [
    ("walk", lambda trie: trie.walk),
    ("key_id", lambda trie: trie.key_id),
    ("prefixes", lambda trie: lambda sequence: list(trie.prefixes(sequence))),
    ("completions", lambda trie: lambda sequence: list(trie.completions(sequence))),
    ("key_ids", lambda trie: lambda sequence: trie.key_ids([sequence]).tolist()),
    ("advance", lambda trie: lambda sequence: trie.advance(0, sequence).tolist()),
]
sequences_of = pytest.mark.parametrize(
    "taker", [pytest.param(taker, id=name) for name, taker in SEQUENCE_TAKERS]
)


@sequences_of
def test_sequences_of_any_integers(trie: LoudsTrie, taker: Any) -> None:
    ask = taker(trie)
    for key in KEYS:
        want = ask(key)
        for array in odd_arrays(list(key)):
            assert ask(array) == want
    assert trie.walk(iter((1, 2))) == trie.walk(range(1, 3)) == trie.walk((1, 2))
    assert trie.walk([Five(), np.uint32(70_000)]) == trie.walk((5, 70_000))
    assert list(trie.completions(np.zeros(0, np.int64))) == sorted(KEYS)


@sequences_of
@pytest.mark.parametrize("bad", [-1, 2**32 - 1, 2**32, 2**63, 2**64, -(2**63), 10**30])
def test_tokens_out_of_range(trie: LoudsTrie, taker: Any, bad: int) -> None:
    ask = taker(trie)
    with pytest.raises(ValueError, match=rf"{bad}.*out of range"):
        ask([1, bad])
    with pytest.raises(ValueError, match=rf"{bad}.*out of range"):
        ask((1, 2, 3, 4, bad))
    if -(2**63) <= bad < 2**63:
        with pytest.raises(ValueError, match=rf"\[1\] = {bad} is out of range"):
            ask(np.array([1, bad]))
    assert (1, bad) not in trie
    assert [bad] not in trie
    assert np.array([1, max(min(bad, 2**63 - 1), -9)]) not in trie


@sequences_of
@pytest.mark.parametrize(
    "wrong",
    [[1.0], (1, "2"), "12", ["1"], [None], (1, float("nan")), np.array([1.0]), np.array([True]),
     np.array(["1"])],
    ids=case_name,
)  # fmt: skip
def test_what_are_no_tokens(trie: LoudsTrie, taker: Any, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"must be integers, got|interpreted as an integer"):
        taker(trie)(wrong)
    with pytest.raises(TypeError, match=r"must be integers, got|interpreted as an integer"):
        wrong in trie  # noqa: B015


@sequences_of
@pytest.mark.parametrize("wrong", [[True], (1, False), [1, True], (5, 70_000, True)], ids=case_name)
def test_bools_are_no_tokens(trie: LoudsTrie, taker: Any, wrong: Any) -> None:
    with pytest.raises(TypeError, match="must be integers, got"):
        taker(trie)(wrong)
    with pytest.raises(TypeError, match="must be integers, got"):
        wrong in trie  # noqa: B015
    with pytest.raises(TypeError, match=r"position .*not an integer"):
        KeyTable.from_sequences([(1,), wrong])
    with pytest.raises(TypeError, match=r"must be integers, got|a bool among them"):
        trie.children([0, True])


@pytest.mark.parametrize("token", [0, 1, 2**30 - 1, 2**30, 2**31, 2**32 - 2])
def test_one_key_of_any_token(token: int) -> None:
    for key in [(token,), (token,) * 63, (token,) * 64, (token,) * 65, (token,) * 200]:
        trie = LoudsTrie.build(KeyTable.from_sequences([key]))
        for form in (key, list(key), np.array(key), iter(key)):
            assert trie.key_id(form) == 0
        assert key in trie
        assert (*key[:-1], token ^ 1) not in trie
        assert (*key, token) not in trie
        assert trie.is_terminal(trie.advance(trie.walk(key[:-1]), token))
        assert trie.is_terminal(int(trie.walk(list(key))))


@pytest.mark.parametrize("taker", [taker for _, taker in SEQUENCE_TAKERS[:-1]])
@pytest.mark.parametrize("wrong", [None, 5, 1.5, np.int64(5), object()], ids=case_name)
def test_what_is_no_sequence(trie: LoudsTrie, taker: Any, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"must be a sequence of integers, got"):
        taker(trie)(wrong)


@pytest.mark.parametrize("taker", [taker for _, taker in SEQUENCE_TAKERS[:-1]])
@pytest.mark.parametrize(
    "wrong", [[[1, 2], [1, 2]], np.ones((2, 2), int), np.array(5)], ids=case_name
)
def test_more_than_one_sequence(trie: LoudsTrie, taker: Any, wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError), match=r"one sequence|as an integer|must be"):
        taker(trie)(wrong)


def test_errors_name_the_sequence(trie: LoudsTrie) -> None:
    with pytest.raises(ValueError, match=r"sequences\[2\]\[1\] = -4 is out of range"):
        trie.key_ids([(1,), (2,), (1, -4), (5,)])
    with pytest.raises(TypeError, match=r"sequences\[1\] must be integers"):
        trie.key_ids([(1,), (2.5,)])
    with pytest.raises(TypeError, match=r"sequences\[1\] must be a sequence.*7"):
        trie.key_ids([(1,), 7])
    with pytest.raises(TypeError, match=r"sequences\[0\] must be a sequence"):
        trie.key_ids(np.array([1, 2]))
    with pytest.raises(TypeError, match="expected sequences of tokens, got 5"):
        trie.key_ids(5)
    with pytest.raises(TypeError, match="expected sequences of tokens, got None"):
        trie.key_ids(None)
    with pytest.raises(ValueError, match=r"rows\[1, 0\] = -1 is out of range"):
        trie.key_ids(np.array([[1, 2], [-1, 2]]))
    with pytest.raises(TypeError, match=r"rows must be integers.*float64"):
        trie.key_ids(np.ones((2, 2)))
    with pytest.raises(ValueError, match=r"sequences\[0\] must be one sequence.*\(2, 2\)"):
        trie.key_ids(np.ones((2, 2, 2), int))
    with pytest.raises((ValueError, TypeError), match=r"sequences\[0\]|tokens"):
        trie.key_ids([[[1, 2], [3, 4]], [[1, 2], [3, 4]]])


def test_no_sequences(trie: LoudsTrie) -> None:
    for none in ([], (), iter(()), np.zeros((0, 4), int)):
        assert trie.key_ids(none).tolist() == []
    assert trie.key_ids([(), [], np.zeros(0, int)]).tolist() == [-1, -1, -1]
    assert trie.key_ids(np.zeros((2, 0), np.int64)).tolist() == [-1, -1]
    assert () not in trie
    with pytest.raises(KeyError):
        trie.key_id(())
    with pytest.raises(KeyError, match=r"\(1, 2\)"):
        trie.key_id(np.array([1, 2]))
    with pytest.raises(KeyError, match=r"\(9,\)"):
        trie.key_id(range(9, 10))


def test_rows_in_any_layout(trie: LoudsTrie) -> None:
    rows = [[1, 2, 3], [1, 2, 4], [9, 9, 9]]
    want = [trie.key_id((1, 2, 3)), trie.key_id((1, 2, 4)), -1]
    for code in "bBhHiIqQ":
        array = np.array(rows, code)
        for same in (
            array,
            np.asfortranarray(array),
            array.astype(array.dtype.newbyteorder()),
            np.repeat(array, 2, axis=1)[:, ::2],
            array[::-1][::-1],
        ):
            assert trie.key_ids(same).tolist() == want


# ---- key numbers, steps -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["key", "key_tokens", "from_table_ids"])
def test_key_numbers(trie: LoudsTrie, name: str) -> None:
    ask = getattr(trie, name)
    for bad in (-1, 4, 2**63, 2**64, -(2**70)):
        with pytest.raises(IndexError, match=rf"key number = {bad} is out of range"):
            ask(bad)
        with pytest.raises(IndexError, match=rf"key number\[1\] = {bad} is out of range"):
            ask([0, bad])
    for wrong in (None, 1.0, "1", [1.5], [True], True, np.array([True]), np.zeros(0), [[None]]):
        with pytest.raises(TypeError, match="key number must be integers, got"):
            ask(wrong)
    with pytest.raises(ValueError, match="key number must be a regular array"):
        ask([[1], [1, 2]])
    if name == "key":
        assert [ask(array) for array in odd_arrays([0, 3])] == [[ask(0), ask(3)]] * len(
            odd_arrays([0, 3])
        )
        assert ask([]) == []


@pytest.mark.parametrize("name", ["token_range", "density"])
def test_steps(trie: LoudsTrie, name: str) -> None:
    ask = getattr(trie, name)
    assert ask(np.uint8(1)) == ask(1)
    for bad in (-1, 4, 2**64):
        with pytest.raises(IndexError, match=rf"step {bad} is out of range \(0\.\.3\)"):
            ask(bad)
    for wrong in (None, 0.5, 1.0, "1", [1]):
        with pytest.raises(TypeError, match="step must be an integer, got"):
            ask(wrong)


# ---- building, loading --------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [None, 5, "12", [(1, 2)], np.ones((2, 2), int), {}], ids=case_name)
def test_building_from_no_table(keys: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a KeyTable, got \w+; make one with"):
        LoudsTrie.build(keys)


@pytest.mark.parametrize(
    "tail", [None, 1, 0, "yes", "", np.array([True, False]), []], ids=case_name
)
def test_building_with_a_wrong_option(tail: Any) -> None:
    with pytest.raises(ValueError, match="tail must be True, False or 'auto', got"):
        LoudsTrie.build(KeyTable.from_sequences(KEYS), tail=tail)


def test_building_from_nothing() -> None:
    with pytest.raises(ValueError, match="at least one key"):
        LoudsTrie.build(KeyTable.from_sequences([]))


@pytest.mark.parametrize("read", [load, verify])
@pytest.mark.parametrize("wrong", [None, 5, 1.5, ["a"], b"name"], ids=case_name)
def test_paths_that_are_none(read: Any, wrong: Any, trie: LoudsTrie) -> None:
    with pytest.raises(TypeError, match=r"str|path"):
        read(wrong)
    with pytest.raises(TypeError, match=r"str|path"):
        trie.save(wrong)


def test_states_survive_a_file(trie: LoudsTrie, tmp_path: Path) -> None:
    trie.save(tmp_path / "index")
    state = trie.walk((5, 70_000))
    assert load(tmp_path / "index").children(state)[0].tolist() == [6]


@pytest.mark.parametrize("index", [None, 5, {(1, 2): 3}, KeyTable.from_sequences(KEYS)])
def test_searching_what_is_no_index(index: Any) -> None:
    with pytest.raises(TypeError, match=r"expected an index .*got \w+"):
        beam_search(index, [[1]], [[0.0]], beam_width=1)


# ---- beam search and its results ----------------------------------------------------------------


def found(trie: LoudsTrie, **options: Any) -> BeamResult:
    options = {
        "token_ids": [[2, 5], [1, 2]],
        "logprobs": [[-1.0, -2.0], [-1.0, 0.0]],
        "beam_width": 2,
        **options,
    }
    return beam_search(trie, **options)


@pytest.mark.parametrize(
    ("option", "value", "error", "words"),
    [
        *(
            (name, value, TypeError, rf"{name}: expected a number, got {kind}")
            for name in ("length_penalty", "min_token_logprob", "min_logprob")
            for value, kind in [
                (None, "NoneType"), ("1", "str"), (b"1", "bytes"), ([1], "list"), (1j, "complex"),
                (np.ones(2), "ndarray"),
            ]
        ),
        *(
            (name, 10**400, ValueError, rf"{name}: expected a number that fits a float")
            for name in ("length_penalty", "min_token_logprob", "min_logprob")
        ),
        ("duplicates", np.array(["error", "first"]), ValueError, "duplicates: expected .*array"),
        ("duplicates", None, ValueError, "duplicates: expected .*got None"),
        ("token_ids", [[0, 2**64 - 1], [1, 2]], ValueError,
         r"token_ids\[0, 0, 1\]: expected 0 to 4294967294, got 18446744073709551615"),
        ("token_ids", [[1, 2], [2**70, 2]], ValueError, rf"token_ids\[1, 0\] = {2**70} is out of"),
        ("token_ids", [[1, 2.5], [1, 2]], TypeError, "token_ids must be integers.*float64"),
        ("token_ids", [[None, 1], [1, 2]], TypeError, "token_ids must be integers.*object"),
        ("token_ids", [[True, False], [False, True]], TypeError, "token_ids: expected integers"),
    ],
)  # fmt: skip
def test_wrong_options_of_a_search(
    trie: LoudsTrie, option: str, value: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        found(trie, **{option: value})


def test_padding_may_hold_any_integer(trie: LoudsTrie) -> None:
    padded = found(trie, token_ids=[[2, 2**64 - 1]], logprobs=[[-1.0, -np.inf]])
    assert padded[0].sequences == [(2,)]
    assert found(trie, token_ids=[[Five(), 2]], logprobs=[[-1, -2]])[0].sequences == [(2,)]


@pytest.mark.parametrize("shape", [(0, 0), (0, 2), (2, 0), (1, 0, 2), (1, 2, 0)])
def test_searching_without_proposals(trie: LoudsTrie, shape: tuple[int, ...]) -> None:
    nothing = found(trie, token_ids=np.zeros(shape, int), logprobs=np.zeros(shape))
    assert [result.sequences for result in nothing] == [[]]
    assert BeamResult.from_bytes(nothing.to_bytes(), index=trie)[0].sequences == []


@pytest.mark.parametrize("wrong", [None, 1.0, "0", [0], np.array([0])], ids=case_name)
def test_what_is_no_query(trie: LoudsTrie, wrong: Any) -> None:
    with pytest.raises(TypeError, match="query: expected an int, got"):
        found(trie)[wrong]
    assert found(trie)[np.int8(0)].sequences == found(trie)[-1].sequences == [(2,)]


@pytest.mark.parametrize("kind", [BeamResult, QueryResult])
@pytest.mark.parametrize(
    "wrong",
    [None, 5, "abc", [1, 2], np.zeros(3), np.array([1], object), memoryview(b"ab" * 20)[::2]],
    ids=case_name,
)
def test_what_are_no_bytes(kind: Any, wrong: Any) -> None:
    # An array of objects holds addresses, which are not to be read as numbers.
    with pytest.raises(TypeError, match="expected contiguous bytes, got"):
        kind.from_bytes(wrong)


def test_results_for_what_is_no_index(trie: LoudsTrie) -> None:
    for results in (found(trie), found(trie, token_ids=[[9, 8]], logprobs=[[0, 0]])):
        for wrong in (5, "x", KEYS):
            with pytest.raises(TypeError, match="index: expected an index such as LoudsTrie, got"):
                BeamResult.from_bytes(results.to_bytes(), index=wrong)
            with pytest.raises(TypeError, match="index: expected an index such as LoudsTrie, got"):
                QueryResult.from_bytes(results[0].to_bytes(), index=wrong)
        data = results.to_bytes()
        for same in (data, bytearray(data), memoryview(data), np.frombuffer(data, np.uint8)):
            assert BeamResult.from_bytes(same)[0].sequences == results[0].sequences


# ---- items --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", [None, 1.0, "0", [0], np.array([0, 1]), np.float64(0)], ids=case_name
)
def test_what_is_no_key_number_of_items(trie: LoudsTrie, wrong: Any) -> None:
    items = ItemMap(trie, range(4), ["a", "b", "c", "d"])
    with pytest.raises(TypeError, match="key number must be an integer, not"):
        items.items(wrong)
    assert items.items(np.uint8(1)) == items.items(1)
    for bad in (-1, 4, 2**70):
        with pytest.raises(IndexError, match=rf"key number {bad} is not in \[0, 4\)"):
            items.items(bad)


@pytest.mark.parametrize(
    ("numbers", "names", "error", "words"),
    [
        ([0, 2**64 - 1], "ab", ValueError, r"row 1: key number 18446744073709551615 is not in"),
        ([0, 2**70], "ab", ValueError, r"key numbers\[1\] = \d+ is out of range"),
        ([[0], [1, 2]], "ab", ValueError, "key numbers must be a regular array of integers"),
        ([True, False], "ab", TypeError, "key numbers must be integers, got .*bool"),
        (None, "ab", TypeError, "key numbers must be integers, got None"),
        (1, "a", ValueError, "one dimension"),
        ([0, 1], None, TypeError, "names must be an iterable of str, not None"),
        ([0, 1], 5, TypeError, "names must be an iterable of str, not 5"),
        ([0, 1], ["a", b"b"], TypeError, "name 1 must be a str, not bytes"),
        ([0, 1], ["a", "\ud800"], ValueError, "name 1 cannot be encoded as UTF-8"),
    ],
)
def test_making_items(
    trie: LoudsTrie, numbers: Any, names: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        ItemMap(trie, numbers, list(names) if isinstance(names, str) else names)


@pytest.mark.parametrize("index", [None, 5, "x", KeyTable.from_sequences(KEYS)])
def test_items_of_what_is_no_index(index: Any) -> None:
    with pytest.raises(TypeError, match=r"expected an index such as LoudsTrie, not \w+"):
        ItemMap(index, [0], ["a"])


def test_items_of_any_integers(trie: LoudsTrie) -> None:
    want = [ItemMap(trie, [3, 0, 1], list("abc")).items(i) for i in range(4)]
    for numbers in odd_arrays([3, 0, 1]):
        items = ItemMap(trie, numbers, iter("abc"))
        assert [items.items(i) for i in range(4)] == want

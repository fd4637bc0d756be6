"""Results of beam search and their wire format."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from succinct import reference
from succinct.decode import BeamResult, QueryResult, beam_search
from succinct.errors import FormatError
from tests.lanes_encoder import EncodedTrie

CATALOG = [(1, 2, 3), (1, 2, 4), (1,), (70000, 5)]
TOKENS = [[[1, 70000], [2, 5], [3, 4]], [[9, 8], [2, 5], [3, 4]], [[70000, 2], [5, 2], [3, 4]]]
LOGPROBS = [[[-1.0, -2.0], [-0.5, -0.25], [-0.125, -0.125]]] * 3


@pytest.fixture(scope="module")
def trie():
    return EncodedTrie(CATALOG)


@pytest.fixture(scope="module")
def results(trie):
    return beam_search(trie, TOKENS, LOGPROBS, beam_width=9)


def test_access(results):
    assert len(results) == 3
    assert [len(result) for result in results] == [4, 0, 1]
    assert results[-1].sequences == results[2].sequences == [(70000, 5)]
    assert [result.sequences for result in results[1:]] == [[], [(70000, 5)]]
    assert repr(results) == "<BeamResult: 3 queries, 5 keys>"
    assert repr(results[0]) == "<QueryResult: 4 keys, best (1,) with score -1>"
    assert repr(results[1]) == "<QueryResult: no keys>"
    for query in (3, -4):
        with pytest.raises(IndexError, match="of a result of 3 queries"):
            results[query]
    assert results.offsets.tolist() == [0, 4, 4, 5]
    assert results.token_offsets.tolist() == [0, 1, 4, 7, 9, 11]
    assert [results[0].scores.dtype, results[0].logprobs.dtype] == [np.float64, np.float32]
    assert [results[0].key_ids.dtype, results[0].states.dtype] == [np.int64, np.uint64]


def test_bytes_equal_the_reference(results):
    batch = [list(zip(r.scores.tolist(), r.sequences, strict=True)) for r in results]
    assert results.to_bytes() == reference.batch_to_bytes(batch)
    assert results[0].to_bytes() == reference.record_to_bytes(batch[0])


def test_round_trip(trie, results):
    for index in (None, trie):
        read = BeamResult.from_bytes(results.to_bytes(), index=index)
        assert read.to_bytes() == results.to_bytes()
        single = QueryResult.from_bytes(memoryview(results[0].to_bytes()), index=index)
        pairs = [(single, results[0]), *zip(read, results, strict=True)]
        for got, expected in pairs:
            assert got.sequences == expected.sequences
            assert got.scores.tolist() == expected.scores.tolist()
            if index is not None:
                assert got.key_ids.tolist() == expected.key_ids.tolist()
                assert got.states.tolist() == expected.states.tolist()
            else:
                for name in ("key_ids", "states"):
                    with pytest.raises(ValueError, match="only with from_bytes"):
                        getattr(got, name)
            with pytest.raises(ValueError, match="no logprobs"):
                got.logprobs  # noqa: B018


def test_no_queries():
    empty = BeamResult.from_bytes(bytes(16))
    assert len(empty) == 0
    assert empty.to_bytes() == bytes(16)
    assert len(QueryResult.from_bytes(bytes(8))) == 0


def test_bytes_of_another_index(results):
    with pytest.raises(FormatError, match=r"query 0: \(1, 2, 3\) is not a key of the index"):
        BeamResult.from_bytes(results.to_bytes(), index=EncodedTrie([(1,)]))


def record(n, scores, ends, tokens):
    parts = np.array([n], "<u8"), np.array(scores, "<f8"), np.array(ends, "<u8")
    return b"".join(part.tobytes() for part in (*parts, np.array(tokens, "<u4")))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected a count of 8 bytes, got 0"),
        (bytes(7), "expected a count of 8 bytes, got 7"),
        (bytes(9), "expected 0 tokens of 4 bytes, got 1 bytes"),
        (record(2**64 - 1, [], [], []), "18446744073709551615 results need at least"),
        (record(1, [1], [2], [5]), "expected 2 tokens of 4 bytes, got 4"),
        (record(1, [1], [2**62], []), "expected 4611686018427387904 tokens"),
        (record(1, [1], [1], [5, 6]), "expected 1 tokens of 4 bytes, got 8"),
        (record(1, [np.nan], [1], [5]), "score 0 is NaN"),
        (record(2, [2, 1], [1, 2], [5, 6]), "scores do not ascend"),
        (record(2, [1, 2], [2, 2], [5, 6]), "ends of the sequences do not ascend"),
        (record(2, [1, 2], [0, 2], [5, 6]), "ends of the sequences do not ascend"),
        (record(2, [1, 2], [2**63, 2], [5, 6]), "ends of the sequences do not ascend"),
        (record(1, [1], [1], [2**32 - 1]), "expected tokens up to 4294967294"),
    ],
)
def test_malformed_record(data, message):
    with pytest.raises(FormatError, match=message):
        QueryResult.from_bytes(data)
    batch = np.array([1, 0, len(data)], "<u8").tobytes() + data
    with pytest.raises(FormatError, match=f"query 0: .*{message}"):
        BeamResult.from_bytes(batch)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ([2**64 - 1], "queries need a header of"),
        ([1, 0], "1 queries need a header of 24 bytes, got 16"),
        ([0, 8], "expected byte offset 0 to be 0, got 8"),
        ([1, 8, 8, 0], "expected byte offset 0 to be 0, got 8"),
        ([1, 0, 9, 0], "expected 9 bytes after the header, got 8"),
        ([1, 0, 0, 0], "expected 0 bytes after the header, got 8"),
        ([2, 0, 16, 8, 0], "byte offset 1 is out of order: 16"),
    ],
)
def test_malformed_batch(header, message):
    with pytest.raises(FormatError, match=message):
        BeamResult.from_bytes(np.array(header, "<u8").tobytes())


def test_not_bytes():
    with pytest.raises(TypeError, match="expected contiguous bytes, got str"):
        BeamResult.from_bytes("abc")


@given(st.binary(max_size=80), st.data())
def test_any_bytes(noise, data):
    trie = EncodedTrie(CATALOG)
    encoded = bytearray(beam_search(trie, TOKENS, LOGPROBS, beam_width=9).to_bytes())
    for at in data.draw(st.lists(st.integers(0, len(encoded) - 1), max_size=3)):
        encoded[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(encoded)))
    for read in (BeamResult.from_bytes, QueryResult.from_bytes):
        for damaged in (noise, encoded, encoded[:cut], encoded + noise):
            try:
                result = read(bytes(damaged))
            except FormatError:
                continue
            assert result.to_bytes() == bytes(damaged)

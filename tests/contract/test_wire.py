"""The record that results travel in: bytes written out by hand, then round trips."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from succinct import reference
from tests.implementations import each_index, each_library_index_and_device, over
from tests.strategies import MAX_TOKEN, searches, sequences


class ReferenceWire:
    record_from_bytes = staticmethod(reference.record_from_bytes)
    batch_from_bytes = staticmethod(reference.batch_from_bytes)
    record_again = staticmethod(lambda d: reference.record_to_bytes(reference.record_from_bytes(d)))
    batch_again = staticmethod(lambda d: reference.batch_to_bytes(reference.batch_from_bytes(d)))


class LibraryWire:
    @staticmethod
    def pairs(query):
        return list(zip(query.scores.tolist(), query.sequences, strict=True))

    @classmethod
    def record_from_bytes(cls, data):
        from succinct.decode.result import QueryResult

        return cls.pairs(QueryResult.from_bytes(data))

    @classmethod
    def batch_from_bytes(cls, data):
        from succinct.decode.result import BeamResult

        return [cls.pairs(query) for query in BeamResult.from_bytes(data)]

    @staticmethod
    def record_again(data):
        from succinct.decode.result import QueryResult

        return QueryResult.from_bytes(data).to_bytes()

    @staticmethod
    def batch_again(data):
        from succinct.decode.result import BeamResult

        return BeamResult.from_bytes(data).to_bytes()


each_wire = over({"reference": ReferenceWire, "library": LibraryWire}, "wire")

# Two sequences, best first: (7, 8) with -1.0 and (2**32 - 2,) with -2.5.
BEST_FIRST = [(-1.0, (7, 8)), (-2.5, (MAX_TOKEN,))]
RECORD = (
    b"\x02\0\0\0\0\0\0\0"  # two sequences
    + b"\0\0\0\0\0\0\x04\xc0"  # -2.5
    + b"\0\0\0\0\0\0\xf0\xbf"  # -1.0
    + b"\x01\0\0\0\0\0\0\0"  # the worse one ends after token 1
    + b"\x03\0\0\0\0\0\0\0"  # the better one after token 3
    + b"\xfe\xff\xff\xff"
    + b"\x07\0\0\0"
    + b"\x08\0\0\0"
)
EMPTY = bytes(8)
BATCH = struct.pack("<5Q", 3, 0, 8, 8 + len(RECORD), 16 + len(RECORD)) + EMPTY + RECORD + EMPTY

answers = st.lists(
    st.tuples(
        st.floats(allow_nan=False, allow_infinity=False), sequences(st.integers(0, MAX_TOKEN))
    ),
    max_size=6,
).map(lambda pairs: sorted(pairs, key=lambda pair: -pair[0]))


@each_wire
def test_record_by_hand(wire):
    assert wire.record_from_bytes(RECORD) == BEST_FIRST
    assert wire.record_again(RECORD) == RECORD
    assert wire.record_from_bytes(EMPTY) == []
    assert wire.record_again(EMPTY) == EMPTY


@each_wire
def test_batch_by_hand(wire):
    assert wire.batch_from_bytes(BATCH) == [[], BEST_FIRST, []]
    assert wire.batch_again(BATCH) == BATCH
    assert wire.batch_from_bytes(bytes(16)) == []
    assert wire.batch_again(bytes(16)) == bytes(16)


@each_wire
@given(batch=st.lists(answers, max_size=4))
def test_round_trip(wire, batch):
    data = reference.batch_to_bytes(batch)
    assert wire.batch_from_bytes(data) == batch
    assert wire.batch_again(data) == data
    for query in batch:
        record = reference.record_to_bytes(query)
        assert wire.record_from_bytes(record) == query
        assert wire.record_again(record) == record


@each_wire
def test_truncated_and_overlong_bytes(wire):
    for whole, read in ((RECORD, wire.record_from_bytes), (BATCH, wire.batch_from_bytes)):
        for data in (*(whole[:n] for n in range(len(whole))), whole + b"\0", whole + bytes(8)):
            with pytest.raises(ValueError):
                read(data)


@each_wire
@pytest.mark.parametrize("value", [0, 1, 4, 2**31, 2**61, 2**63, 2**64 - 1])
@pytest.mark.parametrize("place", [0, 3, 4])
def test_counts_and_ends_that_lie(wire, place, value):
    data = bytearray(RECORD)
    data[8 * place : 8 * place + 8] = struct.pack("<Q", value)
    if data != RECORD and not (place == 3 and value == 0):  # an empty sequence: no rule yet
        with pytest.raises(ValueError):
            wire.record_from_bytes(bytes(data))


@each_wire
@pytest.mark.parametrize("value", [1, 7, 2**31, 2**61, 2**64 - 1])
@pytest.mark.parametrize("place", range(5))
def test_batch_offsets_that_lie(wire, place, value):
    data = bytearray(BATCH)
    data[8 * place : 8 * place + 8] = struct.pack("<Q", value)
    with pytest.raises(ValueError):
        wire.batch_from_bytes(bytes(data))


@each_wire
def test_batch_with_unused_bytes(wire):
    with pytest.raises(ValueError):
        wire.batch_from_bytes(struct.pack("<3Q", 1, 8, 16) + EMPTY + EMPTY)


@each_index
@given(case=searches())
def test_search_results_as_bytes(build, case):
    catalog, token_ids, logprobs, options = case
    index = build(catalog)
    found = index.search(token_ids, logprobs, **options)
    data = index.search_bytes(token_ids, logprobs, **options)
    assert reference.batch_from_bytes(data) == [[r[:2] for r in query] for query in found]


@each_library_index_and_device
def test_bytes_read_with_an_index_name_keys_and_states(build):
    from succinct.decode.result import BeamResult

    index = build([(1, 2, 3), (1, 2, 4), (2,)])
    token_ids, logprobs = [[[1, 2], [2, 9], [4, 3]]], [[[-1.0, -2.0], [-1.0, 0.0], [-1.0, -2.0]]]
    results = index.result(token_ids, logprobs, beam_width=4)
    again = BeamResult.from_bytes(results.to_bytes(), index=index.raw)
    assert again[0].sequences == results[0].sequences
    assert np.array_equal(again[0].scores, results[0].scores)
    assert np.array_equal(again[0].key_ids, results[0].key_ids)
    assert np.array_equal(again[0].states, results[0].states)

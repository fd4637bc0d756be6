"""Measurements run, with small sizes: what they compare must give equal answers."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import billion, large
from bench.__main__ import SUITES, main
from bench.baselines.proposals import DictTrie, MarisaInt, MarisaOpt, Setting
from bench.peers import PackedTrie
from bench.report import as_text, write_markdown
from bench.suite import Plot, Table, add_ratios
from succinct import KeyTable, StepMap, reference


def test_maps_prints_json(capsys):
    assert main(["maps", "--quick", "--json", "--catalog", "industrial"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["machine"]["processor"]
    [table] = document["suites"]["maps"]
    assert all("nbytes" in row or row["note"] for row in table["rows"])


def test_bits_agree_and_are_timed(capsys):
    assert main(["bits", "--quick", "--json"]) == 0
    batches, calls, threads, sparse, packed = json.loads(capsys.readouterr().out)["suites"]["bits"]
    for table in (batches, calls, threads, sparse, packed):
        assert table["rows"]
    ours = [row for row in batches["rows"] if row["representation"] == "BitVector"]
    assert all(row["memory"] > 0 and row["select0_ns"] > 0 for row in ours)


def test_masking_agrees_and_is_timed(capsys):
    # The suite raises where a baseline that is meant to be exact finds other continuations.
    assert main(["masking", "--quick", "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["suites"]["masking"]
    assert all(table["rows"] for table in tables)
    steps, others, hook = tables[:3]
    assert {row["ids"] for row in steps["rows"]} == {"skewed", "uniform"}
    inexact = [row for row in others["rows"] if row["exact"] == "no"]
    assert all(0 <= row["missed"] <= 1 and 0 <= row["wrong"] <= 1 for row in inexact)
    assert all(row["us"] > 0 for row in hook["rows"])


def test_proposals_agree_and_are_timed(capsys):
    # The suite raises where a baseline that is meant to be exact finds other results.
    assert main(["proposals", "--quick", "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["suites"]["proposals"]
    assert all(table["rows"] for table in tables)


def test_filtering_agrees_and_is_timed(capsys):
    # The suite raises where a baseline keeps other beams.
    assert main(["filtering", "--quick", "--json", "--catalog", "watch"]) == 0
    steps, searches, batches, phases = json.loads(capsys.readouterr().out)["suites"]["filtering"]
    assert [row["step"] for row in steps["rows"]] == [1, 2, 3]
    assert all(row["plan"] > 0 and row["naive"] > 0 for row in steps["rows"][::2])
    assert all(row["requests_s"] > 0 for row in (*searches["rows"], *batches["rows"]))
    assert phases["rows"][0]["normalise"] > 0


def test_memory_is_measured(capsys):
    assert main(["memory", "--quick", "--json", "--catalog", "80 bits"]) == 0
    [table] = json.loads(capsys.readouterr().out)["suites"]["memory"]
    [row] = table["rows"]
    assert row["input_bytes"] == 1_000_000
    assert row["peak_bytes"] >= row["input_bytes"] + row["made_bytes"]


@given(
    st.sets(st.lists(st.integers(0, 5), min_size=1, max_size=5).map(tuple), min_size=1),
    st.integers(0, 2**32),
    st.integers(1, 12),
)
def test_proposal_baselines_equal_the_reference(sequences, seed, width):
    rng = np.random.default_rng(seed)
    n_steps, n_proposals = rng.integers(1, 6), rng.integers(1, 8)
    ids = np.array([rng.choice(8, n_proposals, replace=False) for _ in range(n_steps)])
    # Few values, so that scores tie.
    logprobs = -rng.integers(0, 4, ids.shape).astype(np.float32)
    setting = Setting(width, length_penalty=0.5, min_token_logprob=-3.0, min_logprob=-7.0)
    [wanted] = reference.beam_search(
        reference.Trie(sequences), [ids.tolist()], [logprobs.tolist()], **setting.arguments()
    )
    keys = KeyTable.from_sequences(sorted(sequences))
    peers = [MarisaOpt(keys, threads=2, match=match) for match in MarisaOpt.MATCHES]
    for peer in (*peers, MarisaInt(keys), MarisaInt(keys, scan=True), DictTrie(keys)):
        found = peer.search(ids, logprobs, setting)
        assert found.sequences == [result.sequence for result in wanted], peer.name
        assert found.scores.tolist() == [result.score for result in wanted], peer.name
        assert found.logprobs.tolist() == [result.logprob for result in wanted], peer.name


@given(st.sets(st.lists(st.integers(0, 70), min_size=1, max_size=4).map(tuple), min_size=1))
def test_packed_trie_numbers_keys_as_the_library_does(sequences):
    keys = KeyTable.from_sequences(sorted(sequences))
    peer = PackedTrie()
    peer.prepare(keys, [])
    peer.build()
    near = {(*key[:-1], key[-1] + 1) for key in sequences} | {(*key, 0) for key in sequences}
    asked = sorted(sequences | near | {key[:-1] for key in sequences if key[1:]})
    wanted = StepMap.build(keys, tail=False).key_ids(asked).tolist()
    for look_up in (peer.each, peer.batch):
        assert look_up(peer.encode_batch(asked)).tolist() == wanted
    peer.free()


def test_unknown_suite_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["nothing"])
    told = capsys.readouterr().err
    assert all(name in told for name in SUITES)


def a_table():
    rows = [{"n": 1, "kind": "a", "ns": 2.0}, {"n": 4, "kind": "a", "ns": 3.0}, {"n": 4}]
    add_ratios(rows, "ns", rows[0])
    columns = {"kind": "{}", "n": "{:,}", "ns": "{:.1f}", "ns_ratio": "{:.2f}x"}
    plot = Plot("n", "ns", "kind", "Time")
    return Table("times", "Times", columns, rows, "How it was done.", [plot])


def test_table_as_text():
    assert as_text(a_table()).splitlines() == [
        "",
        "Times",
        "kind  n   ns  ns_ratio",
        "a     1  2.0     1.00x",
        "a     4  3.0     1.50x",
        "-     4    -         -",
    ]


def test_page_with_plot(tmp_path):
    write_markdown(tmp_path, "all", "All", "Why.", {"cores": "2"}, [a_table()])
    page = (tmp_path / "all.md").read_text()
    assert "| a | 4 | 3.0 | 1.50x |" in page
    pytest.importorskip("matplotlib")
    assert "![Time](all-times.svg)" in page
    first = (tmp_path / "all-times.svg").read_bytes()
    write_markdown(tmp_path, "all", "All", "Why.", {"cores": "2"}, [a_table()])
    assert (tmp_path / "all-times.svg").read_bytes() == first


def test_large_tables_are_what_they_say(tmp_path):
    rows = np.concatenate(list(large.blocks(3000)))
    table = KeyTable.from_rows(rows)
    assert table.n_keys == 3000
    assert (table.tokens == rows.reshape(-1)).all()  # sorted and distinct as they come
    assert set((rows // large.CODES).T.tolist()[3]) == {3}
    large.write_rows(tmp_path / "rows.npy", 3000, lambda _: None)
    assert (np.load(tmp_path / "rows.npy") == rows).all()
    files = tmp_path / "tokens.npy", tmp_path / "offsets.npy"
    n_keys, n_tokens = large.write_ragged(*files, 3000, lambda _: None)
    tokens, offsets = map(np.load, files)
    ragged = KeyTable.from_flat(tokens, offsets)
    assert (ragged.n_keys, ragged.n_duplicates) == (n_keys, 0)
    assert n_tokens == len(tokens)
    assert (ragged.tokens == tokens).all()
    assert {len(key) for key in ragged} == {3, 4, 5}
    prefixes = {tuple(row[:length]) for row in rows.tolist() for length in (3, 4, 5)}
    assert set(ragged) <= prefixes


def test_billion_builds_and_looks_up(capsys, tmp_path):
    arguments = [str(tmp_path), "-n", "2e3,4e3", "--ragged", "--threads", "1,2", "--json"]
    assert billion.main([*arguments, "--markdown", str(tmp_path / "page")]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert len(rows) == 2 * 2 * 2 * len(billion._KINDS)
    assert all(row["file_bytes"] > 0 and row["anonymous_mb"] > 0 for row in rows)
    sizes = {(row["series"], row["n_keys"]): set() for row in rows}
    for row in rows:
        sizes[row["series"], row["n_keys"]].add(row["file_bytes"])
    assert all(len(found) == 1 for found in sizes.values())
    assert [path.name for path in tmp_path.iterdir()] == ["page"]

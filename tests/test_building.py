"""Building in threads: the same bytes as the simplest builder, whatever the number."""

import itertools
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from succinct import KeyTable, LoudsTrie, StepMap, verify
from succinct.maps import layout as layouts
from succinct.trie.passes import Passes, by_frequency
from tests.strategies import catalogs
from tests.test_steps import semantic_ids

NAMES = ("bitmap", "joint", "packed", "sparse", "dac", "rice", "huffman", "small", "fast")
THREADS = range(1, 9)


@given(st.lists(st.sampled_from([0, 1, 2, 3, 2**40]), min_size=1, max_size=70))
def test_tokens_by_frequency(counts):
    found = [t for t in range(len(counts)) if counts[t]]
    found.sort(key=lambda token: (-counts[token], token))
    tokens, ranks = by_frequency(np.array(counts, np.int64))
    assert tokens.tolist() == found
    assert [tokens[ranks[token]] for token in found] == found


def parts(index):
    """Everything that a file would hold."""
    arrays = {
        **index._arrays(),
        "prefixes": index._prefixes,
        "low": index._low,
        "high": index._high,
    }
    return {name: (array.dtype, array.tobytes()) for name, array in arrays.items()}


def steps(keys, names, threads, tail=False):
    """A StepMap, or what is wrong with one."""
    names = [names] * keys.max_length if isinstance(names, str) else names
    try:
        index = StepMap._build(Passes(keys, threads), names, tail)
    except ValueError as error:
        return str(error)
    return parts(index), index._params


def trie(keys, tail, threads):
    index = LoudsTrie._build(Passes(keys, threads), tail)
    return parts(index), index._params


def fits(keys, name):
    """Whether a representation of the keys is of a size that tests can afford."""
    passes = Passes(keys, 0)
    most = max(int(high) - int(low) for low, high in zip(passes.low, passes.high, strict=True))
    if name == "huffman":
        return most <= layouts.MAX_CODES
    return name not in ("bitmap", "dac") or most * len(keys.tokens) < 2**24


@given(catalog=catalogs, name=st.sampled_from(NAMES), threads=st.sampled_from(THREADS))
def test_steps_do_not_depend_on_threads(catalog, name, threads):
    keys = KeyTable.from_sequences(catalog)
    if fits(keys, name):
        for tail in (False, True):
            assert steps(keys, name, threads, tail) == steps(keys, name, 0, tail)


@given(
    catalog=catalogs, tail=st.sampled_from([False, True, "auto"]), threads=st.sampled_from(THREADS)
)
def test_tries_do_not_depend_on_threads(catalog, tail, threads):
    keys = KeyTable.from_sequences(catalog)
    assert trie(keys, tail, threads) == trie(keys, tail, 0)


def ragged(n, tokens, seed=0):
    """Sequences of 1 to 7 skewed tokens, among them many prefixes of others."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 8, n)
    flat = (tokens * random.random(lengths.sum()) ** 6).astype(np.int64)
    return KeyTable.from_flat(flat, np.concatenate([[0], np.cumsum(lengths)]))


TABLES = {
    "uint8": KeyTable.from_rows(np.random.default_rng(1).integers(0, 9, (4000, 5), np.uint8)),
    "uint16": KeyTable.from_rows(np.random.default_rng(2).integers(0, 300, (4000, 5))),
    "wide": KeyTable.from_rows(np.random.default_rng(3).integers(0, 2**32 - 1, (3000, 3))),
    "uint64": KeyTable.from_rows(
        np.array([(i // 7, i % 7 * 2**20, i) for i in range(3000)], np.uint64)
    ),
    "ragged": ragged(5000, 40),
    "ragged, wide": ragged(5000, 70_000),
    "long": KeyTable.from_sequences([(1,) * n for n in range(1, 90)] + [(1,) * 800, (2,) * 700]),
}


@pytest.mark.parametrize("table", TABLES)
def test_tables_of_thousands_of_keys(table):
    keys = TABLES[table]
    names = [name for name in NAMES if fits(keys, name)]
    mixed = [names[i % len(names)] for i in range(keys.max_length)]
    for layout in [*names, mixed]:
        expected = steps(keys, layout, 0)
        for threads in (1, 2, 3, 8):
            assert steps(keys, layout, threads) == expected
    for tail in (False, True):
        expected = trie(keys, tail, 0)
        for threads in (1, 2, 3, 8):
            assert trie(keys, tail, threads) == expected


def test_every_boundary_and_kind_is_among_the_tables():
    kinds = set()
    for keys in TABLES.values():
        for name in NAMES:
            if fits(keys, name):
                index = StepMap.build(keys, name, num_threads=2)
                kinds |= {
                    (step.kind, step.rows_kind if step.kind >= layouts.PACKED else None)
                    for step in index._steps
                }
                chunks = {step.chunks3 > 0 for step in index._steps if step.kind == layouts.DAC}
                kinds |= {("three chunks", three) for three in chunks}
    tokens = {(layouts.BITMAP, None), (layouts.JOINT, None)}
    rows = (layouts.ONE, layouts.STARTS, layouts.EXTRAS, layouts.OFFSETS)
    tokens |= {(layouts.HUFFMAN, kind) for kind in rows[1:3]}
    assert kinds >= tokens | {(layouts.PACKED, kind) for kind in rows} | {("three chunks", True)}


@pytest.mark.parametrize("cls", [StepMap, LoudsTrie])
def test_numbers_of_threads(cls):
    keys = TABLES["ragged"]
    assert parts(cls.build(keys, num_threads=None)) == parts(cls.build(keys))
    with pytest.raises(ValueError, match="num_threads: expected at least 1, got 0"):
        cls.build(keys, num_threads=0)
    with pytest.raises(TypeError, match="num_threads: expected an int"):
        cls.build(keys, num_threads=1.5)


# Whether tails may pay


@pytest.mark.parametrize("cls", [StepMap, LoudsTrie])
def test_auto_does_without_tails_that_cannot_pay(cls):
    keys = KeyTable.from_rows(semantic_ids(200_000, codes=4096))
    tracemalloc.start()
    index = cls.build(keys)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1.1 * index.nbytes + 2**22  # the sample does not grow with the table
    assert "n_tails" not in index.info()["tails"]
    assert parts(index) == parts(cls.build(keys, tail=False))
    assert cls.build(keys, tail=True).nbytes > index.nbytes


@pytest.mark.parametrize("cls", [StepMap, LoudsTrie])
def test_auto_takes_tails_that_pay(cls):
    endings = np.random.default_rng(0).integers(0, 5000, (300, 8))
    rows = [(i % 300, i // 300, *endings[i * 7919 % 300].tolist()) for i in range(80_000)]
    index = cls.build(KeyTable.from_rows(np.array(rows)))
    assert index.has_tail


PEAK = """
import sys
from pathlib import Path
import numpy as np
import succinct
from succinct import KeyTable

def resident(what):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(what))

build = getattr(succinct, sys.argv[1]).build
endings = np.random.default_rng(0).integers(0, 5000, (300, 8), np.uint16)
row = np.arange(600_000)
rows = np.concatenate([np.stack([row % 300, row // 300], 1), endings[row * 7919 % 300]], 1)
keys = KeyTable.from_rows(rows.astype(np.uint16), key_ids=False)
build(KeyTable.from_rows(rows[:70_000]), tail=True)  # the code is in memory then
Path("/proc/self/clear_refs").write_text("5")
before = resident("VmRSS:")
index = build(keys)
assert index.has_tail
beyond = resident("VmHWM:") - before
print((keys.nbytes + beyond) / (keys.nbytes + index.nbytes))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads what Linux tells of a process")
@pytest.mark.parametrize("cls", ["StepMap", "LoudsTrie"])
def test_tails_take_little_memory(cls):
    command = [sys.executable, "-c", PEAK, cls]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(ran.stdout) < 1.4


# Into a file


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_file_is_built_as_it_would_be_saved(table, threads, tmp_path):
    keys = TABLES[table]
    built, saved = tmp_path / "built", tmp_path / "saved"
    for cls, options in itertools.product((StepMap, LoudsTrie), ({"tail": False}, {"tail": True})):
        index = cls.build(keys, **options, num_threads=threads, path=built)
        other = cls.build(keys, **options)
        other.save(saved)
        assert built.read_bytes() == saved.read_bytes()
        assert index.n_keys == keys.n_keys
        assert index.nbytes == other.nbytes
        verify(built)


def test_building_a_file_takes_little_memory(tmp_path):
    rows = np.arange(300_000, dtype=np.uint16)[:, None] * np.uint16([1, 0, 0])
    rows[:, 1], rows[:, 2] = np.arange(300_000) // 2**16, np.arange(300_000) * 7919 % 60_000
    keys = KeyTable.from_rows(np.unique(rows, axis=0))
    for build in (
        lambda: StepMap.build(keys, "packed", path=tmp_path / "index"),
        lambda: StepMap.build(keys, "sparse", path=tmp_path / "index", num_threads=2),
        lambda: LoudsTrie.build(keys, False, path=tmp_path / "index"),
    ):
        tracemalloc.start()
        index = build()
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 0.2 * index.nbytes + 200_000


def test_nothing_is_left_of_a_file_that_fails(tmp_path, monkeypatch):
    path = tmp_path / "index"
    path.write_bytes(b"older")
    keys = TABLES["ragged"]

    def fail(*_, **arrays):
        arrays["topology"][:] = 1
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Passes, "fill_prefixes", fail)
        with pytest.raises(KeyboardInterrupt):
            LoudsTrie.build(keys, False, path=path)
    with pytest.raises(FileNotFoundError, match="missing"):
        StepMap.build(keys, path=tmp_path / "missing" / "index")
    with pytest.raises(IsADirectoryError):
        StepMap.build(keys, path=tmp_path)
    assert path.read_bytes() == b"older"
    assert [file.name for file in tmp_path.iterdir()] == ["index"]


FULL_DISK = """
import resource, signal, sys
from succinct import KeyTable, StepMap
keys = KeyTable.from_rows([[i % 100, i // 100] for i in range(10_000)])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    StepMap.build(keys, "sparse", path=sys.argv[1])
except OSError as error:
    print(error)
"""


def test_no_room_for_the_file(tmp_path):
    path = tmp_path / "index"
    path.write_bytes(b"older")
    command = [sys.executable, "-c", FULL_DISK, path]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "File too large" in ran.stdout
    assert str(path) in ran.stdout
    assert path.read_bytes() == b"older"
    assert [file.name for file in tmp_path.iterdir()] == ["index"]

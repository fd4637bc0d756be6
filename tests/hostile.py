"""Index files that nobody should load, and every question that an index answers.

``python -m tests.hostile FIRST COUNT`` makes a damaged file of every seed, loads it and asks the
index everything. It prints each seed before it starts with it, so that the last one printed is that
of a crash. What may happen: FormatError or OSError from `load`, ValueError from an answer.
"""

import faulthandler
import itertools
import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from succinct import (
    DEAD,
    FormatError,
    ItemMap,
    KeyTable,
    LoudsTrie,
    beam_search,
    format,
    load,
)
from succinct.index import Index
from tests import hostile_steps
from tests.hostile_steps import words_of

Params = dict[str, Any]
Arrays = dict[str, Any]
# Of what a file holds, that a test may change.
Content = tuple[Params, Arrays, dict[str, Any]]


def write(path: Path, params: Any, arrays: Mapping[str, Any], metadata: Any = None) -> None:
    """A file of these parts whose checksums fit; `metadata` replaces entries, None drops one."""
    entries = {
        "format": "succinct-tries",
        "format_version": "1",
        "kind": "LoudsTrie",
        "params": params if isinstance(params, str) else json.dumps(params),
        "checksums": json.dumps({name: format._crc32(array) for name, array in arrays.items()}),
    }
    entries |= metadata or {}
    kept = {name: value for name, value in entries.items() if value is not None}
    # Shapes are kept: ascontiguousarray makes one dimension of none.
    arrays = {
        name: np.ascontiguousarray(array).reshape(np.shape(array)) for name, array in arrays.items()
    }
    path.write_bytes(save(arrays, kept))


def content(path: Path) -> Content:
    """The parts of a file, as copies."""
    file = format.read(path, mmap=False)
    return (
        dict(file.params),
        {name: array.copy() for name, array in file.arrays.items()},
        {"kind": file.kind},
    )


# ---- files to start from ------------------------------------------------------------------------


def examples(folder: Path) -> list[Path]:
    """Sound files: plain and with tails, small and wide tokens, with items, more than a block."""
    rng = np.random.default_rng(7)
    small = [(1, 2, 3), (1, 2, 4), (2,), (2, 5, 6, 7)]
    words = [tuple(rng.integers(0, 5, rng.integers(1, 9)).tolist()) for _ in range(200)]
    wide = [(70_000, 5, 2**32 - 2, 9), (3,), (3, 65_536), (65_535, 65_536, 65_537, 65_538)]
    paths = []
    for i, (keys, tail) in enumerate(itertools.product((small, words, wide), (False, True))):
        table = KeyTable.from_sequences(keys)
        trie = LoudsTrie.build(table, tail=tail)
        items = ItemMap(trie, table, [f"item é {j}" for j in range(len(keys))]) if i % 2 else None
        paths.append(folder / f"{i}.safetensors")
        trie.save(paths[-1], items)
    return paths + hostile_steps.examples(folder)


# ---- damage -------------------------------------------------------------------------------------

ODD_VALUES: list[Any] = [
    None, True, "5", 1.5, -1, 0, 1, 2, 48, 2**31, 2**32, 2**40 - 1, 2**40, 2**48, 2**63, 2**64,
    10**400, [], {}, {"alpha": 1}, float("nan"), float("inf"), [[[]]],
]  # fmt: skip


def damage_param(rng: np.random.Generator, parts: Content) -> None:
    params, _, _ = parts
    name = rng.choice(list(params))
    if rng.random() < 0.1:
        del params[name]
    elif isinstance(params[name], int) and rng.random() < 0.4:
        params[name] += int(rng.integers(-3, 4))
    else:
        params[name] = ODD_VALUES[rng.integers(len(ODD_VALUES))]


def damage_array(rng: np.random.Generator, parts: Content) -> None:
    _, arrays, _ = parts
    name = str(rng.choice(list(arrays)))
    array = arrays[name]
    other = arrays[str(rng.choice(list(arrays)))]
    changes: list[Callable[[], Any]] = [
        lambda: array[: rng.integers(len(array) + 1)],
        lambda: np.concatenate([array, array[: rng.integers(1, 9)]]),
        lambda: array.astype(rng.choice(["u1", "u2", "u4", "u8", "i8", "i4", "f4", "f8", "?"])),
        lambda: array.reshape(1, -1),
        lambda: array.reshape(-1, 1)[:, :0],
        lambda: array[:0],
        lambda: np.array(5, array.dtype),
        lambda: flipped(rng, array, 1),
        lambda: flipped(rng, array, 20),
        lambda: np.zeros_like(array),
        lambda: np.full_like(array, np.iinfo(array.dtype).max),
        lambda: np.frombuffer(rng.bytes(array.nbytes), array.dtype).copy(),
        lambda: rng.permutation(array),
        lambda: other,
        lambda: None,
    ]
    arrays[name] = changes[rng.integers(len(changes))]()
    if arrays[name] is None:
        del arrays[name]
    if rng.random() < 0.05:
        arrays[str(rng.choice(["extra", "items/text", "link", "items/"]))] = other


def flipped(rng: np.random.Generator, array: Any, count: int) -> Any:
    data = array.copy().view(np.uint8)
    for at in rng.integers(0, 8 * max(1, data.size), count).tolist():
        data[at // 8 : at // 8 + 1] ^= 1 << (at % 8)
    return data.view(array.dtype)


def damage_metadata(rng: np.random.Generator, parts: Content) -> None:
    changes: list[dict[str, str | None]] = [
        {"format": None},
        {"format": "other"},
        {"format_version": None},
        {"format_version": str(format.VERSION + 1)},
        {"format_version": "0"},
        {"format_version": "-1"},
        {"format_version": "1" * 5000},
        {"format_version": "²"},
        {"kind": None},
        {"kind": "Index"},
        {"kind": "LoudsTrie "},
        {"kind": "LoudsTrie"},
        {"kind": "StepMap"},
        {"params": None},
        {"params": "[]"},
        {"params": "{" * 100},
        {"params": "[" * 100_000},
        {"params": '{"n_nodes": ' + "9" * 5000 + "}"},
        {"checksums": None},
        {"checksums": "{}"},
        {"checksums": "3"},
    ]
    parts[2].update(changes[rng.integers(len(changes))])


def garbage(rng: np.random.Generator, parts: Content) -> None:
    """Replace everything by noise whose sizes and counts agree, so that it gets past them."""
    params, arrays, metadata = parts
    if metadata["kind"] == "StepMap":
        hostile_steps.garbage(rng, params, arrays)
    else:
        garbage_louds(rng, params, arrays)


def garbage_louds(rng: np.random.Generator, params: Params, arrays: Arrays) -> None:
    """Likewise for a LoudsTrie."""
    n = int(rng.choice([2, 3, 40, 255, 256, 600, 3000]))
    degrees = rng.multinomial(n - 1, rng.dirichlet(np.full(n, rng.choice([0.05, 1.0]))))
    if rng.random() < 0.9:  # a tree in level order: the cycle lemma finds the right rotation
        degrees = np.roll(degrees, -1 - int(np.argmin(np.cumsum(degrees - 1))))
    topology = np.concatenate([[1, 0], *([1] * d + [0] for d in degrees)])
    if rng.random() < 0.05:
        topology = rng.permutation(topology)
    terminal = rng.random(n) < rng.choice([0.1, 0.9])
    terminal[:2] = False, True
    link = rng.random(n) < rng.choice([0.0, 0.2, 0.9])
    link[0] = False
    tail_length = int(rng.choice([0, 1, 2, 50, 1000]))
    if not tail_length:
        link[:] = False
    tail_end = rng.random(tail_length) < rng.choice([0.01, 0.5])
    tail_end[-1:] = True
    label_width, link_width, tail_width = (
        int(rng.integers(0, limit + 1)) for limit in (16, rng.choice([0, 1, 48]), 32)
    )

    def packed(length: int, width: int) -> Any:
        return np.frombuffer(rng.bytes(8 * ((length * width + 63) // 64 + 1)), np.uint64)

    span = int(rng.choice([1, tail_length + 1, 65536]))
    levels = int(rng.choice([1, 3, 20]))
    prefixes = np.ones(levels + 1, np.int64)
    total = n if not tail_length or rng.random() < 0.3 else n * 7
    prefixes[1] += max(0, total - int(prefixes.sum()))
    high = rng.integers(1, 2 ** int(rng.choice([1, 8, 16])), levels).astype(np.uint32)
    params |= {
        "n_nodes": n,
        "n_keys": int(terminal.sum()),
        "label_high_width": label_width,
        "link_high_width": link_width,
        "tail_length": tail_length,
        "tail_width": tail_width,
    }
    arrays |= {
        "topology": words_of(topology),
        "terminal": words_of(terminal),
        "slots": rng.integers(0, span, n).astype(np.uint16),
        "label_high": packed(n - int(link.sum()), label_width),
        "link": words_of(link),
        "link_high": packed(int(link.sum()), link_width),
        "tail": packed(tail_length, tail_width),
        "tail_end": words_of(tail_end),
        "level_prefixes": prefixes,
        "level_low": np.zeros(levels, np.uint32),
        "level_high": high,
    }
    for name in [name for name in arrays if name.startswith("items/")]:
        del arrays[name]


def damage_items(rng: np.random.Generator, parts: Content) -> None:
    """Noise in the offsets of item names, the ends excepted, and in their text."""
    _, arrays, _ = parts
    for name in ("items/name_offsets", "items/key_offsets", "items/text"):
        if name in arrays and rng.random() < 0.7:
            array = arrays[name]
            arrays[name] = np.frombuffer(rng.bytes(array.nbytes), array.dtype).copy()
            if name != "items/text" and array.ndim == 1 and array.size:
                arrays[name][[0, -1]] = array[[0, -1]]


def damage_bytes(rng: np.random.Generator, data: bytes) -> bytes:
    head = int.from_bytes(data[:8], "little")
    places = [0, 4, 8, 8 + head // 2, 8 + head, len(data) - 1, int(rng.integers(len(data)))]
    at = places[rng.integers(len(places))]
    lengths = [0, 1, head - 1, head + 8, len(data), 2**31, 2**63, 2**64 - 1]
    header_bit = int(rng.integers(8 * (8 + head)))
    changes: list[Callable[[], bytes]] = [
        lambda: data[:at],
        lambda: data + rng.bytes(9),
        lambda: lengths[rng.integers(len(lengths))].to_bytes(8, "little") + data[8:],
        lambda: data[:at] + rng.bytes(8) + data[at + 8 :],
        lambda: rng.bytes(int(rng.integers(300))),
        lambda: bytes(flipped(rng, np.frombuffer(data, np.uint8), 1)),
        lambda: (
            data[: header_bit // 8]
            + bytes([data[header_bit // 8] ^ (1 << header_bit % 8)])
            + data[header_bit // 8 + 1 :]
        ),
        lambda: data.replace(b'"shape":[', b'"shape":[1,' + b"1," * int(rng.choice([0, 99]))),
    ]
    return changes[rng.integers(len(changes))]()


def damaged(rng: np.random.Generator, path: Path, out: Path) -> None:
    """Write to `out` a damaged copy of the file at `path`."""
    parts = content(path)
    kinds = (damage_param, damage_array, damage_metadata, garbage, damage_items)
    draw = rng.random()
    if draw < 0.4:
        garbage(rng, parts)
    if draw > 0.3:
        for _ in range(rng.integers(1, 3)):
            kinds[rng.integers(len(kinds))](rng, parts)
    write(out, *parts)
    if rng.random() < 0.2:
        out.write_bytes(damage_bytes(rng, out.read_bytes()))


# ---- questions ----------------------------------------------------------------------------------


class Bounded:
    """An array that is read by single positions, or rows, that it has."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, i: Any) -> Any:
        for at, length in zip(i if isinstance(i, tuple) else (i,), self.array.shape, strict=False):
            if not 0 <= at < length:
                raise AssertionError(f"read at {i} of an array of shape {self.array.shape}")
        return self.array[i]


def bounded(lanes: Any) -> Any:
    """Lane arrays that do not let anything be read outside."""
    if isinstance(lanes, tuple):
        return type(lanes)(*map(bounded, lanes))
    return Bounded(lanes) if isinstance(lanes, np.ndarray) else lanes


def ask_lanes(index: Index, states: Any) -> None:
    """The lanes of an index, uncompiled, stay inside their arrays and say what the index says."""
    lanes, arrays = index.lanes, bounded(index.lane_arrays())
    # Where the numbers of a damaged index do not ascend, what is found depends on the search.
    sound = index._fault() is None
    exact = sound or isinstance(index, LoudsTrie)
    for state in (*states[:50], DEAD):
        first, count = lanes.child_range(arrays, state)
        got = [lanes.nth_child(arrays, state, first, np.int64(k)) for k in range(min(count, 20))]
        tokens, children = index.children(state)
        if count < 1000:
            listed = np.empty(count, np.uint32), np.empty(count, np.uint64)
            lanes.list_children(arrays, state, first, count, *listed, np.int64(0))
            assert not exact or np.array_equal(listed, (tokens, children))
        if exact:
            assert count == len(tokens)
            assert [int(token) for token, _ in got] == tokens[:20].tolist(), state
            assert [int(child) for _, child in got] == children[:20].tolist(), state
            assert lanes.has_children(arrays, state) or count == 0
        assert lanes.is_terminal(arrays, state) == index.is_terminal(state)
        assert lanes.key_number(arrays, state) == index.state_key_ids(state)
        first_state, end = lanes.extensions(arrays, state)
        for _ in range(10):
            low, high = lanes.key_range(arrays, first_state, end)
            assert 0 <= low <= high <= index.n_keys
            first_state, end = lanes.descend(arrays, first_state, end)
        for token in [0, *tokens[:5].tolist(), 2**32 - 2]:
            if token < 2**32 - 1:
                child = lanes.find_child(arrays, state, first, count, np.int64(token))
                assert child == index.advance(state, token) or not sound
                index.is_terminal(child)


def odd_states(index: Index) -> list[int]:
    """Numbers near those of states, inside chains and tails too."""
    if isinstance(index, LoudsTrie):
        n = len(index._core.terminal)
        nodes, places = (0, 1, n // 2, n - 1, n, 2**40 - 1), (0, 1, 2, 2**24 - 1)
        return [node | place << 40 for node in nodes for place in places]
    shift, n = index._core.shift, index.n_keys
    plain = int(index._core.table[:, 0].sum()) + 1
    nodes, keys = (1, 2, 3, 50, 2**24), (0, 1, n // 2, n - 1, n, 2**20)
    return [plain - 1, plain, *(key | node << shift for node in nodes for key in keys)]


def ask(trie: Index, folder: Path) -> None:
    """Every question to an index from a file; ValueError is an answer."""

    def attempt(question: Callable[[], Any]) -> Any:
        try:
            return question()
        except ValueError:  # FormatError is one
            return None

    trie.info()
    json.dumps(trie.info(), allow_nan=False)
    repr(trie)
    for step in range(min(50, trie.max_length)):
        trie.density(step)
    # States from above, in level order, and any that the trie takes as such.
    states = [trie.root]
    tokens = set()
    for state in states:
        found, children = trie.children(state)
        tokens.update(found[:40].tolist())
        states += [child for child in children if child != DEAD][: 300 - len(states)]
    tried = [number for number in odd_states(trie) if number < 2**64]
    states += [np.uint64(s) for s in tried if attempt(lambda s=s: trie.is_terminal(s)) is not None]
    array = np.array(states, np.uint64)
    sample = sorted(t for t in tokens if t < 2**32 - 1)[:40] or [0]

    trie.children(array)
    trie.is_terminal(array)
    trie.state_key_ids(array)
    trie.advance(array[:, None], np.array([0, *sample]))
    few = max(1, min(len(array), 2**27 // trie.vocab_size))
    trie.allowed_mask(array[:few])
    for _ in range(2):
        path = [sample[i % len(sample)] for i in range(30)]
        trie.walk(path)
        attempt(lambda path=path: list(trie.prefixes(path)))
        sample.reverse()
    for prefix in [(), (sample[0],), sample]:
        keys = list(itertools.islice(trie.completions(prefix), 1000))
        attempt(lambda keys=keys: trie.key_ids(keys))
        attempt(lambda keys=keys: [key in trie for key in keys[:50]])
    numbers = range(trie.n_keys)
    keys = [key for number in numbers if (key := attempt(lambda i=number: trie.key(i)))]
    attempt(lambda: trie.key(np.array(numbers)))
    attempt(lambda: trie.key_ids(keys))
    attempt(lambda: trie.from_table_ids(np.array(numbers)))
    if trie.items is not None:
        assert trie.items.nbytes >= 0
        for number in numbers:
            attempt(lambda i=number: trie.items.items(i))
        attempt(trie.items.verify)
    attempt(trie._fault)
    with np.errstate(over="ignore"):
        ask_lanes(trie, states)
    steps = min(trie.max_length, 6)
    proposals = np.tile(np.array(sample), (steps, 1))
    logprobs = -np.arange(proposals.size, dtype=np.float32).reshape(proposals.shape)
    found = beam_search(trie, proposals, logprobs, beam_width=[1000] * steps, max_results=1000)
    assert len(found[0].sequences) <= 1000

    copy = folder / "copy.safetensors"
    trie.save(copy)
    assert load(copy).n_keys == trie.n_keys


def run_seed(seed: int, paths: list[Path], folder: Path) -> bool:
    """Whether the file of this seed could be loaded; answers are asked for then."""
    rng = np.random.default_rng(seed)
    path = folder / "damaged.safetensors"
    damaged(rng, paths[seed % len(paths)], path)
    try:
        trie = load(path, mmap=bool(seed % 3))
    except (FormatError, OSError):
        return False
    ask(trie, folder)
    return True


def main(first: int, count: int) -> None:
    """Run seeds; the numbers of loaded and refused files come last."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = examples(folder)
        loaded = 0
        for seed in range(first, first + count):
            print("seed", seed, flush=True)
            # A hang is a failure too; the first seeds compile the engines.
            faulthandler.dump_traceback_later(300, exit=True)
            loaded += run_seed(seed, paths, folder)
            faulthandler.cancel_dump_traceback_later()
    print(f"loaded {loaded}, refused {count - loaded}")


if __name__ == "__main__":
    faulthandler.enable()
    main(int(sys.argv[1]), int(sys.argv[2]))

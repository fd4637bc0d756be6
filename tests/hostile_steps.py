"""What `tests.hostile` needs of StepMaps: sound files to start from, and noise that fits."""

from pathlib import Path
from typing import Any

import numpy as np

from succinct import ItemMap, KeyTable, StepMap
from succinct.maps import code as codes
from succinct.maps import layout as layouts
from succinct.maps import suffixes
from succinct.maps.layout import Shape, Step


def words_of(bits: Any) -> Any:
    """Padded words of bits, as bit-vectors are stored."""
    words = np.zeros(8 * (len(bits) // 512 + 1), np.uint64)
    packed = np.packbits(bits, bitorder="little")
    words.view(np.uint8)[: packed.size] = packed
    return words


def examples(folder: Path) -> list[Path]:
    """Sound files: every representation, with tails and without, some with items."""
    rng = np.random.default_rng(8)
    small = [(1, 2, 3), (1, 2, 4), (2,), (2, 5, 6, 7)]
    words = [tuple(rng.integers(0, 5, rng.integers(1, 9)).tolist()) for _ in range(200)]
    ids = [tuple(row) for row in rng.integers(0, 60, (600, 4)).tolist()]
    wide = [(70_000, 5, 2**32 - 2, 9), (3,), (3, 65_536), (65_535, 65_536, 65_537, 65_538)]
    paths = []
    for keys, layout in (
        (small, "bitmap"),
        (words, "small"),
        (words, "dac"),
        (ids, ["bitmap", "joint", "packed", "sparse"]),
        (ids, ["packed", "packed", "joint", "dac"]),
        (ids, ["rice", "packed", "rice", "rice"]),
        (words, "rice"),
        (ids[:90], ["huffman", "packed", "huffman", "huffman"]),
        (words[:60], "huffman"),
        (wide, "small"),
        (wide, "joint"),
    ):
        table = KeyTable.from_sequences(keys)
        for tail in (False, True):
            index = StepMap.build(table, layout, tail)
            i = len(paths)
            names = [f"item é {j}" for j in range(len(keys))]
            paths.append(folder / f"steps-{i}.safetensors")
            index.save(paths[-1], ItemMap(index, table, names) if i % 5 == 0 else None)
    return paths


def code_lengths(rng: np.random.Generator, n: int) -> Any:
    """How many of n entries have codes of 0, 1, ... bits."""
    return np.bincount(rng.integers(0, rng.integers(1, 20), n), minlength=33)


def garbage(rng: np.random.Generator, params: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Replace everything by noise whose sizes and counts agree, so that it gets past the checks."""
    count = int(rng.integers(1, 5))
    prefixes, low, high, steps, shapes = [1], [], [], [], []
    rows = n_keys = 1
    n_keys = 0
    for i in range(count):
        span = int(rng.choice([1, 2, 60, 300, 70_000]))
        entries = int(rng.integers(rows, min(rows * span, 2000) + 1))
        inner = 0 if i + 1 == count else int(rng.choice([entries, rng.integers(1, entries + 1)]))
        final = int(rng.choice([0, inner, rng.integers(0, inner + 1)]))
        least = int(rng.choice([0, 5, 2**32 - 1 - span]))
        shape = Shape(entries, rows, least, span, inner, final, code_lengths(rng, entries))
        n_codes = int(rng.integers(-(-entries // rows), span + 1))
        shape.huffman_sizes = int(rng.integers(0, 20 * entries)), n_codes
        shape.rice_sizes = rng.integers(1, 20 * entries, 1 + layouts.RICE_PARAMETERS)
        names = ["joint", "packed", "sparse", "dac", "rice"] + ["bitmap"] * (rows * span < 2**16)
        names += ["huffman"] * (entries < 100 and span <= 2**16)
        steps.append(layouts.choose(str(rng.choice(names)), shape))
        shapes.append(shape)
        prefixes.append(entries)
        low.append(least)
        high.append(least + span)
        n_keys += entries - inner + final
        rows = inner
    levels = np.array(prefixes), np.array(low, np.uint32), np.array(high, np.uint32)
    folded = rng.random() < 0.6
    tails: list[tuple[Step, Shape]] = []
    for name in ("tails", "step_prefixes", "step_low", "step_high"):
        arrays.pop(name, None)
    if folded:
        tails = tails_of(rng, n_keys, min(low), max(high) - min(low))
        names = ("step_prefixes", "step_low", "step_high")
        arrays |= dict(zip(names, levels, strict=True))
        arrays["tails"] = np.array([step for step, _ in tails], np.int64).reshape(-1)
        params |= {"n_nodes": tails[0][1].entries, "n_links": tails[1][1].entries}
        more = int(rng.integers(0, 6))
        levels = tuple(np.concatenate([level, np.repeat(level[-1:], more)]) for level in levels)  # type: ignore[assignment]
    coded = any(step.kind == layouts.DAC for step in [*steps, *(step for step, _ in tails[:1])])
    n_codes = int(rng.choice([1, 100, 5000])) if coded else 0
    width = (max(high) - 1).bit_length()
    place = layouts.lay_out(steps, shapes, (n_codes, width if n_codes else 0), tails)
    bits = np.zeros(place.n_bits, np.bool_)
    for at, length, ones in place.parts:
        bits[at + rng.permutation(length)[: ones + (rng.random() < 0.01)]] = True
    values = np.frombuffer(rng.bytes(8 * place.n_words), np.uint64).copy()
    for row in place.table.tolist():
        put_code(rng, values, dict(zip(layouts.COLUMNS, row, strict=True)))
    params |= {"n_keys": place.n_keys, "n_codes": n_codes, "tails": None}
    arrays |= {
        "bits": words_of(bits),
        "values": values,
        "steps": np.array(steps, np.int64).reshape(-1),
        "level_prefixes": levels[0],
        "level_low": levels[1],
        "level_high": levels[2],
    }
    for name in [name for name in arrays if name.startswith("items/")]:
        del arrays[name]


def put_code(rng: np.random.Generator, values: Any, row: dict[str, int]) -> None:
    """Write some code where the row of a step says that it has one."""
    if row["kind"] == layouts.HUFFMAN:
        code = codes.code_of(rng.integers(1, 1000, row["buckets"]))
        at, width = row["chunk3_at"] // 64, row["width3"]
        tokens = at + codes.TABLE_WORDS
        values[at:tokens] = code.table.view(np.uint64)
        values[tokens : tokens - (-row["buckets"] * width // 64)] = 0
        suffixes.put_values(values, 64 * tokens, code.tokens, width)


def tails_of(rng: np.random.Generator, n_keys: int, low: int, span: int) -> Any:
    """Labels of some nodes, and links of some keys to them."""
    n_nodes, n_links = int(rng.choice([1, 2, 70, 3000])), int(rng.integers(1, n_keys + 1))
    inner = int(rng.integers(0, n_nodes))
    labels = Shape(n_nodes, n_nodes, low, span, inner, code_lengths=code_lengths(rng, n_nodes))
    links = Shape(n_links, n_keys, 0, n_nodes)
    label = layouts.choose(str(rng.choice(["packed", "dac"])), labels)
    return [
        (label, labels),
        (suffixes.choose_links(links, rng.integers(0, n_nodes, n_links)), links),
    ]

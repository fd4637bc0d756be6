"""Every implementation of each contract, in one table; the suites run over all rows.

A new implementation is one more row. What differs between implementations (numpy arrays here,
lists there) is levelled here, so that the tests compare Python values: a tuple is one sequence,
a list is many of something.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from succinct import reference
from tests.gpu import runs

DEAD = reference.DEAD


def to_python(value: Any) -> Any:
    """Arrays to lists, numpy scalars to Python's, also inside tuples."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        return tuple(to_python(item) for item in value)
    return value


def to_numpy(argument: Any) -> Any:
    """A list of numbers to an array; anything else stays."""
    if not isinstance(argument, list) or any(isinstance(item, tuple) for item in argument):
        return argument
    if all(type(item) is int for item in argument):  # no floats in between: they lose bits
        dtype = np.uint64 if max(argument, default=0) >= 2**63 else np.int64
        return np.array(argument, dtype=dtype)
    return np.array(argument)


class Plain:
    """An object of the library that takes and gives Python values; `raw` is the object."""

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.raw, name)
        if not callable(attribute):
            return to_python(attribute)
        return lambda *args: to_python(attribute(*map(to_numpy, args)))

    def __getitem__(self, key: Any) -> Any:
        return to_python(self.raw[to_numpy(key)])

    def __len__(self) -> int:
        return len(self.raw)

    def __contains__(self, item: Any) -> bool:
        return item in self.raw

    def __iter__(self) -> Iterator[Any]:
        return map(to_python, self.raw)


# Bits


def library_class(name: str, run: str | None = None) -> Any:
    """A class of `succinct` whose constructors give `Plain` objects, on a device with `run`."""

    def construct(constructor: str | None, *args: Any, **options: Any) -> Plain:
        import succinct

        cls = getattr(succinct, name)
        call = getattr(cls, constructor) if constructor else cls
        arguments = list(map(to_numpy, args))
        if constructor == "from_words":
            arguments[0] = arguments[0].astype(np.uint64)
        built = call(*arguments, **options)
        return PlainOnDevice(built, run) if run else Plain(built)

    class Constructors:
        def __call__(self, *args: Any, **options: Any) -> Plain:
            return construct(None, *args, **options)

        def __getattr__(self, constructor: str) -> Callable[..., Plain]:
            return lambda *args, **options: construct(constructor, *args, **options)

    return Constructors()


class PlainOnDevice(Plain):
    """As `Plain`, for an object of `succinct_gpu`, whose kernels run where `run` says."""

    def __init__(self, host: Any, run: str) -> None:
        import succinct_gpu

        self.run = run
        with runs.running(run):
            super().__init__(succinct_gpu.to_device(host))

    def __getattr__(self, name: str) -> Any:
        attribute = super().__getattr__(name)
        if not callable(attribute):
            return attribute

        def call(*args: Any) -> Any:
            with runs.running(self.run):
                return attribute(*args)

        return call

    def __getitem__(self, key: Any) -> Any:
        with runs.running(self.run):
            return super().__getitem__(key)


NAMES = ("BitVector", "PackedArray", "EliasFano")
BITS = {
    "reference": SimpleNamespace(**{name: getattr(reference, name) for name in NAMES}),
    "library": SimpleNamespace(**{name: library_class(name) for name in NAMES}),
    **{
        run: SimpleNamespace(**{name: library_class(name, run) for name in NAMES})
        for run in runs.RUNS
    },
}

# Indexes, with a beam search over each


class ReferenceIndex(reference.Trie):
    floats = (np.float16, np.float32, np.float64)

    def search(self, token_ids: Any, logprobs: Any, **options: Any) -> list[list[Any]]:
        return reference.beam_search(self, token_ids, logprobs, **options)

    def search_bytes(self, token_ids: Any, logprobs: Any, **options: Any) -> bytes:
        found = self.search(token_ids, logprobs, **options)
        return reference.batch_to_bytes([[result[:2] for result in query] for query in found])

    def filter_step(self, hidden: Any, weight: Any, *args: Any, **options: Any) -> list[list[Any]]:
        return reference.filter_step(hidden, weight, self, *args, **options)

    def constrain(self, logprobs: Any, states: Any, **options: Any) -> Any:
        given = logprobs.tolist()
        found = reference.constrain(given, self, states, **options)
        assert found is given
        return np.array(found, logprobs.dtype).reshape(logprobs.shape)

    def candidates(self, logprobs: Any, states: Any, **options: Any) -> Any:
        return tuple(reference.candidates(logprobs.tolist(), self, states, **options))


class LibraryIndex(Plain):
    floats = (np.float16, np.float32, np.float64)

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        """Call a function of the library, with the index in the place of None."""
        import succinct

        args = tuple(self.raw if argument is None else argument for argument in args)
        return getattr(succinct, name)(*args, **options)

    def result(self, token_ids: Any, logprobs: Any, **options: Any) -> Any:
        n_tokens = max((len(step) for query in token_ids for step in query), default=1)
        shape = len(token_ids), len(token_ids[0]), n_tokens
        tokens = np.zeros(shape, dtype=np.int64)
        values = np.full(shape, -np.inf, dtype=np.float32)  # steps of fewer tokens are padded
        for place in np.ndindex(shape[:2]):
            step = token_ids[place[0]][place[1]]
            tokens[*place, : len(step)] = step
            values[*place, : len(step)] = logprobs[place[0]][place[1]]
        return self.call("beam_search", None, tokens, values, **options)

    def search(self, token_ids: Any, logprobs: Any, **options: Any) -> list[list[Any]]:
        found = self.result(token_ids, logprobs, **options)
        return [
            [
                reference.Result(score, tuple(sequence), logprob)
                for score, sequence, logprob in zip(
                    query.scores.tolist(), query.sequences, query.logprobs.tolist(), strict=True
                )
            ]
            for query in found
        ]

    def search_bytes(self, token_ids: Any, logprobs: Any, **options: Any) -> bytes:
        return self.result(token_ids, logprobs, **options).to_bytes()

    def filter_step(
        self, hidden: Any, weight: Any, states: Any, scores: Any, *args: Any, **options: Any
    ) -> list[list[Any]]:
        weight, states = np.array(weight, np.float32), np.array(states, np.uint64)
        hidden = np.array(hidden, np.float32).reshape(*states.shape, weight.shape[1])
        step = self.call("filter_step", hidden, weight, None, states, scores, *args, **options)
        return [
            list(map(reference.Continuation, *(to_python(part) for part in parts)))
            for parts in zip(step.scores, step.parents, step.tokens, step.states, strict=True)
        ]

    def constrain(self, logprobs: Any, states: Any, **options: Any) -> Any:
        given = logprobs.copy()
        states = np.array(states, np.uint64)
        assert self.call("constrain", given, None, states, **options) is given
        return given

    def candidates(self, logprobs: Any, states: Any, **options: Any) -> Any:
        states = np.array(states, np.uint64)
        return to_python(tuple(self.call("candidates", logprobs, None, states, **options)))

    def decoder(self, *args: Any, **options: Any) -> Any:
        return self.call("BeamDecoder", None, *args, **options)


class DecoderOnDevice:
    """A decoder whose steps run where `run` says."""

    def __init__(self, raw: Any, run: str) -> None:
        self.raw, self.run = raw, run

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.raw, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **options: Any) -> Any:
            with runs.running(self.run):
                return attribute(*args, **options)

        return call


class IndexOnDevice(LibraryIndex):
    """An index whose functions run on the device, or where `run` says."""

    floats = (np.float32,)  # of float16 there are tests in tests/gpu

    def __init__(self, host: LibraryIndex, run: str) -> None:
        super().__init__(host.raw)
        self.run = run

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        import succinct_gpu

        with runs.running(self.run):
            index = succinct_gpu.to_device(self.raw)
            args = tuple(index if argument is None else argument for argument in args)
            return getattr(succinct_gpu, name)(*args, **options)

    def decoder(self, *args: Any, **options: Any) -> Any:
        return DecoderOnDevice(super().decoder(*args, **options), self.run)


def build_louds(sequences: Any, **layout: Any) -> LibraryIndex:
    from succinct import KeyTable, LoudsTrie

    return LibraryIndex(LoudsTrie.build(KeyTable.from_sequences(sequences), **layout))


def build_steps(sequences: Any, layout: Any = "small", tail: Any = False) -> LibraryIndex:
    """A StepMap; packed instead where tokens are too large for a bitmap or for codes."""
    from succinct import KeyTable, StepMap

    keys = KeyTable.from_sequences(sequences)
    index = StepMap.build(keys, tail=False)
    steps = index.info()["steps"]
    if layout == "bitmap":
        sizes = [step["prefixes"] * (step["high"] - step["low"]) for step in steps]
        layout = ["bitmap" if size < 2**20 else "packed" for size in sizes]
    if layout == "huffman":
        spans = [step["high"] - step["low"] for step in steps]
        layout = ["huffman" if span <= 2**16 else "packed" for span in spans]
    if layout == "dac" and index.vocab_size > 2**20:
        layout = "packed"
    return LibraryIndex(StepMap.build(keys, layout, tail))


def build_csr(sequences: Any, dense: Any = "auto", wide: bool = False) -> LibraryIndex:
    """A CsrMap; with so many dense levels as tokens allow, and as if it had 2**32 states."""
    from succinct import CsrMap, KeyTable
    from succinct.maps.csr import csrmap

    keys = KeyTable.from_sequences(sequences)
    if dense == "most":
        steps = CsrMap.build(keys).info()["steps"]
        sizes = [step["prefixes"] * (step["high"] - step["low"]) for step in steps]
        dense = next((i for i, size in enumerate(sizes) if size > 2**20), len(sizes))
    with pytest.MonkeyPatch.context() as patch:
        if wide:
            patch.setattr(csrmap, "WIDE", 0)
        return LibraryIndex(CsrMap.build(keys, dense_levels=dense))


def save_and_load(
    sequences: Any, mmap: bool, build: Any = build_louds, **layout: Any
) -> LibraryIndex:
    from succinct import load

    built = build(sequences, **layout)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.safetensors"
        built.raw.save(path)
        return LibraryIndex(load(path, mmap=mmap))  # a mapped file outlives its name


INDEXES: dict[str, Callable[[Any], Any]] = {
    "reference": ReferenceIndex,
    "louds": lambda sequences: build_louds(sequences, tail=False),
    "louds-tail": lambda sequences: build_louds(sequences, tail=True),
    "louds-auto": lambda sequences: build_louds(sequences, tail="auto"),
    "louds-mapped": lambda sequences: save_and_load(sequences, mmap=True, tail=True),
    "louds-loaded": lambda sequences: save_and_load(sequences, mmap=False, tail=False),
    "steps-small": build_steps,
    "steps-fast": lambda sequences: build_steps(sequences, "fast"),
    "steps-bitmap": lambda sequences: build_steps(sequences, "bitmap"),
    "steps-joint": lambda sequences: build_steps(sequences, "joint"),
    "steps-packed": lambda sequences: build_steps(sequences, "packed"),
    "steps-sparse": lambda sequences: build_steps(sequences, "sparse"),
    "steps-dac": lambda sequences: build_steps(sequences, "dac"),
    "steps-rice": lambda sequences: build_steps(sequences, "rice"),
    "steps-huffman": lambda sequences: build_steps(sequences, "huffman"),
    "steps-tail": lambda sequences: build_steps(sequences, tail=True),
    "steps-auto": lambda sequences: build_steps(sequences, tail="auto"),
    "steps-tail-fast": lambda sequences: build_steps(sequences, "fast", tail=True),
    "steps-tail-dac": lambda sequences: build_steps(sequences, "dac", tail=True),
    "steps-mapped": lambda sequences: save_and_load(sequences, mmap=True, build=build_steps),
    "steps-loaded": lambda sequences: save_and_load(
        sequences, mmap=False, build=build_steps, layout="packed"
    ),
    "steps-tail-mapped": lambda sequences: save_and_load(
        sequences, mmap=True, build=build_steps, tail=True
    ),
    "steps-tail-loaded": lambda sequences: save_and_load(
        sequences, mmap=False, build=build_steps, tail=True
    ),
    "csr": build_csr,
    "csr-sparse": lambda sequences: build_csr(sequences, dense=0),
    "csr-dense": lambda sequences: build_csr(sequences, dense="most"),
    "csr-wide": lambda sequences: build_csr(sequences, wide=True),
    "csr-mapped": lambda sequences: save_and_load(sequences, mmap=True, build=build_csr, dense=0),
    "csr-loaded": lambda sequences: save_and_load(
        sequences, mmap=False, build=build_csr, dense="most"
    ),
}
# One schedule for each kind; what depends on more of them has tests of its own in tests/gpu.
ON_DEVICE = {
    f"{run} {kind}": lambda sequences, run=run, kind=kind: IndexOnDevice(
        INDEXES[kind](sequences), run
    )
    for run, kind in (
        ("simt-in-order", "csr"),
        ("simt-reversed", "steps-tail"),
        ("simt-random", "louds-tail"),
        *(("gpu", kind) for kind in ("csr", "steps-tail", "louds-tail")),
    )
}
FOLDED = {name for name in INDEXES if {"tail", "auto"} & set(name.split("-"))} | {"louds-mapped"}
IN_LEVEL_ORDER = set(INDEXES) - FOLDED  # as in a KeyTable


def over(table: dict[str, Any], name: str, only: set[str] | None = None) -> Any:
    """Decorate a test to run for every row of a table, given to it as argument `name`."""
    chosen = {row: table[row] for row in table if only is None or row in only}
    return pytest.mark.parametrize(name, runs.parameters(chosen))


each_bits = over(BITS, "bits")
each_index = over(INDEXES, "build")
each_index_and_device = over(INDEXES | ON_DEVICE, "build")
each_level_ordered = over(INDEXES, "build", IN_LEVEL_ORDER)
each_library_index_and_device = over(
    INDEXES | ON_DEVICE, "build", {*INDEXES, *ON_DEVICE} - {"reference"}
)
# Its kernels are compiled for one kind only: they differ from those of a search in little.
each_decoder = over(
    INDEXES | ON_DEVICE, "build", {*INDEXES, "simt-in-order csr", "gpu csr"} - {"reference"}
)
each_library_index = over(INDEXES, "build", set(INDEXES) - {"reference"})

"""Real catalogs: Semantic IDs of shop items, and place and species names in cl100k tokens."""

import base64
import gzip
import lzma
from bisect import bisect_left
from itertools import pairwise
from random import Random
from types import SimpleNamespace

import numpy as np
import pytest

from succinct import reference
from tests.implementations import INDEXES, LibraryIndex, each_index

SEMANTIC_IDS = (
    "minionerec_industrial",
    "minionerec_office",
    "genrec_arts",
    "genrec_games",
    "genrec_instruments",
)
NAMES = ("geonames_600k", "ncbi_taxa_600k")

each_semantic_ids = pytest.mark.parametrize("name", SEMANTIC_IDS)


def read_items(folder, name):
    """The item names and the code of each."""
    with gzip.open(folder / "sid" / f"{name}.tsv.gz", "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    return [item for item, _ in lines], [tuple(map(int, code.split())) for _, code in lines]


@pytest.fixture(scope="module")
def encoding(shared_data):
    """The cl100k tokenizer."""
    tiktoken = pytest.importorskip("tiktoken")
    with lzma.open(shared_data / "cl100k_base.tiktoken.xz", "rb") as file:
        ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, file)}
    return tiktoken.Encoding(
        "cl100k_base",
        pat_str=r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"""
        r"""| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
        mergeable_ranks=ranks,
        special_tokens={},
    )


class SortedKeys:
    """What a search asks of an index, over sorted keys: 600,000 of them need 50 MB.

    A key is the bytes of its tokens, big-endian, so bytes compare as token tuples do; a state is
    a prefix, and the keys that start with it follow each other.
    """

    root = b""

    def __init__(self, keys):
        self.keys = sorted(set(keys))

    @classmethod
    def from_tuples(cls, keys):
        return cls(b"".join(token.to_bytes(4, "big") for token in key) for key in keys)

    @classmethod
    def from_flat(cls, tokens, offsets):
        data, ends = tokens.astype(">u4").tobytes(), (4 * offsets).tolist()
        return cls(data[start:end] for start, end in pairwise(ends))

    def at_or_after(self, prefix, rank=0):
        place = bisect_left(self.keys, prefix) + rank
        return self.keys[place] if place < len(self.keys) else b""

    def advance(self, prefix, token):
        longer = prefix + token.to_bytes(4, "big")
        return longer if self.at_or_after(longer).startswith(longer) else reference.DEAD

    def is_terminal(self, prefix):
        return self.at_or_after(prefix) == prefix

    def has_children(self, prefix):
        following = self.at_or_after(prefix, rank=self.is_terminal(prefix))
        return len(following) > len(prefix) and following.startswith(prefix)


def draw_proposals(random, draw_keys, n_queries, n_steps, n_tokens):
    """Proposals that follow a few keys, with ties in the scores, and some padding."""
    token_ids, logprobs = [], []
    for _ in range(n_queries):
        keys = draw_keys(random, n_tokens)
        steps = [
            list(dict.fromkeys(key[step] for key in keys if len(key) > step))
            for step in range(n_steps)
        ]
        padding = [n_tokens - len(step) for step in steps]
        token_ids.append([step + [0] * n for step, n in zip(steps, padding, strict=True)])
        logprobs.append(
            [
                [-random.randrange(1, 60) / 8 for _ in step] + [-np.inf] * n
                for step, n in zip(steps, padding, strict=True)
            ]
        )
    return token_ids, logprobs


def check_searches(indexes, oracle, draw_keys, n_steps, n_searches=1000):
    """Compare searches of each index with the reference, a batch for each set of options."""
    random = Random(n_searches)
    settings = (
        {"beam_width": 10},
        {"beam_width": 4, "length_penalty": 5.0, "max_results": 20},
        {"beam_width": 16, "length_penalty": 0.6, "min_token_logprob": -6.5, "min_logprob": -30},
        {"beam_width": [3, 8, 2, 8] * (n_steps // 4), "max_results": 8},
    )
    n_found = 0
    for options in settings:
        n_queries = n_searches // len(settings)
        token_ids, logprobs = draw_proposals(random, draw_keys, n_queries, n_steps, n_tokens=10)
        expected = reference.beam_search(oracle, token_ids, logprobs, **options)
        n_found += sum(map(len, expected))
        for index in indexes:
            assert index.search(token_ids, logprobs, **options) == expected
    assert n_found > n_searches


# Semantic IDs


@each_index
@each_semantic_ids
def test_semantic_ids(shared_data, name, build):
    _, codes = read_items(shared_data, name)
    index = build(codes)
    keys = sorted(set(codes))
    assert len(keys) < len(codes)
    numbers = index.key_ids(codes)
    assert [index.key(number) for number in numbers] == codes
    assert sorted(set(numbers)) == list(range(len(keys)))
    assert index.n_keys == len(keys)
    assert list(index.completions(())) == keys
    random = Random(1)
    others = [(*key[:-1], random.randrange(256)) for key in codes]
    others += [key[:-1] for key in codes] + [(*key, 0) for key in codes[:100]]
    known = set(keys)
    assert [number >= 0 for number in index.key_ids(others)] == [key in known for key in others]


@each_semantic_ids
def test_items_that_collide_stay_findable(shared_data, name, tmp_path):
    from succinct import ItemMap, KeyTable, LoudsTrie, load

    names, codes = read_items(shared_data, name)
    sharing = {}
    for item, code in zip(names, codes, strict=True):
        sharing.setdefault(code, []).append(item)
    assert any(len(items) > 1 for items in sharing.values())
    keys = KeyTable.from_sequences(codes)
    assert keys.n_duplicates == len(codes) - len(sharing)
    for tail in (False, True):
        trie = LoudsTrie.build(keys, tail=tail)
        path = tmp_path / f"{tail}.safetensors"
        trie.save(path, items=ItemMap(trie, keys.key_ids, names))
        loaded = load(path)
        for code, items in sharing.items():
            assert list(loaded.items.items(loaded.key_id(code))) == items


@each_semantic_ids
def test_searches_over_semantic_ids(shared_data, name):
    _, codes = read_items(shared_data, name)
    indexes = [INDEXES[row](codes) for row in INDEXES if row != "reference"]
    oracle = reference.Trie(codes)
    check_searches(indexes, oracle, lambda random, n: random.choices(codes, k=n), n_steps=4)


def test_sorted_keys_search_as_the_reference_trie(shared_data):
    """The lean stand-in of the large catalogs is held against the reference itself."""
    _, codes = read_items(shared_data, SEMANTIC_IDS[0])
    cut = [code[: 1 + i % 3] for i, code in enumerate(codes)]  # keys that are prefixes of keys
    oracle = SortedKeys.from_tuples(codes + cut)
    index = INDEXES["reference"](codes + cut)
    check_searches([index], oracle, lambda random, n: random.choices(codes, k=n), n_steps=4)


# Names


@pytest.fixture(scope="module", params=NAMES)
def names(request, shared_data, encoding, tmp_path_factory):
    """A list of names as flat tokens and offsets, with the indexes of it: built once."""
    from succinct import KeyTable, LoudsTrie, load

    with lzma.open(shared_data / f"{request.param}.txt.xz", "rt", encoding="utf-8") as file:
        rows = [tuple(encoding.encode_ordinary(line.rstrip("\n"))) for line in file]
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    tokens = np.fromiter((token for row in rows for token in row), np.uint32, offsets[-1])
    keys = KeyTable.from_flat(tokens, offsets)
    indexes = {tail: LoudsTrie.build(keys, tail=tail) for tail in (False, True)}
    path = tmp_path_factory.mktemp(request.param) / "index.safetensors"
    indexes[True].save(path)
    indexes["loaded"] = load(path, mmap=True)
    return SimpleNamespace(rows=rows, tokens=tokens, offsets=offsets, keys=keys, indexes=indexes)


@pytest.mark.slow
def test_names_are_found(names):
    rows, known = names.rows, set(names.rows)
    assert len(rows) == 600_000
    assert names.keys.n_keys == len(known)
    assert np.array_equal(np.unique(names.keys.key_ids), np.arange(len(known)))
    random = Random(6)
    sample = random.sample(rows, 2000)
    others = [(*row[:-1], random.randrange(100_256)) for row in sample]
    others += [(*row, random.randrange(100_256)) for row in sample]
    others += [row[:-1] for row in sample if len(row) > 1]
    expected = [other in known for other in others]
    assert not all(expected)
    for index in names.indexes.values():
        assert index.n_keys == len(known)
        numbers = index.key_ids(rows)
        assert np.array_equal(np.unique(numbers), np.arange(len(known)))  # a bijection
        assert np.array_equal(index.from_table_ids(names.keys.key_ids), numbers)
        assert [index.key(index.key_id(row)) for row in sample] == sample
        assert [number >= 0 for number in index.key_ids(others)] == expected


@pytest.mark.slow
def test_searches_over_names(names):
    def neighbours(random, n):
        """Rows that lie close together: the lists are sorted, so they share prefixes."""
        place = random.randrange(len(names.rows) - 50)
        return random.sample(names.rows[place : place + 50], n)

    oracle = SortedKeys.from_flat(names.tokens, names.offsets)
    indexes = [LibraryIndex(index) for index in names.indexes.values()]
    check_searches(indexes, oracle, neighbours, n_steps=8)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [("geonames_600k", 40.5), ("ncbi_taxa_600k", 45.8)])
def test_names_get_tails(shared_data, tmp_path, name, most):
    """The sizes of whole files; marisa-trie needs 50.0 and 55.3 bits a key for the same tokens."""
    from succinct import KeyTable, StepMap

    pytest.importorskip("tiktoken")
    ranks = shared_data / "cl100k_base.tiktoken.xz"
    keys = KeyTable.from_lines(shared_data / f"{name}.txt.xz", ranks, key_ids=False)
    index = StepMap.build(keys, path=tmp_path / "index")
    assert index.has_tail
    assert 8 * (tmp_path / "index").stat().st_size / keys.n_keys <= most
    plain = StepMap.build(keys, tail=False)
    assert plain.nbytes == index.info()["tails"]["nbytes_plain"]
    numbers = index.key_ids(keys)
    assert (numbers == index.from_table_ids(np.arange(keys.n_keys))).all()


@each_semantic_ids
def test_semantic_ids_get_no_tails(shared_data, name):
    from succinct import KeyTable, StepMap

    keys = KeyTable.from_sequences(read_items(shared_data, name)[1])
    assert not StepMap.build(keys).has_tail

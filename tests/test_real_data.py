"""Real catalogs: Semantic IDs of shop items, and place and species names in cl100k tokens."""

import base64
import gzip
import lzma
from bisect import bisect_left
from random import Random

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
N_SEARCHES = 1000

each_semantic_ids = pytest.mark.parametrize("name", SEMANTIC_IDS)
each_names = pytest.mark.parametrize("name", NAMES)


def read_items(folder, name):
    """The item names and the code of each."""
    with gzip.open(folder / "sid" / f"{name}.tsv.gz", "rt", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    return [item for item, _ in lines], [tuple(map(int, code.split())) for _, code in lines]


@pytest.fixture(scope="module")
def titles(shared_data):
    """Read and tokenize a list of names, once: flat uint32 tokens and int64 offsets."""
    tiktoken = pytest.importorskip("tiktoken")
    with lzma.open(shared_data / "cl100k_base.tiktoken.xz", "rb") as file:
        ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, file)}
    encoding = tiktoken.Encoding(
        "cl100k_base",
        pat_str=r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+"""
        r"""| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
        mergeable_ranks=ranks,
        special_tokens={},
    )
    cache = {}

    def read(name):
        if name not in cache:
            with lzma.open(shared_data / f"{name}.txt.xz", "rt", encoding="utf-8") as file:
                lines = file.read().split("\n")
            rows = encoding.encode_ordinary_batch([line for line in lines if line], num_threads=2)
            offsets = np.zeros(len(rows) + 1, dtype=np.int64)
            np.cumsum([len(row) for row in rows], out=offsets[1:])
            tokens = np.fromiter((t for row in rows for t in row), np.uint32, offsets[-1])
            cache[name] = tokens, offsets
        return cache[name]

    return read


def rows_of(tokens, offsets, numbers):
    return [tuple(tokens[offsets[i] : offsets[i + 1]].tolist()) for i in numbers]


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
        return cls(data[start:end] for start, end in zip(ends, ends[1:], strict=False))

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


def draw_proposals(random, draw_key, n_queries, n_steps, n_tokens):
    """Proposals that follow a few keys, with ties in the scores, and some padding."""
    token_ids, logprobs = [], []
    for _ in range(n_queries):
        keys = [draw_key() for _ in range(n_tokens)]
        steps = [
            list(dict.fromkeys(key[i] for key in keys if len(key) > i)) for i in range(n_steps)
        ]
        token_ids.append([step + [0] * (n_tokens - len(step)) for step in steps])
        logprobs.append(
            [[-random.randrange(1, 60) / 8 for _ in step] + [-np.inf] * (n_tokens - len(step))
             for step in steps]
        )  # fmt: skip
    return token_ids, logprobs


SETTINGS = (
    {"beam_width": 10},
    {"beam_width": 4, "length_penalty": 5.0, "max_results": 20},
    {"beam_width": 16, "length_penalty": 0.6, "min_token_logprob": -6.5, "min_logprob": -20.0},
    {"beam_width": [3, 8, 2, 8], "max_results": 8},
)


def check_searches(indexes, oracle, draw_key, n_searches, seed):
    """Compare searches of each index with the reference, in batches over all settings."""
    random = Random(seed)
    n_found = 0
    for options in SETTINGS:
        token_ids, logprobs = draw_proposals(random, draw_key, n_searches // len(SETTINGS), 4, 10)
        expected = reference.beam_search(oracle, token_ids, logprobs, **options)
        n_found += sum(map(len, expected))
        for index in indexes:
            assert index.search(token_ids, logprobs, **options) == expected
    assert n_found > n_searches // 2


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
    random = Random(2)
    draw_key = lambda: random.choice(codes)  # noqa: E731
    trie = reference.Trie(codes)
    check_searches(
        [INDEXES[row](codes) for row in INDEXES if row != "reference"],
        trie, draw_key, N_SEARCHES, seed=3,
    )  # fmt: skip


def test_sorted_keys_search_as_the_reference_trie(shared_data):
    """The lean stand-in of the large catalogs is held against the reference itself."""
    _, codes = read_items(shared_data, SEMANTIC_IDS[0])
    random = Random(4)
    cut = [code[: random.randrange(1, 4)] for code in codes]  # keys that are prefixes of keys
    draw_key = lambda: random.choice(codes)  # noqa: E731
    oracle = SortedKeys.from_tuples(codes + cut)
    index = INDEXES["reference"](codes + cut)
    check_searches([index], oracle, draw_key, 200, seed=5)


# Names


@pytest.fixture(scope="module")
def name_indexes(titles, tmp_path_factory):
    """Build the indexes of a list of names, once: in memory, and saved and loaded."""
    from succinct import KeyTable, LoudsTrie, load

    cache = {}

    def build(name):
        if name not in cache:
            cache.clear()  # one catalog at a time in memory
            keys = KeyTable.from_flat(*titles(name))
            built = {tail: LoudsTrie.build(keys, tail=tail) for tail in (False, True)}
            path = tmp_path_factory.mktemp(name) / "index.safetensors"
            built[True].save(path)
            built["loaded"] = load(path, mmap=True)
            cache[name] = keys, built
        return cache[name]

    return build


@pytest.mark.slow
@each_names
def test_names_are_found(titles, name_indexes, name):
    tokens, offsets = titles(name)
    n_rows = len(offsets) - 1
    assert n_rows > 590_000
    keys, indexes = name_indexes(name)
    assert np.array_equal(np.bincount(keys.key_ids) >= 1, np.ones(keys.n_keys, dtype=bool))
    random = Random(6)
    sample = random.sample(range(n_rows), 2000)
    rows = rows_of(tokens, offsets, range(n_rows))
    known = set(rows)
    assert keys.n_keys == len(known)
    others = [(*rows[i][:-1], random.randrange(100_256)) for i in sample]
    others += [(*rows[i], random.randrange(100_256)) for i in sample]
    others += [rows[i][:-1] for i in sample if len(rows[i]) > 1]
    expected = [other in known for other in others]
    for index in indexes.values():
        assert index.n_keys == len(known)
        numbers = index.key_ids(rows)
        assert numbers.min() == 0
        assert numbers.max() == index.n_keys - 1
        assert np.array_equal(np.unique(numbers), np.arange(index.n_keys))
        assert np.array_equal(index.from_table_ids(keys.key_ids), numbers)
        assert [tuple(index.key(int(numbers[i]))) for i in sample] == [rows[i] for i in sample]
        assert [number >= 0 for number in index.key_ids(others)] == expected
    assert not all(expected)


@pytest.mark.slow
@each_names
def test_searches_over_names(titles, name_indexes, name):
    tokens, offsets = titles(name)
    _, indexes = name_indexes(name)
    random = Random(7)

    def draw_key():
        return rows_of(tokens, offsets, [random.randrange(len(offsets) - 1)])[0]

    oracle = SortedKeys.from_flat(tokens, offsets)
    check_searches(map(LibraryIndex, indexes.values()), oracle, draw_key, N_SEARCHES, seed=8)

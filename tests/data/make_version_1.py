"""Make the index files of format version 1: ``python -m tests.data.make_version_1 [FOLDER]``.

Those beside this script stay as they are: a later release that can write them no more still has
to read them.
"""

import sys
from pathlib import Path

from succinct import CsrMap, ItemMap, KeyTable, LoudsTrie, StepMap

KEYS = [
    (1,),
    (1, 2, 3),
    (1, 2, 4),
    (7, 70_000, 5, 6),
    (7, 70_001, 5, 6),
    (8, 9, 9, 9, 9, 9, 9),
    (2**32 - 2, 0),
]
#: Item names by row; a last row repeats the first key.
NAMES = ["one", "two", "three", "", "fünf", "six", "seven", "uno"]


def main(folder: Path) -> None:
    keys = KeyTable.from_sequences([*KEYS, KEYS[0]])
    CsrMap.build(keys).save(folder / "version-1-csr.safetensors")
    narrow = KeyTable.from_sequences(KEYS[:-1])
    CsrMap.build(narrow, dense_levels=1).save(folder / "version-1-csr-dense.safetensors")
    for tail in (False, True):
        trie = LoudsTrie.build(keys, tail=tail)
        trie.save(folder / f"version-1-{'tails' if tail else 'plain'}.safetensors")
        items = ItemMap(trie, keys, NAMES)
        trie.save(folder / f"version-1-{'tails' if tail else 'plain'}-items.safetensors", items)
    StepMap.build(keys, tail=False).save(folder / "version-1-steps.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)

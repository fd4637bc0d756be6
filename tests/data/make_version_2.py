"""Make the index files of format version 2: ``python -m tests.data.make_version_2 [FOLDER]``.

Version 2 is that of a StepMap with tails. As with version 1, the files beside this script stay.
"""

import sys
from pathlib import Path

from succinct import ItemMap, KeyTable, StepMap
from tests.data.make_version_1 import KEYS, NAMES


def main(folder: Path) -> None:
    keys = KeyTable.from_sequences([*KEYS, KEYS[0]])
    index = StepMap.build(keys, tail=True)
    index.save(folder / "version-2-steps-tails.safetensors")
    items = ItemMap(index, keys, NAMES)
    index.save(folder / "version-2-steps-tails-items.safetensors", items)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)

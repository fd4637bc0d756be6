"""Make the index files of format version 4: ``python -m tests.data.make_version_4 [FOLDER]``.

Version 4 is that of a StepMap with Huffman codes. As with version 1, the files beside this script
stay.
"""

import sys
from pathlib import Path

from succinct import KeyTable, StepMap
from tests.data.make_version_1 import KEYS


def main(folder: Path) -> None:
    keys = KeyTable.from_sequences(KEYS)
    for tail in (False, True):
        name = "version-4-steps-huffman" + "-tails" * tail
        layout = ["packed", "packed", *["huffman"] * 5]
        StepMap.build(keys, layout, tail).save(folder / f"{name}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)

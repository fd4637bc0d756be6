"""Make the index files of format version 3: ``python -m tests.data.make_version_3 [FOLDER]``.

Version 3 is that of a StepMap with Golomb-Rice codes. As with version 1, the files beside this
script stay.
"""

import sys
from pathlib import Path

from succinct import KeyTable, StepMap
from tests.data.make_version_1 import KEYS


def main(folder: Path) -> None:
    keys = KeyTable.from_sequences(KEYS)
    for tail in (False, True):
        name = "version-3-steps-rice" + "-tails" * tail
        StepMap.build(keys, "rice", tail).save(folder / f"{name}.safetensors")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)

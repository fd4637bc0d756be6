"""``python -m succinct`` is the command ``succinct``."""

import sys

from succinct.cli import main

sys.exit(main())

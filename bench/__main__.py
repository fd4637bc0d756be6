"""``python -m bench [SUITE ...]``: sizes and times of the library beside others, in one run.

Figures of one table come from one run on one machine and are comparable with one another only.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from bench.machine import machine
from bench.report import as_json, as_text, write_markdown
from bench.suite import Options

SUITES = ("bits", "filtering", "maps", "masking", "memory", "proposals")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the suites."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "suites",
        nargs="*",
        metavar="SUITE",
        help=f"{', '.join(SUITES)}, or all; maps if none is named",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, in seconds")
    parser.add_argument("--json", action="store_true", help="print a JSON document")
    parser.add_argument("--catalog", default="", help="only catalogs whose name has this in it")
    parser.add_argument("--markdown", type=Path, metavar="DIR", help="write pages and plots there")
    args = parser.parse_args(argv)
    chosen = args.suites or ["maps"]
    if not set(chosen) <= {*SUITES, "all"}:
        parser.error(f"expected suites out of {', '.join(SUITES)}, all; got {' '.join(chosen)}")
    options = Options(quick=args.quick, catalog=args.catalog)
    here = machine()
    document = {"machine": here, "suites": {}}
    gc.freeze()  # the collections before what is timed then need not look at what is here
    try:
        for name in SUITES if "all" in chosen else chosen:
            suite = import_module(f"bench.{name}")
            tables = []
            for table in suite.tables(options):
                tables.append(table)
                if not args.json:
                    print(as_text(table), flush=True)
            document["suites"][name] = [as_json(table) for table in tables]
            if args.markdown:
                write_markdown(args.markdown, name, suite.TITLE, suite.INTRO, here, tables)
    finally:
        gc.unfreeze()
    if args.json:
        print(json.dumps(document, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())

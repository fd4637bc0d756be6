"""Show what an index file holds and where its bytes go."""

from __future__ import annotations

import argparse
from typing import Any

from succinct.cli._terminal import print_json, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("index", metavar="INDEX", help="an index file")
    parser.add_argument("--json", action="store_true", help="print a JSON document")


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from succinct.format import load

    index = load(args.index, mmap=True)
    facts: dict[str, Any] = {"path": args.index, **index.info()}
    items = index.items
    facts["n_items"] = None if items is None else items.n_items
    if args.json:
        print_json(facts)
        return 0
    tables = {name: value for name, value in facts.items() if isinstance(value, list | dict)}
    for name, value in facts.items():
        if name not in tables:
            print(f"{name:<14} {value:,}" if isinstance(value, int) else f"{name:<14} {value}")
    for name, value in tables.items():
        print(f"\n{name}")
        rows = value if isinstance(value, list) else [value]
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    return 0

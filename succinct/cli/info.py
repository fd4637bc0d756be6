"""Show what an index file holds and where its bytes go."""

from __future__ import annotations

import argparse
import os
from typing import Any

from succinct.cli._terminal import cell, print_json, print_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("index", metavar="INDEX", help="an index file")
    parser.add_argument("--json", action="store_true", help="print a JSON document")


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from succinct.index import load

    index = load(args.index, mmap=True)
    facts: dict[str, Any] = {"path": args.index, **index.info()}
    facts["file_bytes"] = os.stat(args.index).st_size
    items = index.items
    facts["n_items"] = None if items is None else items.n_items
    if args.json:
        print_json(facts)
        return 0
    tables = {name: value for name, value in facts.items() if isinstance(value, list | dict)}
    for name, value in facts.items():
        if name not in tables:
            print(f"{name:<14} {cell(value)}")
    for name, value in tables.items():
        print(f"\n{name}")
        rows = value if isinstance(value, list) else [value]
        print_table(list(rows[0]), [list(map(_as_shown, row.items())) for row in rows])
    return 0


def _as_shown(entry: tuple[str, Any]) -> Any:
    name, value = entry
    return f"{value:6.1%}" if name == "share" else value

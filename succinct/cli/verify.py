"""Check the checksums and the structure of an index file."""

from __future__ import annotations

import argparse
import sys

from succinct.cli._terminal import print_json, stages


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.add_argument("index", metavar="INDEX", help="an index file")
    parser.add_argument("--json", action="store_true", help="print a JSON document")


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from succinct.errors import FormatError
    from succinct.index import verify

    problem = None
    try:
        with stages(1) as (begin, _):
            begin("verifying")
            verify(args.index)
    except FormatError as error:
        problem = " ".join(str(error).split())
    if args.json:
        print_json({"path": args.index, "ok": problem is None, "problem": problem})
    elif problem is None:
        print(f"{args.index}: checksums and structure are right")
    if problem is not None:
        print(f"succinct: error: {problem}", file=sys.stderr)
    return 0 if problem is None else 1

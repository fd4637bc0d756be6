"""Build an index of a catalog and save it."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np

from succinct.cli._terminal import check_writable, counted, print_json, stages
from succinct.index import Index
from succinct.keys import ItemMap, KeyTable
from succinct.maps import CsrMap, StepMap
from succinct.trie import LoudsTrie

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_PIPE = Path("-")
_TAILS: dict[str, bool | Literal["auto"]] = {"auto": "auto", "yes": True, "no": False}
_SUFFIXES = (".txt", ".tsv", ".csv", ".npy", ".parquet", ".gz", ".xz")

_FORMATS = """
input formats, told apart by the name:
  *.npy             integers [N, L], one key a row
  *.parquet         lists of integers in the column named by --column
  anything else     text, one key a line, integers separated by blanks or commas;
                    with --tokenizer any text, one key a line; gzip, xz and bzip2 are unpacked
  -                 text from the standard input; needs --output
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.epilog = _FORMATS
    parser.add_argument("input", metavar="INPUT", type=Path, help="the catalog, - for a pipe")
    parser.add_argument(
        "-o",
        "--output",
        metavar="OUT",
        type=Path,
        help="the index file; an existing one is replaced when the new one is complete "
        "(default: INPUT with the ending .safetensors)",
    )
    parser.add_argument(
        "--items", action="store_true", help="the first column of a text line names the item"
    )
    parser.add_argument("--column", metavar="NAME", help="column of a Parquet file")
    parser.add_argument(
        "--tokenizer",
        metavar="FILE",
        type=Path,
        help="turn lines of text into tokens: a tokenizers JSON or a tiktoken rank file",
    )
    parser.add_argument(
        "--kind",
        choices=["louds", "steps", "csr"],
        default="louds",
        help="the kind of index: LoudsTrie, StepMap or CsrMap (default: louds)",
    )
    parser.add_argument(
        "--tail",
        choices=list(_TAILS),
        help="louds: fold single-child chains into a tail buffer; steps: fold ends of keys into a "
        "trie of reversed ends; auto, the default, does if it saves bytes",
    )
    parser.add_argument(
        "--layout",
        choices=["small", "fast"],
        help="steps: what the representations are chosen for (default: small)",
    )
    parser.add_argument(
        "--dense-levels",
        metavar="N",
        type=_count,
        help="csr: how many steps are answered by dense masks (default: as makes the index "
        "smallest)",
    )
    parser.add_argument(
        "--memory-limit",
        metavar="BYTES",
        type=_size,
        help="sort larger catalogs on disk; as in 500M or 4G",
    )
    parser.add_argument(
        "--threads", metavar="N", type=_count, help="louds, steps: threads to use (default: all)"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON document")


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]?)(?:i?b)?", text.strip().lower())
    if match is None or float(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"expected a size such as 500M or 4G, got {text!r}")
    return int(float(match[1]) * _UNITS[match[2]])


def _count(text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text):
        raise argparse.ArgumentTypeError(f"expected a number such as 2, got {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    _check_options(args)
    output: Path = args.output or _default_output(args.input)
    if args.input == _PIPE:
        args.input = Path("/dev/stdin")
    if not args.input.exists():
        raise FileNotFoundError(2, "there is no such file", str(args.input))
    if args.input.is_dir():
        raise IsADirectoryError(21, "expected a catalog, got a directory", str(args.input))
    if output.exists() and output.samefile(args.input):
        raise ValueError(f"{output}: the output would replace the input")
    check_writable(output)

    start = time.perf_counter()
    with stages(3) as (begin, part):
        begin("reading")
        keys = _read(args, part)
        if keys.n_keys == 0:
            raise ValueError(f"{args.input}: the catalog is empty: an index needs at least one key")
        begin("building")
        index: Index
        names = keys.item_names
        # What names no items is built where it is to lie: it need not fit into memory.
        path = output if names is None else None
        tail = _TAILS[args.tail or "auto"]
        if args.kind == "steps":
            index = StepMap.build(
                keys, args.layout or "small", tail, num_threads=args.threads, path=path
            )
        elif args.kind == "csr":
            wanted = args.dense_levels
            index = CsrMap.build(keys, dense_levels="auto" if wanted is None else wanted)
        else:
            index = LoudsTrie.build(keys, tail, num_threads=args.threads, path=path)
        begin("saving")
        items = None if names is None else ItemMap(index, keys.key_ids, names)
        if items is not None or args.kind == "csr":
            index.save(output, items=items)
    seconds = time.perf_counter() - start
    if _looks_named(args, index):
        print(
            "succinct: note: no two keys begin with the same token; if the first column names "
            "the items, build with --items",
            file=sys.stderr,
        )

    summary = {
        "output": str(output),
        "kind": type(index).__name__,
        "n_keys": index.n_keys,
        "n_duplicates": keys.n_duplicates,
        "n_items": None if items is None else items.n_items,
        "n_states": index.n_states,
        "nbytes": index.nbytes,
        "bits_per_key": round(index.bits_per_key, 3),
        "file_bytes": output.stat().st_size,
        "seconds": round(seconds, 3),
    }
    if args.json:
        print_json(summary)
        return 0
    duplicates = f" ({counted(keys.n_duplicates, 'duplicate')})" if keys.n_duplicates else ""
    named = "" if items is None else f", {counted(items.n_items, 'item')}"
    print(
        f"{output}: {counted(index.n_keys, 'key')}{duplicates}{named}, "
        f"{index.bits_per_key:.1f} bits per key, {seconds:.1f} s"
    )
    return 0


def _check_options(args: argparse.Namespace) -> None:
    kind = args.input.suffix
    error = args.parser.error
    if (kind == ".parquet") != (args.column is not None):
        error("--column NAME goes with a .parquet file, and a .parquet file needs it")
    if args.tokenizer is not None and kind in (".npy", ".parquet"):
        error(f"--tokenizer needs lines of text, not a {kind} file")
    if args.tail is not None and args.kind == "csr":
        error("--tail goes with --kind louds or steps")
    if args.threads is not None and args.kind == "csr":
        error("--threads goes with --kind louds and --kind steps")
    if args.layout is not None and args.kind != "steps":
        error("--layout goes with --kind steps")
    if args.dense_levels is not None and args.kind != "csr":
        error("--dense-levels goes with --kind csr")
    if args.input == _PIPE and args.output is None:
        error("a catalog from a pipe needs --output OUT")
    if args.items and (args.tokenizer is not None or kind in (".npy", ".parquet")):
        error("--items needs a text file of integers: its first column names the items")


def _looks_named(args: argparse.Namespace, index: Index) -> bool:
    """Whether the first tokens of a text of integers may be numbers of items."""
    integers = args.column is None and args.tokenizer is None and args.input.suffix != ".npy"
    if args.items or not integers or index.n_keys < 2 or index.max_length < 2:
        return False
    return bool(index.info()["steps"][1]["prefixes"] == index.n_keys)


def _default_output(source: Path) -> Path:
    while source.suffix in _SUFFIXES:
        source = source.with_suffix("")
    return source.with_name(source.name + ".safetensors")


def _read(args: argparse.Namespace, progress: Callable[[int, int | None], None]) -> KeyTable:
    # Key numbers of the input rows are only wanted for the items.
    options = {"key_ids": args.items}
    if args.memory_limit is not None:
        options["memory_limit"] = args.memory_limit
    if args.column is not None:
        return KeyTable.from_parquet(args.input, args.column, progress=progress, **options)
    if args.tokenizer is not None:
        return KeyTable.from_lines(args.input, args.tokenizer, progress=progress, **options)
    if args.input.suffix == ".npy":
        try:
            rows = np.load(args.input, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            # numpy takes any other file for a pickle, and would have it trusted.
            why = "" if "pickle" in str(error) else f"; {error}"
            raise ValueError(f"{args.input}: expected a .npy file of integers{why}") from None
        return KeyTable.from_rows(rows, **options)
    return KeyTable.from_text(args.input, items=args.items, progress=progress, **options)

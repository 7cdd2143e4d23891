"""The command `tessera`: load the module of a command, run it, and print errors as one line with an exit code."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tessera import __version__
from tessera.errors import EXIT_USAGE, TesseraError, suggest_similar

# Command name -> summary. A command is a module tessera.cli.<name>_command with OPTIONS and run(args) -> exit
# code; a command with subcommands has configure(parser) in place of OPTIONS.
COMMANDS = {
    "suite": "run a named set of cases over all features and write a report",
    "ops": "time, memory and rates of single operators",
    "halo": "cost and correctness of halo exchange for an image that is split over ranks",
    "conv": "convolutions on a grid of cores: memory, bytes moved, time",
    "phases": "cost of streaming weights that do not fit into memory, and how much of it overlaps with compute",
    "infer": "throughput and latency of whole networks, by engine, replicas and batch",
    "run": "benchmarks of a user's own Python file (@tessera.benchmark)",
    "ab": "interleaved comparison of two interpreters or environments",
    "compare": "comparison of two stored runs, with a verdict for each case",
    "history": "one metric over all runs, with lasting changes and regression alerts",
    "report": "HTML report of one or more runs",
    "repro": "standalone program that repeats the case of a stored record",
    "list": "list of operators, backends, models, machines, suites, launchers, transports, runs",
    "export": "export of records as JSON, CSV, Markdown or Parquet, and import",
    "doctor": "environment, noise and speed of this machine, with advice",
}

EPILOG = """\
start here:
  tessera suite quick             every feature in a few minutes; writes a table and report.html
  tessera ops add conv2d          two operators with their default inputs
  tessera doctor                  noise of this machine, and advice

exit codes: 0 success, 1 a regression or a failed validation, 2 usage or bad input, 3 nothing comparable,
            4 a benchmark failed, 124 timed out
"""


class CommandParser(argparse.ArgumentParser):
    """An argument parser that raises `TesseraError` instead of exiting."""

    def error(self, message: str) -> None:  # type: ignore[override]
        raise TesseraError(f"{message}; see `{self.prog} --help`")


def _make_top_parser() -> CommandParser:
    width = max(map(len, COMMANDS))
    table = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    parser = CommandParser(
        prog="tessera",
        usage="tessera COMMAND [options]",
        description="Tessera measures and runs convolutional networks that are split over many workers.\n\n"
        f"commands:\n{table}",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"tessera {__version__}")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    return parser


def _run_command(argv: list[str]) -> int:
    top = _make_top_parser()
    if not argv or argv[0].startswith("-"):
        top.parse_args(argv[:1])
        top.print_help()
        return 0 if argv else EXIT_USAGE
    name = argv[0]
    if name not in COMMANDS:
        raise TesseraError("unknown command", got=name, allowed=COMMANDS, do=suggest_similar(name, COMMANDS))
    from tessera.cli.options import LIST_RUNS_OPTION, configure_parser, finish_arguments

    module = importlib.import_module(f"tessera.cli.{name}_command")
    parser = CommandParser(
        prog=f"tessera {name}",
        description=module.__doc__,
        epilog=getattr(module, "EPILOG", None),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    configure_parser(parser, module)
    args = parser.parse_args(argv[1:])
    finish_arguments(args)
    args.show_summary = getattr(args, "output_format", None) == "terminal"
    if args.show_summary and args.output:  # without --json or another format option, the suffix selects the format
        from tessera.report.tables import FORMAT_BY_SUFFIX

        args.output_format = FORMAT_BY_SUFFIX.get(Path(args.output).suffix, args.output_format)
    if getattr(args, "list", False) and LIST_RUNS_OPTION in args.declared:
        from tessera.cli.list_command import print_listing

        if hasattr(args, "output_format"):
            return print_listing("runs", args.output_format, args.output, args.store)
        return print_listing("runs", "terminal", None, args.store)
    return int(module.run(args))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; print a `TesseraError` as one line on standard error and return its exit code."""
    try:
        return _run_command(list(sys.argv[1:] if argv is None else argv))
    except TesseraError as error:
        print(f"tessera: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as error:
        print("; ".join(filter(None, ("tessera: interrupted", str(error)))), file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except OSError as error:  # for example a full disk, too many open files, or an unreadable directory
        print(f"tessera: {error}", file=sys.stderr)
        return EXIT_USAGE

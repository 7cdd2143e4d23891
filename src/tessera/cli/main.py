"""The command `tessera`: load the module of a command, run it, and print errors as one line with an exit code."""

from __future__ import annotations

import argparse
import importlib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from tessera import __version__
from tessera.cli.command_words import correct_words
from tessera.cli.streams import Terminated, discard_output, end_by_signals, prepare_streams, print_message
from tessera.errors import EXIT_OK, EXIT_USAGE, TesseraError, suggest_similar

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
    "gate": "two revisions of a package compared for a pull request, with a bounded false-alarm rate",
    "compare": "comparison of two stored runs, with a verdict for each case",
    "history": "one metric over all runs, with lasting changes and regression alerts",
    "show": "table of a stored run",
    "report": "HTML report of one or more runs",
    "repro": "standalone program that repeats the case of a stored record",
    "list": "list of operators, backends, models, machines, suites, launchers, transports, runs",
    "export": "export of records as JSON, CSV, Markdown or Parquet, and import",
    "store": "check, repair and clean-up of the store of results",
    "sync": "copies of runs between two stores, both ways",
    "completion": "completion of commands, options and values in bash, zsh or fish",
    "doctor": "environment, noise and speed of this machine, with advice",
}

ORIENTATION = """\
Tessera measures, plans and runs convolutional networks that are split over many workers.

  tessera suite quick              every feature in a few minutes: findings, a table and report.html
  tessera ops add conv2d           time of single operators, with intervals
  tessera halo                     cost of exchanging the borders of a split image
  tessera conv --image-size 56     plan, fit and time of a convolution on a grid of cores
  tessera phases --quick           streamed weights: how much of the loading is hidden
  tessera infer resnet18           images per second, by engine and replicas
  tessera doctor                   noise of this machine, and advice

tessera --help lists all commands; tessera help COMMAND explains one.
"""

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
    if not argv:
        print(ORIENTATION, end="")
        return EXIT_OK
    argv, note = correct_words(argv)
    if note:
        print(f"running: {note}", file=sys.stderr)
    if argv[0].startswith("-"):
        top = _make_top_parser()
        top.parse_args(argv[:1])
        top.print_help()
        return EXIT_OK
    name = argv[0]
    if name not in COMMANDS:
        raise TesseraError("unknown command", got=name, allowed=COMMANDS, do=suggest_similar(name, COMMANDS))
    from tessera.cli.options import (
        LIST_RUNS_OPTION,
        check_output_path,
        configure_parser,
        finish_arguments,
        join_description,
        shorten_usage,
    )

    module = importlib.import_module(f"tessera.cli.{name}_command")
    parser = CommandParser(
        prog=f"tessera {name}",
        description=join_description(module.__doc__ or "", getattr(module, "EPILOG", "")),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    configure_parser(parser, module)
    parser.usage = shorten_usage(parser)
    args = parser.parse_args(argv[1:])
    finish_arguments(args)
    args.show_summary = getattr(args, "output_format", None) == "terminal"
    if getattr(args, "output", None):
        check_output_path(args.output, getattr(module, "OUTPUT_SUFFIXES", ()))
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
    with prepare_streams(), end_by_signals():
        try:
            code = _run_command(list(sys.argv[1:] if argv is None else argv))
            sys.stdout.flush()
            return code
        except TesseraError as error:
            print_message(str(error))
            return error.exit_code
        except KeyboardInterrupt as error:
            number = error.number if isinstance(error, Terminated) else signal.SIGINT
            name = "interrupted" if number == signal.SIGINT else f"ended by {signal.Signals(number).name}"
            print_message("; ".join(filter(None, (name, str(error)))))
            return 128 + number
        except BrokenPipeError:
            discard_output()
            return 0
        except RecursionError:
            print_message("a value is nested too deeply")
            return EXIT_USAGE
        except OSError as error:  # for example a full disk, too many open files, or an unreadable directory
            print_message(str(error))
            discard_output()
            return EXIT_USAGE

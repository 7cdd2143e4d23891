"""Draw a metric over the runs of a store, case by case, and mark lasting changes.

OP is the name of a case or a glob (`add`, 'conv*'), with the feature where two features share a name (`ops/add`), or
the whole key of a case. Words of the form NAME=VALUE select the cases with that parameter.

A change is reported if it exceeds the threshold and the noise between runs and between launches. A single run that
differs is an outlier, not a change. A line of the chart contains only comparable records, with the conditions and the
benchmark version of the newest record. The number of other records is shown.

With --alerts the command fails if the newest runs hold a new regression that persists.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from tessera.axes import Option, parse_int, split_list
from tessera.cli.options import LIST_RUNS_OPTION, OUTPUT_OPTIONS, STORE_OPTIONS, THRESHOLD_OPTION
from tessera.errors import EXIT_OK, EXIT_REGRESSION, NothingComparable, TesseraError

if TYPE_CHECKING:
    from tessera.results.history import History

OUTPUT_SUFFIXES = (".html",)
EPILOG = """\
examples:
  tessera history add                               time of add, run by run
  tessera history 'conv*' --size medium --pass forward -o history.html
  tessera history ops/matmul --metric peak_allocated seed=0
  tessera history add --by machine                  one line for every machine of a store of many
  tessera history --alerts                          new regressions in the newest three runs
  tessera history --alerts 'ops/*' --newest 2 --threshold 5% --json

exit codes: 0 success, 1 --alerts found a new regression, 2 bad input, 3 no history
"""

FILTER_PARAMS = ("backend", "size", "pass", "dtype")


OPTIONS = (
    Option(
        name="words",
        positional="OP | NAME=VALUE",
        several=True,
        help="cases by name or glob, and parameters that they must have",
    ),
    Option(name="metric", default="time", help="metric of the records"),
    *(
        Option(
            name=f"filter_{name}",
            option=f"--{name}",
            several=True,
            metavar="A,B",
            help=f"{name} of the cases",
            default_text="all",
        )
        for name in FILTER_PARAMS
    ),
    Option(
        name="by",
        choices=("machine",),
        help="one line and own changes for each machine (processor and settings)",
        default_text="the machine of the newest record",
    ),
    Option(name="last", parse=parse_int, minimum=1, help="number of newest runs to read", default_text="all"),
    THRESHOLD_OPTION,
    Option(name="all", action="flag", help="all cases, and all excluded records with the reason"),
    Option(name="alerts", action="flag", help="only new regressions; the exit code is 1 if there are any"),
    Option(
        name="newest",
        parse=parse_int,
        default=3,
        minimum=2,  # a single run may be an outlier
        help="number of runs that --alerts regards as new",
    ),
    LIST_RUNS_OPTION,
    Option(name="quick", action="flag", hidden=True),
    *STORE_OPTIONS,
    *OUTPUT_OPTIONS,
)


def run(args: argparse.Namespace) -> int:
    patterns, filters = _parse_words(args)
    if not patterns and not args.alerts:
        raise TesseraError("no case is given", do="give a name or a glob, for example 'conv*', or use --alerts")
    from tessera.results.history import build_history
    from tessera.results.selection import select_readings
    from tessera.results.store import Store

    with Store(args.store, create=False) as store:
        readings = select_readings(store, patterns or ["*"], filters, args.metric)
        history = build_history(
            readings, args.metric, threshold=args.threshold, last=args.last, by_machine=args.by == "machine"
        )
    return _print_alerts(history, args) if args.alerts else _print_history(history, " ".join(args.words), args)


def _parse_words(args: argparse.Namespace) -> tuple[list[str], dict[str, list[str]]]:
    """Split the words of the command line into case patterns and NAME=VALUE filters."""
    from tessera.results.selection import is_case_key

    patterns = [word for word in args.words if "=" not in word or is_case_key(word)]
    filters: dict[str, list[str]] = {name: v for name in FILTER_PARAMS if (v := getattr(args, f"filter_{name}"))}
    for word in args.words:
        if word not in patterns:
            name, _, values = word.partition("=")
            filters[name] = split_list(values)
    return patterns, filters


def _print_history(history: History, title: str, args: argparse.Namespace) -> int:
    if not history.series:
        raise NothingComparable(
            "no record of these cases has a usable value", got=f"{len(history.excluded)} excluded records"
        )
    suffix = Path(args.output).suffix if args.output else ""
    if args.output_format == "terminal" and suffix == ".html":
        from tessera.report.history_page import build_history_page
        from tessera.report.page import write_page

        write_page(build_history_page(history, title), Path(args.output))
        print(f"history: {args.output}")
        return EXIT_OK
    from tessera.report.history_text import write_history
    from tessera.report.tables import open_output

    with open_output(args.output) as stream:
        write_history(
            history, args.output_format, stream, width=shutil.get_terminal_size().columns, everything=args.all
        )
    return EXIT_OK


def _print_alerts(history: History, args: argparse.Namespace) -> int:
    from tessera.report.history_text import write_alerts
    from tessera.report.tables import open_output
    from tessera.results.changepoints import MIN_RUNS

    if not any(series.judged for series in history.series):
        longest = max((len(series.points) for series in history.series), default=0)
        raise NothingComparable(
            "too few runs to detect changes",
            got=f"at most {longest} comparable runs per case",
            allowed=f"{MIN_RUNS} or more, with values above zero",
        )
    alerts = history.find_alerts(args.newest)
    with open_output(args.output) as stream:
        write_alerts(history, alerts, args.output_format, stream, newest=args.newest)
    return EXIT_REGRESSION if alerts else EXIT_OK

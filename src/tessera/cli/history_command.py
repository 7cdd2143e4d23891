"""Draw a metric over the runs of a store, case by case, and mark where it changed for good.

OP is the name of a case or a glob (`add`, 'conv*'), with the feature before it where two features share a name
(`ops/add`), or a whole case as other commands print it. Further words of the form NAME=VALUE keep the cases with that
parameter.

A change is called when it is larger than the threshold and cannot be noise, judged by the scatter of the runs and of
the launches within them; a single run that is off is an outlier, not a change. Only records that may be compared form
a line: those with the conditions and the benchmark version of the newest. The others are counted.

With --alerts the command is a gate: it fails when the newest runs hold a regression that is new and still lasts.
"""

from __future__ import annotations

import argparse
import re
import shutil
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from tessera.cli.options import add_output, add_store, checked, names, parse_fraction
from tessera.errors import OK, REGRESSION, NothingComparable, TesseraError, did_you_mean

if TYPE_CHECKING:
    from tessera.results.history import History
    from tessera.results.record import Case
    from tessera.results.store import Store

EPILOG = """\
examples:
  tessera history add                               how long add took, run by run
  tessera history 'conv*' --size medium --pass forward -o history.html
  tessera history ops/matmul --metric peak_allocated seed=0
  tessera history --alerts                          did the newest three runs bring a regression?
  tessera history --alerts 'ops/*' --newest 2 --threshold 5% --json

exit codes: 0 fine, 1 --alerts found a new regression, 2 bad input, 3 no history to show or to judge
"""

FILTERS = ("backend", "size", "pass", "dtype")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="*", metavar="OP | NAME=VALUE", help="cases by name or glob, and parameters that they must have"
    )
    parser.add_argument("--metric", default="time", metavar="NAME", help="the metric of the records (default: time)")
    for name in FILTERS:
        parser.add_argument(
            f"--{name}", type=names, dest=f"filter_{name}", metavar="A,B", help=f"only with this {name}"
        )
    parser.add_argument("--last", type=int, metavar="N", help="only the newest N runs that hold such cases")
    parser.add_argument(
        "--threshold",
        type=checked(parse_fraction),
        default=0.03,
        metavar="FRACTION",
        help="the smallest change that matters, e.g. 5%% or 0.05 (default: 3%%)",
    )
    parser.add_argument("--all", action="store_true", help="list every case and every record that is in no line")
    parser.add_argument(
        "--alerts", action="store_true", help="list new regressions only, and exit with 1 if there are any"
    )
    parser.add_argument(
        "--newest", type=int, default=3, metavar="N", help="with --alerts: how many runs count as new (default: 3)"
    )
    parser.add_argument("--list", action="store_true", help="list the runs and end")
    parser.add_argument("--quick", action="store_true", help=argparse.SUPPRESS)
    add_store(parser, writes=False)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    if args.list:
        from tessera.cli.list_command import print_listing

        return print_listing("runs", args.form, args.output, args.store)
    for option, least in (("last", 1), ("newest", 2)):  # one run alone may be an outlier: it makes no alert
        if (value := getattr(args, option)) is not None and value < least:
            raise TesseraError(f"--{option}", got=value, allowed=f"{least} or more")
    patterns, filters = _wanted(args)
    if not patterns and not args.alerts:
        raise TesseraError("no case named", do="name one or a glob, for example 'conv*', or use --alerts")
    from tessera.results.store import Store

    with Store(args.store, create=False) as store:
        found = _history(store, patterns or ["*"], filters, args)
    return _alerts(found, args) if args.alerts else _show(found, " ".join(args.words), args)


def _wanted(args: argparse.Namespace) -> tuple[list[str], dict[str, list[str]]]:
    """The patterns and the filters among the words of the command line."""
    patterns = [word for word in args.words if "=" not in word or _is_key(word)]
    filters: dict[str, list[str]] = {name: v for name in FILTERS if (v := getattr(args, f"filter_{name}"))}
    for word in args.words:
        if word not in patterns:
            name, _, values = word.partition("=")
            filters[name] = names(values)
    return patterns, filters


def _is_key(word: str) -> bool:
    """Whether a word is a whole case, such as `ops/add[size=small]`."""
    return re.fullmatch(r"[^/\[]+/[^\[]+\[.*=.*\]", word) is not None


def _history(
    store: Store, patterns: Sequence[str], filters: Mapping[str, Sequence[str]], args: argparse.Namespace
) -> History:
    from tessera.results.history import history, matches

    known = store.cases()
    for pattern in patterns:
        if not any(_may_mean(pattern, *case) for case in known):
            raise _unknown(pattern, known)
    cases = [case for case in known if any(_may_mean(pattern, *case) for pattern in patterns)]
    readings = [
        reading
        for reading in store.readings(args.metric, cases)
        if matches(reading.case, filters) and any(_means(pattern, reading.case) for pattern in patterns)
    ]
    if not readings:
        given = ", ".join(f"{name}={','.join(values)}" for name, values in filters.items())
        raise NothingComparable("no record of these cases has these parameters", got=given or ", ".join(patterns))
    if all(reading.metric is None for reading in readings):
        raise _no_metric(store, args.metric, cases)
    return history(readings, args.metric, threshold=args.threshold, last=args.last)


def _means(pattern: str, case: Case) -> bool:
    """Whether a pattern is this very case, or one that its name fits."""
    return pattern == case.key if _is_key(pattern) else _may_mean(pattern, case.feature, case.name)


def _may_mean(pattern: str, feature: str, name: str) -> bool:
    """Whether a pattern may mean a case of this name: `name` or `feature/name`, both perhaps globs, or a whole case."""
    glob = pattern.partition("[")[0] if _is_key(pattern) else pattern
    return fnmatchcase(name, glob) or ("/" in glob and fnmatchcase(f"{feature}/{name}", glob))


def _unknown(pattern: str, known: Sequence[tuple[str, str]]) -> TesseraError:
    if not known:
        return NothingComparable("the store holds no records", do="run a suite first")
    instead = "`tessera export latest -o -` shows what the newest run holds"
    do = did_you_mean(pattern.rpartition("/")[2], dict.fromkeys(name for _, name in known), instead)
    return TesseraError("no such case in the store", got=pattern, do=do)


def _no_metric(store: Store, metric: str, cases: Collection[tuple[str, str]]) -> TesseraError:
    """The error about a metric that no record has, with those that the newest records have."""
    records = (
        r for run in reversed(store.runs()) for r in store.records(run) if (r.case.feature, r.case.name) in cases
    )
    known = sorted({name for record in islice(records, 20) for name in record.metrics})
    if metric in known:
        return NothingComparable("no record with these parameters has a figure", got=metric)
    return TesseraError("no record of these cases has this metric", got=metric, allowed=known)


def _show(found: History, title: str, args: argparse.Namespace) -> int:
    if not found.series:
        raise NothingComparable("no record of these cases has a figure", got=f"{len(found.apart)} without one")
    suffix = Path(args.output).suffix if args.output else ""
    if args.form == "terminal" and suffix == ".html":
        from tessera.report.history_page import history_page
        from tessera.report.page import write_page

        write_page(history_page(found, title), Path(args.output))
        print(f"history: {args.output}")
        return OK
    from tessera.report.destination import destination
    from tessera.report.history_text import write_history

    with destination(args.output) as stream:
        write_history(found, args.form, stream, width=shutil.get_terminal_size().columns, everything=args.all)
    return OK


def _alerts(found: History, args: argparse.Namespace) -> int:
    from tessera.report.destination import destination
    from tessera.report.history_text import write_alerts
    from tessera.results.changepoints import MIN_RUNS

    if not any(series.judged for series in found.series):
        longest = max((len(series.points) for series in found.series), default=0)
        raise NothingComparable(
            "there is no history to judge",
            got=f"{longest} comparable runs of a case at most",
            allowed=f"{MIN_RUNS} or more, with figures above zero",
        )
    alerts = found.alerts(args.newest)
    with destination(args.output) as stream:
        write_alerts(found, alerts, args.form, stream, newest=args.newest)
    return REGRESSION if alerts else OK

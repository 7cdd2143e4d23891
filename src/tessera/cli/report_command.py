"""Write one HTML page of one or more runs: it works from a file, offline, on a screen, a phone or paper.

The first RUN is the baseline: every further one is compared with it. Each is the name of a run in the store,
`latest` (the default), `latest~1` (the one before the latest), or a file written by
`tessera export RUN -o FILE.json`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tessera.cli.options import add_store, checked, parse_fraction
from tessera.errors import OK, TesseraError
from tessera.suites.features import FEATURES

if TYPE_CHECKING:
    from tessera.report.runs import RunView, SectionBuilder

EPILOG = """\
examples:
  tessera report                              the latest run, as report.html
  tessera report before after                 two runs, with a verdict on every case
  tessera report latest~1 latest -o change.html --threshold 5%
  tessera report --list                       the runs there are

exit codes: 0 written, 2 bad input (an unknown run, a place that cannot be written)
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="*", default=["latest"], metavar="RUN", help="runs to show (default: latest)")
    parser.add_argument("--list", action="store_true", help="list the runs and end")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="where to write the page (default: report.html)",
    )
    parser.add_argument(
        "--threshold",
        type=checked(parse_fraction),
        default=0.03,
        metavar="FRACTION",
        help="the smallest change between runs that matters (default: 3%%)",
    )
    add_store(parser, writes=False)


def run(args: argparse.Namespace) -> int:
    if args.list:
        from tessera.cli.list_command import print_listing

        return print_listing("runs", "terminal", None, args.store)
    write_report(args.runs, store_path=args.store, path=args.output, threshold=args.threshold)
    print(f"report: {args.output}")
    return OK


def write_report(names: Sequence[str], *, store_path: str | None, path: Path, threshold: float = 0.03) -> None:
    """Write the page of the runs with these names, the baseline first."""
    from tessera.report.page import page, write_page
    from tessera.report.runs import features

    runs = [_view(name, store_path) for name in names]
    if len({run.name for run in runs}) < len(runs):
        raise TesseraError("the same run twice", got=", ".join(run.name for run in runs), do="name others")
    shown = features(runs)
    if not shown:
        raise TesseraError("there are no records to show", got=", ".join(run.name for run in runs))
    write_page(page(runs, _builders(shown), threshold=threshold), path)


def _view(name: str, store_path: str | None) -> RunView:
    from tessera.report.runs import RunView
    from tessera.results.export import read_json
    from tessera.results.sources import is_file
    from tessera.results.store import Store

    if is_file(name):
        exported = read_json(name)
        # Runs exported from several machines may share a name; their files do not.
        return RunView(name=name, created=exported.started, command=exported.command, records=exported.records)
    with Store(store_path, create=False) as store:
        found = store.run(name)
        records = list(store.records(found))
    return RunView(name=found.name, created=found.started, command=found.command, records=records)


def _builders(shown: Sequence[str]) -> Mapping[str, SectionBuilder]:
    """The sections that features bring themselves; the page has a general one for the others."""
    builders = {}
    for name in shown:
        if name in FEATURES:
            module, _, attribute = FEATURES[name].section.partition(":")
            if find_spec(module) is not None:
                builders[name] = getattr(import_module(module), attribute)
    return builders

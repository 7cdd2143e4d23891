"""Write one HTML page of one or more runs, which needs no server and no network.

The first RUN is the baseline: every other run is compared with it. Each is the name of a run in the store, `latest`
(the default), `latest~1` (the run before the latest), or a file written by `tessera export RUN -o FILE.json`.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from tessera.axes import Option
from tessera.cli.options import LIST_RUNS_OPTION, OUTPUT_FILE_OPTION, STORE_OPTIONS, THRESHOLD_OPTION
from tessera.errors import EXIT_OK, TesseraError
from tessera.suites.features import FEATURES

if TYPE_CHECKING:
    from tessera.report.runs import RunView, SectionBuilder

EPILOG = """\
examples:
  tessera report                              the latest run, as report.html
  tessera report before after                 two runs, with a verdict on every case
  tessera report latest~1 latest -o change.html --threshold 5%
  tessera report --list                       list of the runs

exit codes: 0 written, 2 bad input (an unknown run, a file that cannot be written)
"""


OPTIONS = (
    Option(name="runs", positional="RUN", several=True, default=("latest",), help="runs to show"),
    LIST_RUNS_OPTION,
    replace(OUTPUT_FILE_OPTION, group="", default="report.html", help="HTML file to write"),
    THRESHOLD_OPTION,
    *STORE_OPTIONS,
)


def run(args: argparse.Namespace) -> int:
    write_report(args.runs, store_path=args.store, path=Path(args.output), threshold=args.threshold)
    print(f"report: {args.output}")
    return EXIT_OK


def write_report(names: Sequence[str], *, store_path: str | None, path: Path, threshold: float = 0.03) -> None:
    """Write the HTML page of the runs `names` to `path`; the first run is the baseline."""
    from tessera.report.page import build_page, write_page
    from tessera.report.runs import list_features

    runs = [_read_run(name, store_path) for name in names]
    if len({run.name for run in runs}) < len(runs):
        raise TesseraError("a run is given twice", got=", ".join(run.name for run in runs), do="name different runs")
    shown = list_features(runs)
    if not shown:
        raise TesseraError("the runs have no records", got=", ".join(run.name for run in runs))
    write_page(build_page(runs, _load_section_builders(shown), threshold=threshold), path)


def _read_run(name: str, store_path: str | None) -> RunView:
    from tessera.report.runs import RunView
    from tessera.results.export import is_file_name, read_json
    from tessera.results.store import Store

    if is_file_name(name):
        exported = read_json(name)
        # Runs exported from several machines may have equal names; their files have different names.
        return RunView(name=name, created=exported.started, command=exported.command, records=exported.records)
    with Store(store_path, create=False) as store:
        run = store.get_run(name)
        records = list(store.read_records(run))
    return RunView(name=run.name, created=run.started, command=run.command, records=records)


def _load_section_builders(shown: Sequence[str]) -> Mapping[str, SectionBuilder]:
    """Return the section builders by feature; features without a builder get the general section."""
    builders = {}
    for name in shown:
        if name in FEATURES:
            module, _, attribute = FEATURES[name].section.partition(":")
            if find_spec(module) is not None:
                builders[name] = getattr(import_module(module), attribute)
    return builders

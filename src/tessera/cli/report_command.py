"""Write one HTML page of one or more runs, which needs no server and no network.

The first RUN is the baseline: every other run is compared with it. Each is the name of a run in the store, `latest`
(the default), `latest~1` (the run before the latest), or a file written by `tessera export RUN -o FILE.json`.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from tessera.axes import Option
from tessera.cli.options import LIST_RUNS_OPTION, OUTPUT_FILE_OPTION, STORE_OPTIONS, THRESHOLD_OPTION
from tessera.errors import EXIT_OK

OUTPUT_SUFFIXES = (".html",)
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
    from tessera.suites.report import write_report

    write_report(args.runs, store_path=args.store, path=Path(args.output), threshold=args.threshold)
    print(f"report: {args.output}")
    return EXIT_OK

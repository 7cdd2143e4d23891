"""Print a stored run again: its findings and compact tables, or with --all every figure of every case.

RUN is the name of a run in the store, `latest` (the default) or `latest~1` (the run before the latest).
"""

from __future__ import annotations

import argparse

from tessera.axes import Option
from tessera.cli.options import ALL_OPTION, LIST_RUNS_OPTION, OUTPUT_OPTIONS, SELECTION_OPTIONS, STORE_OPTIONS
from tessera.errors import EXIT_OK, TesseraError

EPILOG = """\
examples:
  tessera show                                 the latest run
  tessera show --all                           every figure of every case
  tessera show before --feature ops            one feature of the run `before`
  tessera show latest --name 'conv*' --csv     cases whose names match, for a spreadsheet

exit codes: 0 printed, 2 bad input (an unknown run, no matching case)
"""


OPTIONS = (
    Option(name="run", positional="RUN", default="latest", help="run: a name, latest or latest~1"),
    LIST_RUNS_OPTION,
    ALL_OPTION,
    *SELECTION_OPTIONS,
    *STORE_OPTIONS,
    *OUTPUT_OPTIONS,
)


def run(args: argparse.Namespace) -> int:
    from tessera.report.record_tables import print_records
    from tessera.results.store import Store

    with Store(args.store, create=False) as store:
        stored = store.get_run(args.run)
        records = list(store.read_records(stored, args.feature, args.name))
    if not records:
        what = "no records that match --feature and --name" if args.feature or args.name else "no records"
        raise TesseraError(f"the run has {what}", got=stored.name)
    if args.output_format == "terminal" and not args.output and not args.all:
        from tessera.cli.execute import print_findings_and_tables

        print_findings_and_tables(records)
    else:
        print_records(stored, records, args.output_format, args.output)
    return EXIT_OK

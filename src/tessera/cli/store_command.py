"""Check, repair and clean up the store of results.

check          read every record, verify its checksum and its values, and list what is damaged
delete RUN     delete a run and its records
vacuum         return unused space to the file system
repair NEW     copy everything that can be read to a new store
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

from tessera.axes import Option
from tessera.cli.options import STORE_OPTIONS
from tessera.errors import EXIT_OK, EXIT_REGRESSION, TesseraError, escape_controls

EPILOG = """\
examples:
  tessera store check                          damaged records, if there are any
  tessera store delete nightly-3               delete one run
  tessera store vacuum                         a smaller file after deleting
  tessera store repair saved.sqlite            everything that can be read, in a new store

exit codes: 0 success, 1 the store is damaged, 2 bad input
"""

ACTIONS = ("check", "delete", "vacuum", "repair")
MAX_LISTED = 50

OPTIONS = (
    Option(name="action", positional="ACTION", help="action: check, delete, vacuum or repair"),
    Option(name="target", positional="RUN|NEW", help="run to delete, or new store to write"),
    *STORE_OPTIONS,
)


def run(args: argparse.Namespace) -> int:
    from tessera.results.store import DamagedRecordsWarning

    if args.action not in ACTIONS:
        raise TesseraError("unknown action", got=args.action, allowed=ACTIONS)
    if (args.target is None) != (args.action in ("check", "vacuum")):
        needed = "takes no argument" if args.target else f"requires {'RUN' if args.action == 'delete' else 'NEW'}"
        raise TesseraError(f"tessera store {args.action} {needed}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DamagedRecordsWarning)  # the actions report damaged records themselves
        return {"check": _check, "delete": _delete, "vacuum": _vacuum, "repair": _repair}[args.action](args)


def _check(args: argparse.Namespace) -> int:
    from tessera.results.maintenance import check_store
    from tessera.results.store import Store

    with Store(args.store, create=False) as store:
        result = check_store(store)
    lines = [f"damaged: {each.key} of run {each.run}: {each.reason}" for each in result.damaged]
    lines += [f"fault: {fault}" for fault in result.faults]
    print("\n".join(map(escape_controls, lines[:MAX_LISTED])), end="\n" if lines else "")
    if len(lines) > MAX_LISTED:
        print(f"and {len(lines) - MAX_LISTED} more")
    print(f"{result.runs:,} runs, {result.records:,} sound records, {len(result.damaged):,} damaged")
    if not result.is_sound:
        print("copy the sound records with `tessera store repair NEW`", file=sys.stderr)
    return EXIT_OK if result.is_sound else EXIT_REGRESSION


def _delete(args: argparse.Namespace) -> int:
    from tessera.results.store import Store

    with Store(args.store, create=False) as store:
        stored = store.get_run(args.target)
        if process := store.find_writer(stored):
            raise TesseraError(f"{process} is writing the run", got=stored.name, do="end it first")
        count = sum(store.count_statuses(stored).values())
        store.delete_run(stored)
    print(f"deleted run {escape_controls(stored.name)} with {count:,} records", file=sys.stderr)
    return EXIT_OK


def _vacuum(args: argparse.Namespace) -> int:
    from tessera.results.store import Store

    with Store(args.store, create=False) as store:
        store.vacuum()
    return EXIT_OK


def _repair(args: argparse.Namespace) -> int:
    from tessera.results.maintenance import repair_store
    from tessera.results.store import Store

    if Path(args.target).exists():
        raise TesseraError("the new store exists already", got=args.target, do="name a file that does not exist")
    with Store(args.store, create=False) as source, Store(args.target) as target:
        count = repair_store(source, target)
    print(
        f"copied {count.runs:,} runs with {count.records:,} records to {escape_controls(args.target)}; "
        f"{count.damaged:,} damaged records are left out"
        + (f"; {count.renamed:,} runs with a damaged name are named recovered-ID" if count.renamed else ""),
        file=sys.stderr,
    )
    return EXIT_OK

"""Copy runs between two stores, each an SQLite file or postgresql://USER@HOST/DATABASE.

Runs of A that B does not have are copied to B, and then runs of B to A. Copying again copies only what is new. A run is
recognized by its name, command, suite and start; another run of the same name is copied as NAME@HASH. Runs that a
command is writing are left out until it ends.
"""

from __future__ import annotations

import argparse
import sys

from tessera.axes import Option
from tessera.errors import EXIT_OK, TesseraError, escape_controls

EPILOG = """\
examples:
  tessera sync .tessera/results.sqlite postgresql://me@results.example/tessera
  tessera sync old.sqlite new.sqlite --one-way                    only from old to new
  tessera sync here.sqlite there.sqlite --only nightly-7          one run

exit codes: 0 success, 2 bad input
"""

OPTIONS = (
    Option(name="a", positional="A", help="store: a file, or postgresql://USER@HOST/DATABASE"),
    Option(name="b", positional="B", help="other store, which is created if it does not exist"),
    Option(name="one_way", action="flag", help="copies from A to B only"),
    Option(name="only", metavar="RUN", help="run of A to copy to B", default_text="all runs, both ways"),
)


def run(args: argparse.Namespace) -> int:
    from tessera.results.copying import copy_runs
    from tessera.results.store import Store

    if args.a is None or args.b is None:
        raise TesseraError("two stores are required", do="use `tessera sync A B`")
    with Store(args.a, create=False) as a, Store(args.b) as b:
        if a.path == b.path:
            raise TesseraError("the stores are the same", got=str(a.path))
        directions = [(a, b, None if args.only is None else [a.get_run(args.only)])]
        if not args.one_way and args.only is None:
            directions.append((b, a, None))
        for source, target, runs in directions:
            count = copy_runs(source, target, runs)
            print(
                escape_controls(
                    f"{source.path} to {target.path}: {count.records:,} records of {count.runs:,} runs copied, "
                    f"{count.present:,} present"
                ),
                file=sys.stderr,
            )
    return EXIT_OK

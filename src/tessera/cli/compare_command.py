"""Compare two stored runs, case by case: faster, slower, same or unresolved, and why.

RUN_A is the one before, RUN_B the one after: a change of +10% means that B's figure is 10% above A's. Each
is the name of a run in the store, `latest`, `latest~1` (the one before the latest), or a file written by
`tessera export RUN -o FILE.json`.

What counts is the launch: two launches of the same program differ by more than the calls within one, so a
case needs several launches on both sides (`--launches 5`). A change is called when its whole interval lies
beyond the threshold and it would not be expected by chance among so many cases. `unresolved` is not `same`:
it means that the runs cannot tell, and the smallest change they could have shown is given.

Cases in one run only, edited benchmarks and records made under other conditions are never compared: they are
counted, and listed with --all.
"""

from __future__ import annotations

import argparse
from collections import Counter

from tessera.cli.options import add_output, add_store, checked, parse_fraction
from tessera.errors import OK, REGRESSION, NothingComparable

EPILOG = """\
examples:
  tessera compare                                     the last two runs
  tessera compare main branch --threshold 5%          only changes of 5% and more matter
  tessera compare main branch --feature ops --all     every operator, with the reason for its verdict
  tessera compare main.json branch.json --markdown -o comment.md     exported runs, for a pull request

exit codes: 0 nothing slower, 1 a case is slower or newly failed, 2 bad input, 3 nothing comparable
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_a",
        nargs="?",
        default="latest~1",
        metavar="RUN_A",
        help="the run before: a name or an exported JSON file (default: latest~1)",
    )
    parser.add_argument("run_b", nargs="?", default="latest", metavar="RUN_B", help="the run after (default: latest)")
    parser.add_argument("--list", action="store_true", help="list the runs and end")
    parser.add_argument(
        "--threshold",
        type=checked(parse_fraction),
        default=0.03,
        metavar="FRACTION",
        help="the smallest change that matters, e.g. 5%% or 0.05 (default: 3%%)",
    )
    parser.add_argument("--feature", metavar="F", help="only the cases of this feature, e.g. ops")
    parser.add_argument("--name", metavar="GLOB", help="only cases whose name fits, e.g. 'conv*'")
    parser.add_argument("--all", action="store_true", help="list every case; JSON and CSV have all of them anyway")
    add_store(parser, writes=False)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    if args.list:
        from tessera.cli.list_command import print_listing

        return print_listing("runs", args.form, args.output, args.store)
    from tessera.report.destination import destination
    from tessera.results.compare import compare
    from tessera.results.sources import read_source

    a, b = (
        read_source(text, args.store, feature=args.feature, name_glob=args.name) for text in (args.run_a, args.run_b)
    )
    for which, source in (("A", a), ("B", b)):
        if not source.observations:
            what = "no such cases" if args.feature or args.name else "no cases"
            raise NothingComparable(f"run {which} has {what}", got=source.name)
    comparison = compare(a.observations, b.observations, threshold=args.threshold)
    with destination(args.output) as stream:
        if args.form == "json":
            from tessera.results import strict_json

            runs = {"a": {"name": a.name, "started": a.started}, "b": {"name": b.name, "started": b.started}}
            stream.write(strict_json.dumps(runs | comparison.to_json(), indent=1) + "\n")
        else:
            from tessera.report.comparison_text import Names, write_comparison

            names = Names(*(f"{source.name}, started {source.started}" for source in (a, b)))
            write_comparison(comparison, names, args.form, stream, everything=args.all)
    if comparison.regressed:
        return REGRESSION
    if not comparison.cases:
        kinds = Counter(case.kind for case in comparison.apart)
        raise NothingComparable(
            "the runs share no case that may be compared",
            got=", ".join(f"{count} {kind}" for kind, count in kinds.items()),
            do="--all gives the reasons",
        )
    return OK

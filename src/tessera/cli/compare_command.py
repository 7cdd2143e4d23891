"""Compare two stored runs, case by case: faster, slower, same or unresolved, and why.

RUN_A is the run before, RUN_B the run after: a change of +10% means that B's value is 10% above A's. Each is the name
of a run in the store, `latest`, `latest~1` (the run before the latest), or a file written by
`tessera export RUN -o FILE.json`.

The launch is the sampling unit: two launches of one program differ more than the calls within one launch, so a case
requires several launches in both runs (`--launches 5`). A change is reported if its whole confidence interval
is beyond the threshold and it is significant after correction for the number of cases. `unresolved` means that the
runs cannot decide; the minimum detectable change is given.

Cases that are in one run only, changed benchmarks and records of different conditions are not compared. They are
counted, and listed with --all.
"""

from __future__ import annotations

import argparse
from collections import Counter

from tessera.axes import Option
from tessera.cli.options import LIST_RUNS_OPTION, OUTPUT_OPTIONS, SELECTION_OPTIONS, STORE_OPTIONS, THRESHOLD_OPTION
from tessera.errors import EXIT_OK, EXIT_REGRESSION, NothingComparable

EPILOG = """\
examples:
  tessera compare                                     the last two runs
  tessera compare main branch --threshold 5%          only changes of 5% and more matter
  tessera compare main branch --feature ops --all     every operator, with the reason for its verdict
  tessera compare main.json branch.json --markdown -o comment.md     exported runs, for a pull request

exit codes: 0 nothing slower, 1 a case is slower or newly failed, 2 bad input,
            3 nothing comparable or every case unresolved
"""


OPTIONS = (
    Option(name="run_a", positional="RUN_A", default="latest~1", help="run before: a name or an exported JSON file"),
    Option(name="run_b", positional="RUN_B", default="latest", help="run after"),
    LIST_RUNS_OPTION,
    THRESHOLD_OPTION,
    *SELECTION_OPTIONS,
    Option(name="all", action="flag", help="all cases instead of changed ones; JSON and CSV always contain all cases"),
    *STORE_OPTIONS,
    *OUTPUT_OPTIONS,
)


def run(args: argparse.Namespace) -> int:
    from tessera.report.tables import open_output
    from tessera.results.compare import compare
    from tessera.results.export import read_source

    a, b = (
        read_source(text, args.store, feature=args.feature, name_glob=args.name) for text in (args.run_a, args.run_b)
    )
    for which, source in (("A", a), ("B", b)):
        if not source.observations:
            what = "no cases that match --feature and --name" if args.feature or args.name else "no cases"
            raise NothingComparable(f"run {which} has {what}", got=source.name)
    comparison = compare(a.observations, b.observations, threshold=args.threshold)
    with open_output(args.output) as stream:
        if args.output_format == "json":
            from tessera.results import strict_json

            runs = {"a": {"name": a.name, "started": a.started}, "b": {"name": b.name, "started": b.started}}
            stream.write(strict_json.dumps(runs | comparison.to_dict(), indent=1) + "\n")
        else:
            from tessera.report.comparison_text import RunTitles, write_comparison

            names = RunTitles(*(f"{source.name}, started {source.started}" for source in (a, b)))
            write_comparison(comparison, names, args.output_format, stream, everything=args.all)
    if comparison.regressed:
        return EXIT_REGRESSION
    if not comparison.cases:
        kinds = Counter(case.kind for case in comparison.excluded)
        raise NothingComparable(
            "the runs have no comparable case in common",
            got=", ".join(f"{count} {kind}" for kind, count in kinds.items()),
            do="add --all for the reasons",
        )
    if all(case.verdict == "unresolved" for case in comparison.cases):
        raise NothingComparable(
            "every case is unresolved, so these runs cannot tell whether something changed",
            got=f"{len(comparison.cases)} cases",
            do="run both with more launches (--launches 5)",
        )
    return EXIT_OK

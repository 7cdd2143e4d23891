"""Two interpreters or two environments against each other, on the same operators, in short bursts in turns.

Both sides stay alive and take turns on the same core; the process that measures is forked anew many times, because
two launches of identical code differ. The verdict stands on the ratios of those launches: slower, faster, same, or
unresolved with the smallest change that could have been seen.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tessera.cli.ab_table import write_verdicts
from tessera.cli.execute import keeping, started
from tessera.cli.list_command import print_rows
from tessera.cli.ops_listing import catalogue_listing
from tessera.cli.options import add_output, add_store, checked, interpreter, names, parse_fraction
from tessera.cli.progress import StatusLine
from tessera.cli.records_table import write_records
from tessera.errors import OK, REGRESSION, TesseraError
from tessera.launch import LaunchConfig
from tessera.launch.alternate import CONFIDENCE, FEW_INTERPRETERS, INTERPRETERS, Alternated, Alternator
from tessera.launch.spawns import THREAD_VARIABLES
from tessera.measure.allocator import ALLOCATORS, DEFAULT
from tessera.measure.environment import environment
from tessera.measure.samples import Samples
from tessera.measure.verdict import Verdict, smallest_effect, verdict_of
from tessera.operators import catalogue
from tessera.operators.backends import check_usable, entry, python_of
from tessera.operators.cases import DTYPES, PASSES, cases
from tessera.operators.operator import SIZES
from tessera.report.destination import destination
from tessera.results.record import Case, Metric, Record, exit_code, record_of_error
from tessera.results.store import Store
from tessera.suites.suite import parse_duration

LIMIT = 300.0  # seconds for one burst: an operator that hangs ends the comparison


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """What a comparison may take, and the changes that matter to it."""

    budget: float
    interpreters: int
    threshold: float


THOROUGH = Effort(budget=20.0, interpreters=INTERPRETERS, threshold=0.01)
QUICK = Effort(budget=1.0, interpreters=FEW_INTERPRETERS, threshold=0.02)  # three interpreters may lie 1 % apart

EPILOG = """\
examples:
  tessera ab add matmul --b other-venv/bin/python           this interpreter against another
  tessera ab conv2d --env-b ATEN_CPU_CAPABILITY=default     the same one with a variable set
  tessera ab add                                            the same against itself: the machine's own noise

exit codes: 0 nothing slower, 1 an operator is slower in B, 2 bad input
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="operators, by name or glob")
    parser.add_argument("--category", type=names, default=[], metavar="A,B", help="all operators of these categories")
    parser.add_argument("--backend", type=names, default=["torch"], metavar="A,B", help="on these (default: torch)")
    parser.add_argument("--operators", metavar="FILE", help="a Python file with more operators, in a tuple OPERATORS")
    parser.add_argument("--list", action="store_true", help="list the operators, or those that are named, and end")
    for side in "ab":
        parser.add_argument(
            f"--{side}",
            type=checked(interpreter),
            default=sys.executable,
            metavar="PYTHON",
            help=f"interpreter of side {side.upper()} (default: this one)",
        )
        parser.add_argument(
            f"--env-{side}",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help=f"variable of side {side.upper()}; repeatable",
        )
    parser.add_argument(
        "--size",
        type=names,
        default=["medium"],
        metavar="A,B",
        help=f"of {', '.join(SIZES)} (default: medium)",
    )
    parser.add_argument(
        "--pass",
        dest="passes",
        type=names,
        default=["forward"],
        metavar="A,B",
        help=f"of {', '.join(PASSES)} (default: forward)",
    )
    parser.add_argument(
        "--dtype",
        type=names,
        default=["float32"],
        metavar="A,B",
        help=f"of {', '.join(DTYPES)} (default: float32)",
    )
    parser.add_argument(
        "--budget",
        type=checked(parse_duration),
        metavar="TIME",
        help="per operator, at most: it ends when the ratio is known to the threshold (default: 20s, with --quick 1s)",
    )
    parser.add_argument("--quick", action="store_true", help="a first look: fewer interpreters, less time")
    parser.add_argument(
        "--threshold",
        type=checked(parse_fraction),
        metavar="FRACTION",
        help="changes that matter (default: 1%%, with --quick 2%%)",
    )
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of each side (default: 1)")
    parser.add_argument(
        "--allocator",
        choices=tuple(ALLOCATORS),
        default=DEFAULT,
        help="malloc setting of both sides (default: steady)",
    )
    add_store(parser, writes=True)
    add_output(parser)


def run(args: argparse.Namespace) -> int:
    if args.operators:
        catalogue.use(args.operators)
    if args.list:
        listed = catalogue.find(args.names or ([] if args.category else ["*"]), args.category)
        return print_rows(catalogue_listing(listed), args.form, args.output)
    if not args.names and not args.category:
        raise TesseraError("no operator named", do="name some; see `tessera ab --list`")
    wanted = cases(
        args.names, category=args.category, backend=args.backend, size=args.size, passes=args.passes, dtype=args.dtype
    )
    if not wanted:
        raise TesseraError("nothing to compare", do="see `tessera ab --help` for sizes, passes and dtypes")
    _check_backends(args)
    effort = QUICK if args.quick else THOROUGH
    if args.budget is not None:
        effort = replace(effort, budget=args.budget)
    if args.threshold is not None:
        effort = replace(effort, threshold=args.threshold)
    a, b = (_side(args, which) for which in "ab")
    # of many operators some would be called changed by luck: all their intervals hold together
    confidence = 1 - (1 - CONFIDENCE) / len(wanted)
    labels = {side: _label(args, side) for side in "ab"}
    asked = [Case(feature="ab", name=case.name, params={**case.params, **labels}) for case in wanted]
    with Store(args.store) as store:
        stored = started(store, args.run, suite="ab", resume=args.resume)
        with keeping(store, stored), StatusLine() as say, Alternator(a, b, interpreters=effort.interpreters) as sides:
            finished = store.finished_keys(stored)
            for number, case in enumerate(asked, 1):
                if case.key not in finished:
                    say(f"[{number}/{len(asked)}] {case.name}, {case.params['size']}, {case.params['pass']}")
                    store.add(stored, _compared(sides, case, effort, confidence))
        stored = store.finish_run(stored)
        keys = {case.key for case in asked}
        records = [record for record in store.records(stored) if record.case.key in keys]
    with destination(args.output) as stream:
        if args.form in ("json", "csv"):
            write_records(stored, records, args.form, stream)
        else:
            write_verdicts(records, args.form, stream, title=_title(args))
    code = exit_code(records)
    return code if code != OK else REGRESSION if any("slower" in record.notes for record in records) else OK


def _check_backends(args: argparse.Namespace) -> None:
    """Refuse, before many interpreters are started, what none of them could run."""
    for name in args.backend if sys.executable in (args.a, args.b) else ():
        check_usable(name)
        if own := python_of(name):
            raise TesseraError(f"{entry(name).title} runs in an interpreter of its own", do=f"add --a {own} --b {own}")


def _side(args: argparse.Namespace, which: str) -> LaunchConfig:
    env = {}
    for item in getattr(args, f"env_{which}"):
        name, equals, value = item.partition("=")
        if not (equals and name):
            raise TesseraError(f"--env-{which}", got=item, allowed="NAME=VALUE")
        env[name] = value
    return LaunchConfig(
        threads=_threads(env, args.threads),
        allocator=args.allocator,
        python=getattr(args, which),
        env=env,
        time_limit=LIMIT,
    )


def _threads(env: Mapping[str, str], usual: int) -> int:
    """The threads of a side: a variable that sets them counts for the cores that it is pinned to, too."""
    given = sorted({env[name] for name in THREAD_VARIABLES if name in env}) or [str(usual)]
    if len(given) > 1 or not given[0].isdecimal():
        raise TesseraError("the threads of a side", got=" and ".join(given), allowed="one number")
    return int(given[0])


def _label(args: argparse.Namespace, which: str) -> str:
    """What tells the sides apart in a record."""
    python = getattr(args, which)
    parts = ["this" if python == sys.executable else python, *getattr(args, f"env_{which}")]
    return " ".join(parts)


def _title(args: argparse.Namespace) -> str:
    return f"A: {_label(args, 'a')}   B: {_label(args, 'b')}"


def _compared(sides: Alternator, case: Case, effort: Effort, confidence: float) -> Record:
    """The record of one operator; one that does not run on both sides stops no other."""
    try:
        sides.prepare("tessera.operators.preparation:callable_of", "tessera.operators.bench:preload", (case,))
        sides.attempt("tessera.operators.preparation:callable_of", (case,))
        found = sides.compare(
            "tessera.operators.preparation:unchecked_callable_of",
            (case,),
            (case,),
            budget=effort.budget,
            target=effort.threshold,
            confidence=confidence,
        )
    except TesseraError as error:
        return replace(record_of_error(case, error, unit="ratio"), environment=environment())
    record = _record(case, found, effort.threshold, confidence)
    (seen, other) = sides.environments()
    version = catalogue.find([case.name])[0].version
    return replace(record, environment=seen, conditions={"libraries of B": other["libraries"]}, version=version)


def _record(case: Case, found: Alternated, threshold: float, confidence: float) -> Record:
    """Each sample is the ratio of a pair of launches; their sides' own times stand beside it, as those of ranks do."""
    ratio = found.ratio(confidence)
    middle = [float(_median([_median(launch) for launch in side])) for side in (found.a, found.b)]
    return Record(
        case=case,
        unit="ratio",
        launches=(
            Samples(
                values=tuple(math.exp(r) for r in found.log_ratios),
                stopped_by=found.stopped_by,
                ranks=tuple(tuple(_median(launch) for launch in side) for side in (found.a, found.b)),
                joined_by="B over A, each launch by its low quantile",
            ),
        ),
        metrics={
            "ratio": Metric(ratio.value, "", "lower"),
            "low": Metric(ratio.low),
            "high": Metric(ratio.high),
            "time_a": Metric(middle[0], "s", "lower"),
            "time_b": Metric(middle[1], "s", "lower"),
            "smallest": Metric(smallest_effect(ratio, threshold), "", "lower"),
        },
        notes=(_verdict(found, threshold, confidence),),
    )


def _verdict(found: Alternated, threshold: float, confidence: float) -> Verdict:
    """A change is called by the interval that holds together with the others, `same` by the operator's own."""
    verdict = verdict_of(found.ratio(confidence), threshold)
    return "same" if verdict == "unresolved" and verdict_of(found.ratio(), threshold) == "same" else verdict


def _median(values: tuple[float, ...] | list[float]) -> float:
    import statistics

    return statistics.median(values)

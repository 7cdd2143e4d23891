"""Run a benchmark of several parts: each part is run, printed and stored separately, with the machine described."""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS_FOLDER = Path(__file__).parent / "results"


def make_parser(description: str | None, name: str, parts: Sequence[str]) -> argparse.ArgumentParser:
    """Build a parser with the options that every benchmark has: the parts to run, and the results file."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=parts, action="append", help="part to run; repeatable (default: all parts)")
    parser.add_argument(
        "-o",
        type=Path,
        default=RESULTS_FOLDER / f"{name}.json",
        help=f"results file (default: benchmarks/results/{name}.json)",
    )
    return parser


def parse_arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse the arguments, and restart the process with the steady allocator, which takes effect only at start."""
    from tessera.measure.allocator import detect_allocator, get_allocator_env

    args = parser.parse_args()
    if detect_allocator() != "steady":
        os.environ.update(
            get_allocator_env("steady"), OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1"
        )
        os.execv(sys.executable, [sys.executable, *sys.argv])
    return args


Outcome = dict[str, Any] | Iterator[dict[str, Any]]


def run_parts(
    args: argparse.Namespace, parts: Sequence[str], run: Callable[[str], Outcome], *, kept: str | None = None
) -> None:
    """Run parts one after the other; each prints its `lines` and replaces its own results in the file.

    A part that returns an iterator yields its results so far, which are stored at once, and last all its results.
    `kept` names a table in the results of a part: its entries that are not run this time are kept.
    """
    from tessera.measure.environment import describe_environment

    results = json.loads(args.o.read_text()) if args.o.exists() else {}
    args.o.parent.mkdir(exist_ok=True)
    for part in args.only or parts:
        before, began, stored = os.getloadavg(), time.monotonic(), results.get(part, {})
        outcomes = run(part)
        for outcome in [outcomes] if isinstance(outcomes, dict) else outcomes:
            when = datetime.now(UTC).isoformat(timespec="seconds")
            about = {
                "when": when,
                "seconds": time.monotonic() - began,
                "load before": before,
                "environment": describe_environment(),
            }
            results[part] = about | outcome
            if kept in stored and kept in outcome:
                old = {name: {"when": stored["when"]} | entry for name, entry in stored[kept].items()}
                results[part][kept] = old | {name: entry | {"when": when} for name, entry in outcome[kept].items()}
            args.o.write_text(json.dumps(results, indent=1) + "\n")
        print(f"\n{part}\n" + "\n".join(results[part]["lines"]), flush=True)


def run_modules(
    args: argparse.Namespace, parts: Sequence[str], package: str, *given: Any, kept: str | None = None, **named: Any
) -> None:
    """Run parts that are modules of a package: calls the `run` function of each with the given arguments.

    A named argument goes only to functions that have a parameter of that name.
    """

    def run(part: str) -> Outcome:
        function = importlib.import_module(f"{package}.{part.replace('-', '_')}").run
        known = inspect.signature(function).parameters
        outcome: Outcome = function(*given, **{name: value for name, value in named.items() if name in known})
        return outcome

    run_parts(args, parts, run, kept=kept)


@contextmanager
def limit_to_two_cores() -> Iterator[None]:
    """Limit this process and its children to two cores, inside the context."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:2])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def log(text: str) -> None:
    """Print a line of progress with the time of day."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

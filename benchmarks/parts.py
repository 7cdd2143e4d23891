"""A benchmark of several parts: each is run, printed and written down by itself, with the machine described."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def options(description: str | None, name: str, parts: Sequence[str]) -> argparse.ArgumentParser:
    """What every benchmark can be told: which of its parts to run, and where to write."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=parts, action="append", help="a part alone; repeatable")
    parser.add_argument("-o", type=Path, default=RESULTS / f"{name}.json", help="where to write the results")
    return parser


def begin(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """What was asked for, in a process that was started with the steady allocator: the setting acts on no other."""
    from tessera.measure.allocator import allocator_env, current_allocator

    args = parser.parse_args()
    if current_allocator() != "steady":
        os.environ.update(allocator_env("steady"), OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        os.execv(sys.executable, [sys.executable, *sys.argv])
    return args


def run_parts(
    args: argparse.Namespace, parts: Sequence[str], run: Callable[[str], dict[str, Any]], *, kept: str | None = None
) -> None:
    """Run the parts one after the other; each replaces its own results in the file, and prints its `lines`.

    `kept` names a table in the results of a part, of which entries that were not run this time stay.
    """
    from tessera.measure.environment import environment

    results = json.loads(args.o.read_text()) if args.o.exists() else {}
    for part in args.only or parts:
        before, began = os.getloadavg(), time.monotonic()
        found = run(part)
        when = datetime.now(UTC).isoformat(timespec="seconds")
        about = {"when": when, "seconds": time.monotonic() - began, "load before": before, "environment": environment()}
        if kept and part in results:
            stored = results[part]
            old = {name: {"when": stored["when"]} | one for name, one in stored[kept].items()}
            found[kept] = old | {name: one | {"when": when} for name, one in found[kept].items()}
        results[part] = about | found
        print(f"\n{part}\n" + "\n".join(found["lines"]), flush=True)
        args.o.parent.mkdir(exist_ok=True)
        args.o.write_text(json.dumps(results, indent=1) + "\n")


def run_modules(
    args: argparse.Namespace, parts: Sequence[str], package: str, *given: Any, kept: str | None = None, **named: Any
) -> None:
    """The same where every part is a module of a package: its `run` gets what is given here."""

    def run(part: str) -> dict[str, Any]:
        found: dict[str, Any] = importlib.import_module(f"{package}.{part.replace('-', '_')}").run(*given, **named)
        return found

    run_parts(args, parts, run, kept=kept)


@contextmanager
def two_cores() -> Iterator[None]:
    """What is launched within shares two cores, however many there are."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:2])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def say(text: str) -> None:
    """What is being done now, with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)

"""A benchmark of several parts: each is run, printed and written down by itself, with the machine described."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def run_parts(path: Path, parts: Iterable[str], run: Callable[[str], dict[str, Any]]) -> None:
    """Run the parts one after the other; each replaces its own results in the file, and prints its `lines`."""
    from tessera.measure.environment import environment

    results = json.loads(path.read_text()) if path.exists() else {}
    for part in parts:
        before, began = os.getloadavg(), time.monotonic()
        found = run(part)
        when = datetime.now(UTC).isoformat(timespec="seconds")
        about = {"when": when, "seconds": time.monotonic() - began, "load before": before, "environment": environment()}
        results[part] = about | found
        print(f"\n{part}\n" + "\n".join(found["lines"]), flush=True)
        write(path, results)


def restart_with_steady_allocator() -> None:
    """The setting acts only on a process that was started with it."""
    from tessera.measure.allocator import allocator_env, current_allocator

    if current_allocator() != "steady":
        os.environ.update(allocator_env("steady"), OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        os.execv(sys.executable, [sys.executable, *sys.argv])


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def write(path: Path, results: dict[str, Any]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(results, indent=1) + "\n")

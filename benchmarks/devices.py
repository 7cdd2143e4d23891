"""Accuracy of the times on an asynchronous device, on the device for tests with set durations.

    python benchmarks/devices.py                 all parts; takes a minute on an idle machine
    python benchmarks/devices.py --only times

Requires a C++ compiler. Every operator of the device takes a set time, and every launch takes the host a set time. The
parts measure operators as `tessera ops --device` does, and print the error of the measured times. Writes
benchmarks/results/devices.json with a description of the machine. Leave the machine idle: a thread that sleeps longer
than it should makes the device itself slower.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import median
from typing import Any

from parts import log, make_parser, parse_arguments, run_parts

ROOT = Path(__file__).parents[1]
PARTS = ("times", "launches")
MILLISECOND = 1_000_000
OPERATORS = ("add", "matmul", "conv2d", "softmax")
DURATIONS_NS = (2 * MILLISECOND, 10 * MILLISECOND)  # of an operator on the device
LAUNCHES_NS = (200_000, MILLISECOND, 5 * MILLISECOND)  # of a launch on the host


def main() -> None:
    parser = make_parser(__doc__, "devices", PARTS)
    parser.add_argument("--rounds", type=int, default=5, help="measurements per row (default: 5)")
    args = parse_arguments(parser)
    if "STANDIN_DEVICES" not in os.environ:  # torch finds the device for tests when it is imported
        sys.path.insert(0, str(ROOT))
        from tests.device.standin.build import make_environment

        os.execve(sys.executable, [sys.executable, *sys.argv], make_environment(devices=2))
    import torch  # noqa: F401  (imports the device; before the first fork, so that no child imports it again)

    functions = {"times": measure_times, "launches": measure_launches}
    run_parts(args, PARTS, lambda part: functions[part](args.rounds))


def measure_times(rounds: int) -> dict[str, Any]:
    """Measure operators of set durations, each call with others in flight; the launch takes 0.1 ms."""
    rows = []
    for name in OPERATORS:
        for duration in DURATIONS_NS:
            log(f"{name}, {duration / MILLISECOND:g} ms")
            found = [measure(name, operator_ns=duration, launch_ns=MILLISECOND // 10)["time"] for _ in range(rounds)]
            rows.append({"operator": name, "set": duration / 1e9, "measured": found})
    return {"rows": rows, "lines": format_rows(rows)}


def measure_launches(rounds: int) -> dict[str, Any]:
    """Measure launches of set durations; an operator takes three times as long as its launch.

    The set duration comes on top of the host's own work for a call, which is measured without a set duration.
    """
    rows = []
    own = median(measure("add", operator_ns=MILLISECOND, launch_ns=0)["launch_overhead"] for _ in range(rounds))
    for launch in LAUNCHES_NS:
        log(f"launch of {launch / MILLISECOND:g} ms")
        found = [measure("add", operator_ns=3 * launch, launch_ns=launch)["launch_overhead"] for _ in range(rounds)]
        rows.append({"operator": "add", "set": launch / 1e9 + own, "measured": found})
    lines = [f"host work of a call without a set launch: {own * 1e6:.0f} µs, part of the set times"]
    return {"own": own, "rows": rows, "lines": [*lines, *format_rows(rows)]}


def measure(name: str, **settings: int) -> dict[str, float]:
    """Measure one operator in a forked process, as a run does, and return its metrics."""
    from tessera.launch.fresh import FreshProcess
    from tessera.operators.bench import preload

    preload(make_case(name))
    with FreshProcess() as process:
        metrics: dict[str, float] = process.call("devices:measure_here", name, settings)
    return metrics


def make_case(name: str) -> Any:
    """Return the case of an operator on the device for tests."""
    from tessera.operators.cases import cases

    (case,) = cases([name], passes=["forward"], size=["small"], device=["standin:0"])
    return case


def measure_here(name: str, settings: dict[str, int]) -> dict[str, float]:
    """Measure one operator on the device for tests in this process."""
    import tessera_standin

    from tessera.launch.worker import RunContext, Worker
    from tessera.measure.samples import Sampling
    from tessera.measure.sync import SINGLE_RANK
    from tessera.operators.bench import run_case

    tessera_standin.configure(**settings)
    worker = Worker(rank=0, size=1, spawn="inline", cpus=(), threads=1, sync=SINGLE_RANK)
    record = run_case(RunContext(worker=worker), make_case(name), Sampling(iterations=20, warmup=2))
    return {metric: record.metrics[metric].value for metric in ("time", "launch_overhead")}


def format_rows(rows: list[dict[str, Any]]) -> list[str]:
    """Return one line per row: the set time, the median of the measured times, and the errors."""
    lines = ["set and measured times, and the errors of the median and of the worst measurement"]
    for row in rows:
        errors = [value / row["set"] - 1 for value in row["measured"]]
        worst = max(errors, key=abs)
        lines.append(
            f"  {row['operator']:10} {row['set'] * 1e3:8.3f} ms {median(row['measured']) * 1e3:8.3f} ms"
            f" {median(errors):+8.2%} {worst:+8.2%}"
        )
    return lines


if __name__ == "__main__":
    main()

"""Whole networks of public packages split over two ranks, compared with the unsplit networks on the same cores.

Two ranks of torchrun with one thread each against one process with two threads, launched in turns; and the overhead per
layer for a small image. The packages come from the environment of the zoo (see `zoo_run`). Weights and images are
random.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

from parts import limit_to_two_cores
from zoo_run import make_worker_env, prepare_environment

WORKER = Path(__file__).with_name("networks_worker.py")
TIME_LIMIT_SECONDS = 900
OVERHEAD_SIZE, OVERHEAD_STEPS = 64, 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A network, an image size in pixels, and the number of measured steps per launch."""

    network: str
    size: int
    steps: int
    train: bool = False

    @property
    def title(self) -> str:
        return f"{self.network} {self.size} {'training' if self.train else 'inference'}"


# Networks of one launch, in which they run one after the other. A step of the first two takes about 15 s on two cores.
LAUNCHES = [
    [Case(network="AutoencoderKL decoder", size=512, steps=1)],
    [Case(network="UNet2DModel", size=512, steps=1)],
    [
        Case(network="MONAI 3-D UNet", size=96, steps=3),
        Case(network="MONAI 3-D UNet", size=96, steps=2, train=True),
        Case(network="yolov8n", size=640, steps=8),
        Case(network="yolov8s", size=640, steps=5),
        Case(network="ResNet-50", size=224, steps=12),
        Case(network="ResNet-50", size=224, steps=6, train=True),
        Case(network="ResNet-50", size=512, steps=5),
        Case(network="ResNet-50", size=512, steps=3, train=True),
    ],
]


def list_launches(names: Sequence[str], small: bool) -> list[list[Case]]:
    """Return the chosen networks by launch: whose title has one of the names, or all; small: a quarter of the size."""
    launches = [[case for case in cases if not names or any(n in case.title for n in names)] for cases in LAUNCHES]
    if small:
        launches = [[replace(case, size=max(32, case.size // 4)) for case in cases] for cases in launches]
    return [cases for cases in launches if cases]


def run(
    say: Callable[[str], None],
    *,
    rounds: int = 3,
    networks: Sequence[str] = (),
    small: bool = False,
    minutes: float = inf,
) -> Iterator[dict[str, Any]]:
    """Time all networks; the overhead per layer comes first. After `minutes`, no further launch is started."""
    python = prepare_environment(say)
    rows: dict[str, dict[str, Any]] = {}
    deadline = time.monotonic() + 60 * minutes
    with limit_to_two_cores():
        overhead = {} if networks else _measure_overhead(python, say)
        about = list(_describe_overhead(overhead))
        for number in range(rounds):
            for cases in list_launches(networks, small):
                if time.monotonic() > deadline:
                    return
                for case in cases:
                    rows.setdefault(case.title, {"unsplit": [], "2 ranks": []})
                for name, ranks in (("unsplit", 1), ("2 ranks", 2)):
                    for case, seconds in zip(cases, _time_cases(python, ranks, cases), strict=True):
                        rows[case.title][name].append(statistics.median(seconds))
                        say(f"round {number + 1}, {case.title}, {name}: {rows[case.title][name][-1] * 1e3:.0f} ms")
                yield {"networks": rows, "overhead": overhead, "lines": [*_tabulate(rows), *about]}


def launch_worker(python: Path, ranks: int, **task: Any) -> Any:
    """Run a task on some ranks with one thread each, or on one rank with two threads; return the result of rank 0."""
    threads = str(task.pop("threads", 2 if ranks == 1 else 1))
    command = [str(python)]
    if ranks > 1:
        command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    process = subprocess.run(
        [*command, str(WORKER), json.dumps(task)],
        capture_output=True,
        text=True,
        timeout=TIME_LIMIT_SECONDS,
        env=make_worker_env() | dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), threads),
    )
    for line in process.stdout.splitlines():
        if line.startswith("result "):
            return json.loads(line.removeprefix("result "))
    return {"failed": (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]}


def _time_cases(python: Path, ranks: int, cases: Sequence[Case]) -> list[list[float]]:
    result = launch_worker(python, ranks, work="time", cases=[asdict(case) for case in cases])
    if "failed" in result:
        raise RuntimeError(f"{cases[0].title}, … on {ranks} ranks: {result['failed']}")
    seconds: list[list[float]] = result["seconds"]
    return seconds


def _measure_overhead(python: Path, say: Callable[[str], None]) -> dict[str, Any]:
    task: dict[str, Any] = {
        "network": "ResNet-50",
        "size": OVERHEAD_SIZE,
        "work": "overhead",
        "train": False,
        "steps": OVERHEAD_STEPS,
        "threads": 1,
    }
    results = {ranks: launch_worker(python, ranks, **task) for ranks in (1, 2)}
    say(f"ResNet-50 at {OVERHEAD_SIZE}: {statistics.median(results[2]['seconds']) * 1e3:.1f} ms on 2 ranks")
    return {str(ranks): result for ranks, result in results.items()}


def _tabulate(rows: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield "time of a step: 2 ranks with 1 thread, divided by unsplit with 2 threads on the same cores"
    for title, row in rows.items():
        ratios = sorted(split / whole for whole, split in zip(row["unsplit"], row["2 ranks"], strict=True))
        if ratios:
            yield (
                f"  {title:36} unsplit {statistics.median(row['unsplit']) * 1e3:8.1f} ms, 2 ranks"
                f" {statistics.median(row['2 ranks']) * 1e3:8.1f} ms: {statistics.median(ratios):.3f}"
                f" ({ratios[0]:.3f} to {ratios[-1]:.3f} in {len(ratios)} rounds)"
            )


def _describe_overhead(overhead: dict[str, Any]) -> Iterator[str]:
    if not overhead:
        return
    whole, split = (overhead[ranks] for ranks in ("1", "2"))
    yield (
        f"overhead per layer: ResNet-50, inference of one {OVERHEAD_SIZE} x {OVERHEAD_SIZE} image; a rank's half alone"
        f" {statistics.median(whole['seconds']) * 1e3:.1f} ms, on 2 ranks"
        f" {statistics.median(split['seconds']) * 1e3:.1f} ms"
    )
    for kind, count in whole["counts"].items():
        alone, together = whole["modules"][kind], split["modules"][kind]
        extra = together - alone
        yield f"  {kind:24} {count:3} layers: {alone:6.0f} µs alone, {together:6.0f} µs split: {extra:+.0f} µs"

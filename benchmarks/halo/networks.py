"""Whole networks of public packages split over ranks, compared with the unsplit networks on the same cores.

Two ranks of torchrun with one thread each against one process with two threads, launched in turns; peak memory of a
rank; decoding an image in limited memory; and the overhead per layer for a small image. The packages are installed in
the environment of the zoo (benchmarks/.zoo). Weights and images are random.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from parts import limit_to_two_cores
from zoo_run import make_worker_env, prepare_environment

WORKER = Path(__file__).with_name("networks_worker.py")
GIB, MIB = 1 << 30, 1 << 20
TIME_LIMIT_SECONDS = 1800
# network, size of the image in pixels, steps per launch, whether training is measured too
CASES = [
    ("AutoencoderKL decoder", 512, 2, False),
    ("UNet2DModel", 512, 2, False),
    ("MONAI 3-D UNet", 96, 8, True),
    ("yolov8n", 640, 10, False),
    ("yolov8s", 640, 8, False),
    ("ResNet-50", 224, 15, True),
    ("ResNet-50", 512, 8, True),
]
SMALL_CASES = [(name, max(32, size // 4), 3, train) for name, size, _, train in CASES if name != "yolov8s"]
ROUNDS = 5
MEMORY_RANKS = (1, 2, 4)
LIMITED_SIZE, LIMIT_BYTES = 768, 5 * GIB // 2
OVERHEAD_SIZE, OVERHEAD_STEPS = 64, 60


def run(say: Callable[[str], None], *, small: bool = False) -> dict[str, Any]:
    python = prepare_environment(say)
    cases, rounds = (SMALL_CASES, 2) if small else (CASES, ROUNDS)
    with limit_to_two_cores():
        times = _measure_times(python, cases, rounds, say)
        memory = _measure_memory(python, cases, say)
        size, limit = (256, GIB // 3) if small else (LIMITED_SIZE, LIMIT_BYTES)
        limited = _decode_in_limited_memory(python, size, limit, say)
        overhead = _measure_overhead(python, say)
    results = {"times": times, "memory": memory, "limited": limited, "overhead": overhead}
    return results | {"lines": [*_tabulate(results), *_describe_limited(limited, size, limit)]}


def _launch(python: Path, ranks: int, **task: Any) -> dict[str, Any]:
    """Run a task on some ranks with one thread each, or on one rank with two threads; return what rank 0 prints."""
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
            result: dict[str, Any] = json.loads(line.removeprefix("result "))
            return result
    return {"failed": (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]}


def _measure_times(python: Path, cases: Any, rounds: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """Return the ratio of split to unsplit time per case and round: median of each launch, launches in turns."""
    results = []
    for name, size, steps, trains in cases:
        for train in (False, True) if trains else (False,):
            medians: dict[int, list[float]] = {1: [], 2: []}
            for _ in range(rounds):
                for ranks, values in medians.items():
                    got = _launch(python, ranks, network=name, size=size, work="time", train=train, steps=steps)
                    if "seconds" not in got:
                        raise RuntimeError(f"{name} on {ranks} ranks: {got['failed']}")
                    values.append(statistics.median(got["seconds"]))
            ratios = sorted(split / whole for whole, split in zip(medians[1], medians[2], strict=True))
            results.append({"network": name, "size": size, "train": train, "seconds": medians, "ratios": ratios})
            say(f"{name} {size} {'training' if train else 'inference'}: {statistics.median(ratios):.3f}")
    return results


def _measure_memory(python: Path, cases: Any, say: Callable[[str], None]) -> list[dict[str, Any]]:
    results = []
    for name, size, _, trains in cases:
        for train in (False, True) if trains else (False,):
            peaks = {
                ranks: _launch(python, ranks, network=name, size=size, work="memory", train=train)
                for ranks in MEMORY_RANKS
            }
            results.append({"network": name, "size": size, "train": train, "peaks": peaks})
            say(f"peak memory of {name} {size}: {[peak.get('peak_bytes', 0) // MIB for peak in peaks.values()]} MiB")
    return results


def _decode_in_limited_memory(python: Path, size: int, limit: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Decode an image without a limit, then with limited address space on 1, 2 and 4 ranks."""
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        task: dict[str, Any] = {
            "network": "AutoencoderKL decoder",
            "size": size,
            "work": "limit",
            "train": False,
            "file": f"{folder}/image.pt",
        }
        _launch(python, 1, limit_bytes=0, **task)
        for ranks in MEMORY_RANKS:
            results[str(ranks)] = _launch(python, ranks, limit_bytes=limit, **task)
            say(f"decoding in {limit / GIB:.2f} GiB on {ranks} rank(s): {results[str(ranks)]}")
    return results


def _measure_overhead(python: Path, say: Callable[[str], None]) -> dict[str, Any]:
    task: dict[str, Any] = {
        "network": "ResNet-50",
        "size": OVERHEAD_SIZE,
        "work": "overhead",
        "train": False,
        "steps": OVERHEAD_STEPS,
        "threads": 1,
    }
    results = {ranks: _launch(python, ranks, **task) for ranks in (1, 2)}
    say(f"ResNet-50 at {OVERHEAD_SIZE}: {statistics.median(results[2]['seconds']) * 1e3:.1f} ms on 2 ranks")
    return {str(ranks): result for ranks, result in results.items()}


def _tabulate(results: dict[str, Any]) -> Iterator[str]:
    yield "time of a step: 2 ranks with 1 thread, divided by unsplit with 2 threads on the same cores"
    for row in results["times"]:
        whole, split = (statistics.median(row["seconds"][ranks]) * 1e3 for ranks in (1, 2))
        ratios = row["ratios"]
        yield (
            f"  {_name(row):36} unsplit {whole:8.1f} ms, 2 ranks {split:8.1f} ms:"
            f" {statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f} in {len(ratios)} rounds)"
        )
    yield f"peak memory of a rank with the weights, in MiB{'':10} weights" + "".join(
        f"{f'{ranks} rank(s)':>12}" for ranks in MEMORY_RANKS
    )
    for row in results["memory"]:
        peaks = row["peaks"]
        cells = "".join(f"{peaks[ranks].get('peak_bytes', 0) / MIB:12.0f}" for ranks in MEMORY_RANKS)
        yield f"  {_name(row):52} {peaks[1].get('weight_bytes', 0) / MIB:8.0f}{cells}"
    overhead = results["overhead"]
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


def _name(row: dict[str, Any]) -> str:
    return f"{row['network']} {row['size']} {'training' if row['train'] else 'inference'}"


def _describe_limited(limited: dict[str, Any], size: int, limit: int) -> Iterator[str]:
    yield (
        f"AutoencoderKL decoder, {size} x {size} pixels,"
        f" address space limited to {limit / GIB:.2f} GiB more per process"
    )
    for ranks, result in limited.items():
        text = (
            f"fails: {result['failed']}"
            if "failed" in result
            else f"{result['seconds'][0]:.1f} s, largest error {result['error']:.1e} of the largest value"
        )
        yield f"  {ranks} rank(s): {text}"


if __name__ == "__main__":  # a quick try with small images: python -m halo.networks
    from parts import log

    print("\n".join(run(log, small="--small" in sys.argv)["lines"]))

"""Benchmark of ResNet-50 split over ranks, compared with the unsplit network on the same cores: time and peak memory.

A step is a forward and a backward pass of one image in float32, in training mode. Ranks have one thread each and
exchange borders through shared memory; the unsplit network runs in one process with two threads.
"""

from __future__ import annotations

import resource
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Worker, Workers
from tessera.measure.joins import join_samples
from tessera.measure.memory import measure_resident_growth
from tessera.measure.sampler import sample
from tessera.measure.samples import Samples, Sampling
from tessera.models import build
from tessera.spatial import parallelize
from tessera.transport.registry import open_transport

MODEL = "resnet50"
MESH_BY_RANKS = {2: "2x1", 4: "2x2"}
IMAGE_SIZE = 1024
LAUNCH_ROUNDS, STEPS_PER_LAUNCH = 3, 4
TARGET_RATIO = 1.15
GIB = 1 << 30
LIMITED_IMAGE_SIZE, LIMITED_MEMORY_BYTES = 1536, 5 * GIB  # an unsplit step requires 6.2 GiB
TIME_LIMIT_SECONDS = 900.0


def run(say: Callable[[str], None]) -> dict[str, Any]:
    times, memory = _measure_times(say), _measure_memory(say)
    tight = {ranks: _run_with_limited_memory(ranks, say) for ranks in (1, *MESH_BY_RANKS)}
    lines = [
        f"{MODEL}, forward and backward of one {IMAGE_SIZE} x {IMAGE_SIZE} image; unsplit on 2 threads, ranks on 1 each"
    ]
    for layout, layout_times in times.items():
        for ranks in MESH_BY_RANKS:
            ratios = sorted(
                split / unsplit for split, unsplit in zip(layout_times[ranks], layout_times[1], strict=True)
            )
            target = f" (target {TARGET_RATIO})" if ranks == 2 else ""
            lines.append(
                f"  {layout:14} {ranks} ranks {statistics.median(layout_times[ranks]):.2f} s, unsplit"
                f" {statistics.median(layout_times[1]):.2f} s: {statistics.median(ratios):.3f}{target},"
                f" of {len(ratios)} launches {ratios[0]:.3f} to {ratios[-1]:.3f}"
            )
    lines.append("peak memory of a rank, without the interpreter and torch")
    lines += [f"  {ranks} rank(s): {max(peaks) / GIB:.2f} GiB" for ranks, peaks in memory.items()]
    lines.append(
        f"one {LIMITED_IMAGE_SIZE} x {LIMITED_IMAGE_SIZE} image,"
        f" address space limited to {LIMITED_MEMORY_BYTES / GIB:g} GiB more per process"
    )
    lines += [f"  {ranks} rank(s): {result}" for ranks, result in tight.items()]
    return {"times": times, "memory": memory, "tight": tight, "lines": lines}


def _start_workers(ranks: int) -> Workers:
    config = LaunchConfig(
        spawn="mpiexec" if ranks > 1 else "processes",
        workers=ranks,
        threads=2 if ranks == 1 else 1,
        time_limit=TIME_LIMIT_SECONDS,
    )
    return Workers(config)


def _measure_times(say: Callable[[str], None]) -> dict[str, dict[int, list[float]]]:
    """Return the median seconds of a step in each launch, by layout and number of ranks; launches are interleaved."""
    times: dict[str, dict[int, list[float]]] = {}
    for layout in ("channels first", "channels last"):
        times[layout] = {ranks: [] for ranks in (1, *MESH_BY_RANKS)}
        for number in range(LAUNCH_ROUNDS):
            for ranks, medians in times[layout].items():
                with _start_workers(ranks) as workers:
                    samples: list[Samples] = workers.run(f"{__name__}:time_steps", IMAGE_SIZE, layout)
                medians.append(statistics.median(join_samples(samples).values))
                say(f"{layout}, round {number + 1}: {ranks} rank(s) {medians[-1]:.2f} s")
    return times


def _measure_memory(say: Callable[[str], None]) -> dict[int, list[int]]:
    peaks = {}
    for ranks in (1, *MESH_BY_RANKS):
        with _start_workers(ranks) as workers:
            peaks[ranks] = workers.run(f"{__name__}:measure_memory", IMAGE_SIZE)
        say(f"peak memory of {ranks} rank(s): {max(peaks[ranks]) / GIB:.2f} GiB")
    return peaks


def _run_with_limited_memory(ranks: int, say: Callable[[str], None]) -> str:
    """Return the result of a step with limited memory: the time of the step, or the allocator's error."""
    with _start_workers(ranks) as workers:
        try:
            seconds = max(workers.run(f"{__name__}:run_tight_step", LIMITED_IMAGE_SIZE, LIMITED_MEMORY_BYTES))
            result = f"runs, {seconds:.1f} s a step"
        except TesseraError as error:
            result = f"fails: {error}"
    say(f"{LIMITED_IMAGE_SIZE} pixels in {LIMITED_MEMORY_BYTES / GIB:g} GiB, {ranks} rank(s): {result}")
    return result


def make_step(worker: Worker, size: int, channels_last: bool) -> Callable[[], None]:
    """Return a callable that runs a training step of the whole network, or of this rank's part."""
    model = build(MODEL).train()
    image = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(0))
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model.to(memory_format=layout)
    if worker.size == 1:
        whole = image.contiguous(memory_format=layout)

        def step() -> None:
            model.zero_grad()
            model(whole).square().sum().backward()

        return step
    transport = open_transport("shared", worker)
    parallel = parallelize(
        model, MESH_BY_RANKS[worker.size], image_size=size, transport=transport, channels_last=channels_last
    )
    tile = parallel.scatter(image)

    def run_part() -> None:
        parallel.zero_grad()
        parallel.gather(parallel(tile)).square().sum().backward()

    return run_part


def time_steps(worker: Worker, size: int, layout: str) -> Samples:
    """Worker function: return the seconds of some steps after a warm-up; all ranks start each step together."""
    step = make_step(worker, size, layout == "channels last")
    return sample(step, Sampling(warmup=2, iterations=STEPS_PER_LAUNCH), sync=worker.sync)


def measure_memory(worker: Worker, size: int) -> int:
    """Worker function: return the bytes by which building the model and two steps increase the peak memory."""

    def work() -> None:
        step = make_step(worker, size, False)
        step()
        step()

    return measure_resident_growth(work) or 0


def run_tight_step(worker: Worker, size: int, limit_bytes: int) -> float:
    """Worker function: return the median seconds of a step that may map at most `limit_bytes` of additional memory."""
    worker.connect()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + limit_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    step = make_step(worker, size, False)
    return statistics.median(sample(step, Sampling(warmup=1, iterations=2), sync=worker.sync).values)

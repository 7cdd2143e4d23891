"""ResNet-50 cut over ranks against uncut on the same cores: the time of a step, memory of a rank, what does not fit.

A step is forward and backward of one image in float32, in training mode. Ranks have one thread each and exchange
through shared memory; uncut, one process has two threads.
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
from tessera.measure.memory import resident_growth
from tessera.measure.sampler import joined, sample
from tessera.measure.samples import Samples, Sampling
from tessera.models import build
from tessera.spatial import parallelize
from tessera.transport.choose import open_transport

MODEL = "resnet50"
MESHES = {2: "2x1", 4: "2x2"}
SIZE = 1024
ROUNDS, STEPS = 3, 4
TARGET = 1.15
GIB = 1 << 30
TIGHT_SIZE, TIGHT = 1536, 5 * GIB  # uncut, a step takes 6.2 GiB
TIME_LIMIT = 900.0


def run(say: Callable[[str], None]) -> dict[str, Any]:
    times, memory = _times(say), _memory(say)
    tight = {ranks: _tight(ranks, say) for ranks in (1, *MESHES)}
    lines = [f"{MODEL}, forward and backward of one {SIZE} x {SIZE} image; uncut on 2 threads, ranks on 1 each"]
    for layout, found in times.items():
        for ranks in MESHES:
            ratios = sorted(cut / uncut for cut, uncut in zip(found[ranks], found[1], strict=True))
            target = f" (target {TARGET})" if ranks == 2 else ""
            lines.append(
                f"  {layout:14} {ranks} ranks {statistics.median(found[ranks]):.2f} s, uncut"
                f" {statistics.median(found[1]):.2f} s: {statistics.median(ratios):.3f}{target},"
                f" of {len(ratios)} launches {ratios[0]:.3f} to {ratios[-1]:.3f}"
            )
    lines.append("peak memory of a rank, above an interpreter that has torch loaded")
    lines += [f"  {ranks} rank(s): {max(peaks) / GIB:.2f} GiB" for ranks, peaks in memory.items()]
    lines.append(f"one {TIGHT_SIZE} x {TIGHT_SIZE} image, {TIGHT / GIB:g} GiB of address space more for each process")
    lines += [f"  {ranks} rank(s): {said}" for ranks, said in tight.items()]
    return {"times": times, "memory": memory, "tight": tight, "lines": lines}


def _workers(ranks: int) -> Workers:
    config = LaunchConfig(
        spawn="mpiexec" if ranks > 1 else "processes",
        workers=ranks,
        threads=2 if ranks == 1 else 1,
        time_limit=TIME_LIMIT,
    )
    return Workers(config)


def _times(say: Callable[[str], None]) -> dict[str, dict[int, list[float]]]:
    """The median step of every launch, by layout and number of ranks; launches take turns."""
    found: dict[str, dict[int, list[float]]] = {}
    for layout in ("channels first", "channels last"):
        found[layout] = {ranks: [] for ranks in (1, *MESHES)}
        for number in range(ROUNDS):
            for ranks, medians in found[layout].items():
                with _workers(ranks) as workers:
                    samples: list[Samples] = workers.run(f"{__name__}:step_times", SIZE, layout)
                medians.append(statistics.median(joined(samples).values))
                say(f"{layout}, round {number + 1}: {ranks} rank(s) {medians[-1]:.2f} s")
    return found


def _memory(say: Callable[[str], None]) -> dict[int, list[int]]:
    found = {}
    for ranks in (1, *MESHES):
        with _workers(ranks) as workers:
            found[ranks] = workers.run(f"{__name__}:peak_memory", SIZE)
        say(f"peak memory of {ranks} rank(s): {max(found[ranks]) / GIB:.2f} GiB")
    return found


def _tight(ranks: int, say: Callable[[str], None]) -> str:
    """How it went under the limit: the time of a step, or the allocator's error."""
    with _workers(ranks) as workers:
        try:
            taken = max(workers.run(f"{__name__}:tight_step", TIGHT_SIZE, TIGHT))
            found = f"runs, {taken:.1f} s a step"
        except TesseraError as error:
            found = f"fails: {error}"
    say(f"{TIGHT_SIZE} pixels in {TIGHT / GIB:g} GiB, {ranks} rank(s): {found}")
    return found


def step_of(worker: Worker, size: int, channels_last: bool) -> Callable[[], None]:
    """A training step of the whole network, or of this rank's part of it."""
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
        model, MESHES[worker.size], image_size=size, transport=transport, channels_last=channels_last
    )
    tile = parallel.scatter(image)

    def part() -> None:
        parallel.zero_grad()
        parallel.gather(parallel(tile)).square().sum().backward()

    return part


def step_times(worker: Worker, size: int, layout: str) -> Samples:
    """Worker function: some steps after a warm-up, all ranks starting each together."""
    step = step_of(worker, size, layout == "channels last")
    return sample(step, Sampling(warmup=2, iterations=STEPS), sync=worker.sync)


def peak_memory(worker: Worker, size: int) -> int:
    """Worker function: the model, its weights and gradients, and all that two steps need."""

    def work() -> None:
        step = step_of(worker, size, False)
        step()
        step()

    return resident_growth(work) or 0


def tight_step(worker: Worker, size: int, room: int) -> float:
    """Worker function: steps of an image with little memory."""
    worker.join()
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    step = step_of(worker, size, False)
    return statistics.median(sample(step, Sampling(warmup=1, iterations=2), sync=worker.sync).values)

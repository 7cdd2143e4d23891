"""Calibrate this host: measure its rates and give them as a `Machine`.

Each figure is the best of several short repetitions with its spread. About 30 seconds on a few cores; with
many cores a choice of thread counts is measured and the others are interpolated.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from tessera.geometry.mesh import Mesh
from tessera.machine.catalogue import HOST
from tessera.machine.compute_probe import GEMM_DTYPES, gemm_rate
from tessera.machine.links import fit_link
from tessera.machine.machine import Link, Machine
from tessera.machine.memory_probe import array_bytes, memory_rate
from tessera.machine.repetition import Best
from tessera.machine.storage_probe import storage_rates

Progress = Callable[[str], None]
STORAGE_BYTES = 512 << 20
# A rate below this share of what it should be is not noise but another program.
BUSY = 0.8
# Seconds for all thread counts of one figure together.
COMPUTE_BUDGET, MEMORY_BUDGET, STORAGE_BUDGET = 3.0, 1.5, 1.0


def calibrate(
    directory: Path,
    progress: Progress = lambda _: None,
    transport: Sequence[Mapping[str, float]] | None = None,
    *,
    storage_bytes: int = STORAGE_BYTES,
    effort: float = 1.0,
) -> Machine:
    """Measure this host; storage in `directory`.

    `transport` holds measured transfers between two ranks (`bytes` and `seconds` each): starting ranks is the
    caller's business. Without it the machine has no figure for its link. `effort` scales the time spent.
    """
    cores = len(os.sched_getaffinity(0))
    counts = thread_counts(cores)
    tables: dict[str, tuple[float, ...]] = {}
    spread: dict[str, tuple[float, ...]] = {}
    sources: dict[str, str] = {"grid": "the cores this process may use", "memory": "the operating system"}

    def keep(figure: str, measured: Mapping[int, Best], source: str) -> None:
        tables[figure] = interpolate({n: best.rate for n, best in measured.items()}, cores)
        spread[figure] = interpolate({n: best.spread for n, best in measured.items()}, cores)
        few = "" if len(measured) == cores else f"; measured with {', '.join(map(str, measured))} threads"
        sources[figure] = f"measured: {source}{few}"

    for dtype in GEMM_DTYPES:
        products: dict[int, Best] = {}
        size = 0
        for threads in counts:
            progress(f"matrix product, {dtype}, {threads} of {cores} threads")
            found = gemm_rate(dtype, threads, budget=effort * COMPUTE_BUDGET / len(counts), smallest=size)
            if found is None:
                break
            products[threads], size = found
        else:
            keep(f"flops.{dtype}", products, f"square matrix product, up to {size} x {size}")

    size = array_bytes()
    kinds: dict[str, Literal["triad", "copy"]] = {"links.global": "triad", "links.copy": "copy"}
    for figure, kind in kinds.items():
        moved: dict[int, Best] = {}
        for threads in counts:
            progress(f"memory, {kind}, {threads} of {cores} threads")
            budget = effort * MEMORY_BUDGET / len(counts)
            moved[threads] = memory_rate(kind, threads, size=size, budget=budget)
        keep(figure, moved, f"{kind} of arrays of {size >> 20} MB")

    storage = storage_rates(directory, size=storage_bytes, budget=effort * STORAGE_BUDGET, progress=progress)
    for figure, best, how in (
        ("links.streaming", storage.cold, storage.method),
        ("links.streaming_warm", storage.warm, "from the page cache"),
    ):
        tables[figure], spread[figure] = (best.rate,), (best.spread,)
        sources[figure] = f"measured: reads of a file of {storage_bytes >> 20} MB, {how}"

    links = {
        figure.removeprefix("links."): Link(bandwidth=table)
        for figure, table in tables.items()
        if figure.startswith("links.")
    }
    if transport is not None:
        links["link"] = fit_link(transport)
        sources["links.link"] = f"measured: fitted to {len(transport)} transfers between two ranks"

    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        name=HOST,
        title=f"{_processor()}, {cores} cores",
        worker="core",
        workers=Mesh(1, cores),
        local_memory=memory // cores,
        global_memory=memory,
        flops={f.removeprefix("flops."): table for f, table in tables.items() if f.startswith("flops.")},
        links=links,
        sources=sources,
        spread=spread,
        notes=disturbances(tables, spread),
    )


def disturbances(tables: Mapping[str, tuple[float, ...]], spread: Mapping[str, tuple[float, ...]]) -> tuple[str, ...]:
    """What shows that something else ran during a calibration: worth a note, and another calibration.

    >>> disturbances({"flops.int8": (80.0, 60.0)}, {"flops.int8": (0.02, 0.5)})
    ('flops.int8: slower with 2 threads than with 1; the machine was busy, calibrate again when it is quiet',)
    """
    found = []
    for figure, table in tables.items():
        fallen = [n for n in range(1, len(table)) if table[n] < BUSY * table[n - 1]]
        if fallen:
            found.append(f"{figure}: slower with {fallen[0] + 1} threads than with {fallen[0]}")
        elif max(spread[figure]) > 1 - BUSY:
            found.append(f"{figure}: its repetitions were {max(spread[figure]):.0%} apart")
    return tuple(f"{what}; the machine was busy, calibrate again when it is quiet" for what in found)


def thread_counts(cores: int) -> list[int]:
    """The thread counts that are measured: all of a few cores, else powers of two and all cores.

    >>> thread_counts(4), thread_counts(12)
    ([1, 2, 3, 4], [1, 2, 4, 8, 12])
    """
    if cores <= 4:
        return list(range(1, cores + 1))
    return [*(1 << k for k in range(cores.bit_length()) if 1 << k < cores), cores]


def interpolate(measured: Mapping[int, float], cores: int) -> tuple[float, ...]:
    """A table for 1 to `cores` threads from measurements at some of them, straight lines in between.

    >>> interpolate({1: 10.0, 2: 20.0, 4: 30.0}, 4)
    (10.0, 20.0, 25.0, 30.0)
    """
    table = []
    for n in range(1, cores + 1):
        low = max(k for k in measured if k <= n)
        high = min(k for k in measured if k >= n)
        share = (n - low) / (high - low) if high > low else 0.0
        table.append(measured[low] + share * (measured[high] - measured[low]))
    return tuple(table)


def _processor() -> str:
    """The processor's name as the kernel gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())

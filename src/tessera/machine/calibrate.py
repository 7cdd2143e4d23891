"""Calibrate this host: measure its rates and return them as a `Machine`.

Each rate is the best of several short repetitions, stored with the spread of the repetitions. Calibration takes about
30 seconds on a few cores. With many cores only some thread counts are measured, and the remaining ones are
interpolated.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from tessera.affinity import get_affinity
from tessera.geometry.mesh import Mesh
from tessera.machine.catalogue import HOST_MACHINE
from tessera.machine.machine import Link, Machine, fit_link
from tessera.machine.probes import (
    GEMM_DTYPES,
    BestRate,
    choose_array_bytes,
    measure_gemm_rate,
    measure_memory_rate,
    measure_storage_rates,
)

ProgressCallback = Callable[[str], None]
STORAGE_FILE_BYTES = 512 << 20
# A rate below this fraction of the expected rate indicates that another program was running.
MIN_UNDISTURBED_FRACTION = 0.8
# Total seconds for one rate at all thread counts.
COMPUTE_BUDGET_SECONDS, MEMORY_BUDGET_SECONDS, STORAGE_BUDGET_SECONDS = 3.0, 1.5, 1.0


def calibrate_host(
    directory: Path,
    progress: ProgressCallback = lambda _: None,
    transport: Sequence[Mapping[str, float]] | None = None,
    overheads: Mapping[str, float] | None = None,
    *,
    storage_bytes: int = STORAGE_FILE_BYTES,
    effort: float = 1.0,
) -> Machine:
    """Measure the rates of this host; storage is measured in `directory`.

    `transport` holds transfers between two ranks that the caller has measured (`bytes` and `seconds` each); if it is
    None, the machine has no bandwidth between ranks. `overheads` holds seconds per event that the caller has measured
    (`machine.OVERHEADS`). `effort` is a factor on the measuring time.
    """
    cores = len(get_affinity())
    counts = choose_thread_counts(cores)
    tables: dict[str, tuple[float, ...]] = {}
    spread: dict[str, tuple[float, ...]] = {}
    sources: dict[str, str] = {"grid": "the cores this process may use", "memory": "the operating system"}

    def add_figure(figure: str, measured: Mapping[int, BestRate], source: str) -> None:
        tables[figure] = interpolate_over_threads({n: best.rate for n, best in measured.items()}, cores)
        spread[figure] = interpolate_over_threads({n: best.spread for n, best in measured.items()}, cores)
        few = "" if len(measured) == cores else f"; measured with {', '.join(map(str, measured))} threads"
        sources[figure] = f"measured: {source}{few}"

    for dtype in GEMM_DTYPES:
        products: dict[int, BestRate] = {}
        size = 0
        for threads in counts:
            progress(f"matrix product, {dtype}, {threads} of {cores} threads")
            product = measure_gemm_rate(
                dtype, threads, budget=effort * COMPUTE_BUDGET_SECONDS / len(counts), smallest=size
            )
            if product is None:
                break
            products[threads], size = product
        else:
            add_figure(f"flops.{dtype}", products, f"square matrix product, up to {size} x {size}")

    size = choose_array_bytes()
    kinds: dict[str, Literal["triad", "copy"]] = {"links.global": "triad", "links.copy": "copy"}
    for figure, kind in kinds.items():
        moved: dict[int, BestRate] = {}
        for threads in counts:
            progress(f"memory, {kind}, {threads} of {cores} threads")
            budget = effort * MEMORY_BUDGET_SECONDS / len(counts)
            moved[threads] = measure_memory_rate(kind, threads, size=size, budget=budget)
        add_figure(figure, moved, f"{kind} of arrays of {size >> 20} MiB")

    storage = measure_storage_rates(
        directory, size=storage_bytes, budget=effort * STORAGE_BUDGET_SECONDS, progress=progress
    )
    for figure, best, how in (
        ("links.streaming", storage.cold, storage.method),
        ("links.streaming_warm", storage.warm, "from the page cache"),
    ):
        tables[figure], spread[figure] = (best.rate,), (best.spread,)
        sources[figure] = f"measured: reads of a file of {storage_bytes >> 20} MiB, {how}"

    links = {
        figure.removeprefix("links."): Link(bandwidth=table)
        for figure, table in tables.items()
        if figure.startswith("links.")
    }
    if transport is not None:
        links["link"] = fit_link(transport)
        sources["links.link"] = f"measured: fitted to {len(transport)} transfers between two ranks"

    if overheads:
        sources["overheads"] = "measured: small operations and messages of torch on this host"
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        name=HOST_MACHINE,
        title=f"{_read_processor_name()}, {cores} cores",
        worker="core",
        workers=Mesh(1, cores),
        local_memory=memory // cores,
        global_memory=memory,
        flops={f.removeprefix("flops."): table for f, table in tables.items() if f.startswith("flops.")},
        links=links,
        overheads=dict(overheads or {}),
        sources=sources,
        spread=spread,
        notes=find_disturbances(tables, spread),
    )


def find_disturbances(
    tables: Mapping[str, tuple[float, ...]], spread: Mapping[str, tuple[float, ...]]
) -> tuple[str, ...]:
    """Return notes on rates that were probably disturbed by other programs.

    >>> find_disturbances({"flops.int8": (80.0, 60.0)}, {"flops.int8": (0.02, 0.5)})
    ('flops.int8: slower with 2 threads than with 1; the machine was busy, calibrate again when it is quiet',)
    """
    problems = []
    for figure, table in tables.items():
        fallen = [n for n in range(1, len(table)) if table[n] < MIN_UNDISTURBED_FRACTION * table[n - 1]]
        if fallen:
            problems.append(f"{figure}: slower with {fallen[0] + 1} threads than with {fallen[0]}")
        elif max(spread[figure]) > 1 - MIN_UNDISTURBED_FRACTION:
            problems.append(f"{figure}: its repetitions were {max(spread[figure]):.0%} apart")
    return tuple(f"{problem}; the machine was busy, calibrate again when it is quiet" for problem in problems)


def choose_thread_counts(cores: int) -> list[int]:
    """Return the thread counts to measure: every count up to 4 cores; beyond, powers of two and the number of cores.

    >>> choose_thread_counts(4), choose_thread_counts(12)
    ([1, 2, 3, 4], [1, 2, 4, 8, 12])
    """
    if cores <= 4:
        return list(range(1, cores + 1))
    return [*(1 << k for k in range(cores.bit_length()) if 1 << k < cores), cores]


def interpolate_over_threads(measured: Mapping[int, float], cores: int) -> tuple[float, ...]:
    """Interpolate measurements at some thread counts linearly to a table for 1 to `cores` threads.

    >>> interpolate_over_threads({1: 10.0, 2: 20.0, 4: 30.0}, 4)
    (10.0, 20.0, 25.0, 30.0)
    """
    table = []
    for n in range(1, cores + 1):
        low = max(k for k in measured if k <= n)
        high = min(k for k in measured if k >= n)
        share = (n - low) / (high - low) if high > low else 0.0
        table.append(measured[low] + share * (measured[high] - measured[low]))
    return tuple(table)


def _read_processor_name() -> str:
    """Return the name of the processor from /proc/cpuinfo."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())

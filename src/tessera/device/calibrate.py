"""Calibrate a device: measure its compute and memory rates, by marks on the device, as a `Machine`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from time import perf_counter

import torch

from tessera.device.device import ComputeDevice
from tessera.geometry.mesh import Mesh
from tessera.machine.calibrate import find_disturbances
from tessera.machine.machine import Link, Machine
from tessera.machine.probes import GEMM_DTYPES, MAX_CALL_SECONDS, BestRate, build_matrix_product, measure_best_rate

MATRIX_SIZES = (256, 512, 1024, 2048, 4096, 8192, 16384)
ARRAY_BYTES = 256 << 20  # of each array; larger than the largest caches of current accelerators
MAX_MEMORY_SHARE = 0.2  # of the device's memory, for the arrays of one measurement
COMPUTE_BUDGET_SECONDS, MEMORY_BUDGET_SECONDS = 3.0, 1.5
LAUNCHES = 200

ProgressCallback = Callable[[str], None]
Work = Callable[[], object]


def calibrate_device(
    device: ComputeDevice, progress: ProgressCallback = lambda _: None, *, effort: float = 1.0
) -> Machine:
    """Measure FLOP/s by dtype, memory bandwidth, copies from the host, and the launch overhead of a device.

    `effort` is a factor on the measuring time. A dtype without a matrix product on the device has no rate.
    """
    description = device.describe()
    memory = description.memory_bytes or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    rates: dict[str, BestRate] = {}
    sources = {"grid": "one device", "memory": "the driver" if description.memory_bytes else "the operating system"}
    for dtype in GEMM_DTYPES:
        progress(f"matrix product, {dtype}")
        product = measure_products(device, dtype, memory, effort * COMPUTE_BUDGET_SECONDS)
        if product is not None:
            rates[f"flops.{dtype}"], size = product
            sources[f"flops.{dtype}"] = f"measured: square matrix product, {size} x {size}"
    size = min(ARRAY_BYTES, int(memory * MAX_MEMORY_SHARE / 3)) // 4 * 4
    for figure, what, work, moved in iterate_transfers(device, size):
        progress(f"memory, {what}")
        measure = partial(measure_best_rate, time_call=partial(time_on_device, device))
        rates[figure] = measure(work, float(moved), budget=effort * MEMORY_BUDGET_SECONDS)
        sources[figure] = f"measured: {what} of {size >> 20} MiB"
    progress("launches")
    launch = measure_launch(device)
    sources["overheads"] = "measured: host time of launching an operation on few numbers"
    tables = {figure: (best.rate,) for figure, best in rates.items()}
    spread = {figure: (best.spread,) for figure, best in rates.items()}
    return Machine(
        name=device.name,
        title=f"{device.name}: {description.model}",
        worker="device",
        workers=Mesh(1, 1),
        local_memory=memory,
        global_memory=memory,
        flops={figure.removeprefix("flops."): table for figure, table in tables.items() if "flops." in figure},
        links={f.removeprefix("links."): Link(bandwidth=table) for f, table in tables.items() if "links." in f},
        overheads={"launch": launch},
        sources=sources,
        spread=spread,
        notes=find_disturbances(tables, spread),
    )


def time_on_device(device: ComputeDevice, work: Work) -> float:
    """Return the seconds of one call between two marks, launched while the device works on a preceding call."""
    work()
    start = device.mark_time()
    work()
    end = device.mark_time()
    device.synchronize()
    return device.compute_seconds(start, end)


def measure_products(device: ComputeDevice, dtype: str, memory: int, budget: float) -> tuple[BestRate, int] | None:
    """Measure the FLOP/s of a square matrix product; return the rate and the matrix size.

    The size is the largest whose product takes at most MAX_CALL_SECONDS and fits into the memory. Returns None if the
    device has no matrix product for the dtype.
    """
    if not device.supports_dtype(getattr(torch, dtype)):
        return None
    chosen: tuple[Work, int] | None = None
    for size in MATRIX_SIZES:
        if 3 * size**2 * getattr(torch, dtype).itemsize > MAX_MEMORY_SHARE * memory:
            break
        try:
            product = build_matrix_product(dtype, size, device.name)
            if product is None:
                return None
            seconds = time_on_device(device, product)
        except torch.OutOfMemoryError:
            break
        chosen = product, size
        if seconds * 8 > MAX_CALL_SECONDS:  # the next size takes eight times as long
            break
    if chosen is None:
        return None
    work, size = chosen
    return measure_best_rate(work, 2.0 * size**3, budget=budget, time_call=partial(time_on_device, device)), size


def iterate_transfers(device: ComputeDevice, size: int) -> Iterator[tuple[str, str, Work, int]]:
    """Yield each link's figure, what is measured, the work, and its bytes. The arrays have `size` bytes each."""
    where = device.torch_device
    b, c, a = (torch.ones(size // 4, device=where) for _ in range(3))
    yield "links.global", "triad", lambda: torch.add(b, c, alpha=0.5, out=a), 3 * size
    yield "links.copy", "copies on the device", lambda: c.copy_(b), size
    host = device.allocate_host((size // 4,), torch.float32)
    yield "links.host", "copies from pinned memory of the host", lambda: device.submit_copy(host, c), size


def measure_launch(device: ComputeDevice) -> float:
    """Return the median host time of launching one operation on few numbers."""
    numbers = torch.zeros(8, device=device.torch_device)
    numbers.add_(1)
    device.synchronize()
    seconds = []
    for _ in range(LAUNCHES):
        start = perf_counter()
        numbers.add_(1)
        seconds.append(perf_counter() - start)
        device.synchronize()
    return median(seconds)

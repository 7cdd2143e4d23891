"""Tests of images of ever new sizes on real ranks: shared memory is reused, and results stay exact."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import nn

from tessera.launch import LaunchConfig, Worker, Workers
from tessera.launch.config import SpawnMethod
from tessera.spatial import parallelize
from tessera.spatial.tensor.split_tensor import MAX_PLAN_SETS
from tessera.transport.registry import open_transport

pytestmark = [pytest.mark.timeout(120), pytest.mark.ranks]
SIZES = 60


def measure_shared_kilobytes() -> int:
    """Return the memory that this process uses of its own and of mapped shared memory."""
    parts = re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text())
    sizes = [re.search(r"(?m)^Rss: +(\d+) kB", part) for part in parts if "memfd:tessera" in part]
    return sum(int(size[1]) for size in sizes if size)


def run_sizes(worker: Worker) -> tuple[float, int, int]:
    """Worker function: return the largest error, and the shared memory after some and after all sizes."""
    transport = open_transport("auto", worker)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, 2)).double()
    parallel = parallelize(model, "1x2", transport=transport)
    error, early = 0.0, 0
    for number in range(SIZES):
        image = torch.randn(
            1, 3, 200 + number, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(number)
        )
        with torch.no_grad():
            output = parallel.gather(parallel(image))
            error = max(error, float((output - model(image)).abs().max()))
        if number == MAX_PLAN_SETS + 2:
            early = measure_shared_kilobytes()
    late = measure_shared_kilobytes()
    transport.close()
    return error, early, late


@pytest.mark.parametrize("spawn", ["torchrun", "mpiexec"])
def test_shared_memory_of_dropped_sizes_is_reused(spawn: SpawnMethod) -> None:
    with Workers(LaunchConfig(spawn=spawn, workers=2, time_limit=100)) as workers:
        for error, early, late in workers.run(f"{__name__}:run_sizes"):
            assert error < 1e-10
            assert 0 < late < 1.5 * early, f"{early} kB after {MAX_PLAN_SETS + 2} sizes, {late} kB after {SIZES}"


NETWORKS = 7


def run_networks(worker: Worker) -> tuple[float, list[int]]:
    """Worker function: parallelize ever new networks; return the largest error, and the shared memory after each."""
    transport = open_transport("auto", worker)
    error, sizes, kept = 0.0, [], []
    for number in range(NETWORKS):
        torch.manual_seed(number)
        model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 2, 3, padding=1)).double()
        image = torch.randn(1, 3, 2000, 16, dtype=torch.float64)
        parallel = parallelize(model, "1x2", transport=transport)
        output = parallel(image)
        with torch.no_grad():
            error = max(error, float((parallel.gather(output) - model(image)).abs().max()))
        if number == 1 and worker.rank == 0:
            kept.append(output)  # rank 0 still uses the buffers of this network
        del parallel, output
        sizes.append(measure_shared_kilobytes())
    transport.close()
    return error, sizes


@pytest.mark.parametrize("spawn", ["torchrun", "mpiexec"])
def test_shared_memory_of_deleted_networks_is_reused(spawn: SpawnMethod) -> None:
    with Workers(LaunchConfig(spawn=spawn, workers=2, time_limit=100)) as workers:
        for error, sizes in workers.run(f"{__name__}:run_networks"):
            assert error < 1e-10
            assert 0 < sizes[-1] <= sizes[3], f"kB after each network: {sizes}"

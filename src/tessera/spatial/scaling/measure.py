"""Measurement of a training step on ranks of this host."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from tessera.geometry import Mesh
from tessera.launch import LaunchConfig, Workers
from tessera.launch.worker import Worker
from tessera.measure.samples import Sampling
from tessera.measure.statistics import summarize
from tessera.transport.registry import AUTO, get_spawn

if TYPE_CHECKING:
    from tessera.transport.transport import TransportTraits

SAMPLING = Sampling(target=0.03, budget=5.0, min_samples=5)
QUICK = Sampling(target=0.10, budget=0.5, min_samples=3)
TIME_LIMIT = 600.0
WARM_UP_SIZE = 64  # pixels


def measure_step(
    model: str, plane: tuple[int, int], mesh: Mesh, *, batch: int, dtype: str, sampling: Sampling = SAMPLING
) -> tuple[float, int, TransportTraits]:
    """Return the median seconds of a training step, the largest peak memory of a rank, and the transport's traits.

    Every rank has one thread, and its own core if there are enough cores.
    """
    spawn = "processes" if mesh.size == 1 else get_spawn(AUTO)
    with Workers(LaunchConfig(spawn=spawn, workers=mesh.size, time_limit=TIME_LIMIT)) as workers:
        results = workers.run("tessera.spatial.scaling.measure:run_step", model, plane, mesh, batch, dtype, sampling)
    return results[0][0], max(memory for _, memory, _ in results), results[0][2]


def run_step(
    worker: Worker, model: str, plane: tuple[int, int], mesh: Mesh, batch: int, dtype: str, sampling: Sampling
) -> tuple[float, int, TransportTraits]:
    """Run the step on one rank: forward, backward, and the sum of the weight gradients over the ranks."""
    import torch

    from tessera.measure.memory import measure_resident_growth
    from tessera.models import build
    from tessera.spatial import parallelize
    from tessera.spatial.bench.rounds import sample_rounds
    from tessera.transport.registry import open_transport

    kind = getattr(torch, dtype)
    with closing(open_transport(AUTO, worker)) as opened:
        network = build(model).to(kind).train()
        parallel = parallelize(network, mesh, image_size=plane, transport=opened)
        image = torch.randn(batch, 3, *plane, generator=torch.Generator().manual_seed(0))  # equal on all ranks
        tile = parallel.scatter(image.to(kind))

        def step() -> None:
            network.zero_grad(set_to_none=True)
            parallel(tile).sum().backward()

        # Warm up: libraries and kernels that are loaded on first use must not count as memory of the step.
        small = [min(size, WARM_UP_SIZE) for size in plane]
        network(torch.randn(2, 3, *small, dtype=kind)).sum().backward()
        network.zero_grad(set_to_none=True)
        grown = measure_resident_growth(step) or 0  # the first step allocates all buffers
        state = sum(t.nbytes for t in (*network.parameters(), *network.buffers()))
        samples = sample_rounds({"step": step}, sampling, worker)["step"]
        return summarize(samples.values).median, grown + state, opened.traits

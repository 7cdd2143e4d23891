"""The step that a scaling predicts, run on ranks of this host."""

from __future__ import annotations

from contextlib import closing

from tessera.geometry import Mesh
from tessera.launch import LaunchConfig, Workers
from tessera.launch.worker import Worker
from tessera.measure.samples import Sampling
from tessera.measure.statistics import summarize
from tessera.transport.choose import AUTO, spawn_of

SAMPLING = Sampling(target=0.03, budget=5.0, min_samples=5)
QUICK = Sampling(target=0.10, budget=0.5, min_samples=3)
TIME_LIMIT = 600.0
SMALL = 64  # pixels


def measure_step(
    model: str, plane: tuple[int, int], mesh: Mesh, *, batch: int, dtype: str, sampling: Sampling = SAMPLING
) -> tuple[float, int, str]:
    """The median seconds of a training step, the bytes that its largest rank took for it, and the transport.

    Every rank has one thread, and a core of its own as long as there are cores.
    """
    spawn = "processes" if mesh.size == 1 else spawn_of(AUTO)
    with Workers(LaunchConfig(spawn=spawn, workers=mesh.size, time_limit=TIME_LIMIT)) as workers:
        found = workers.run("tessera.spatial.scaling.measure:run_step", model, plane, mesh, batch, dtype, sampling)
    return found[0][0], max(memory for _, memory, _ in found), found[0][2]


def run_step(
    worker: Worker, model: str, plane: tuple[int, int], mesh: Mesh, batch: int, dtype: str, sampling: Sampling
) -> tuple[float, int, str]:
    """One rank's side of it: forward, backward, and the sum of the weights' gradients over the ranks."""
    import torch

    from tessera.measure.memory import resident_growth
    from tessera.models import build
    from tessera.spatial import parallelize
    from tessera.spatial.bench.rounds import sample_rounds
    from tessera.transport.choose import open_transport

    kind = getattr(torch, dtype)
    with closing(open_transport(AUTO, worker)) as opened:
        network = build(model).to(kind).train()
        parallel = parallelize(network, mesh, image_size=plane, transport=opened)
        tile = parallel.scatter(torch.randn(batch, 3, *plane, dtype=kind))

        def step() -> None:
            network.zero_grad(set_to_none=True)
            parallel(tile).sum().backward()

        # Libraries are loaded and kernels made as they are first used: that is not the step's memory.
        small = [min(size, SMALL) for size in plane]
        network(torch.randn(2, 3, *small, dtype=kind)).sum().backward()
        network.zero_grad(set_to_none=True)
        grown = resident_growth(step) or 0  # the first step makes everything that a step needs
        state = sum(t.nbytes for t in (*network.parameters(), *network.buffers()))
        samples = sample_rounds({"step": step}, sampling, worker)["step"]
        return summarize(samples.values).median, grown + state, opened.name

"""Measurement of a step on ranks of this host."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from math import prod
from typing import TYPE_CHECKING

from tessera.launch import LaunchConfig, Workers
from tessera.launch.worker import Worker
from tessera.measure.samples import Sampling
from tessera.measure.statistics import summarize
from tessera.spatial.scaling.prediction import SplitStep
from tessera.transport.registry import AUTO, get_spawn

if TYPE_CHECKING:
    from tessera.transport.transport import TransportTraits

SAMPLING = Sampling(target=0.03, budget=5.0, min_samples=5)
QUICK = Sampling(target=0.10, budget=0.5, min_samples=3)
TIME_LIMIT = 600.0
WARM_UP_SIZE = 64  # pixels


def measure_step(
    step: SplitStep, image: Sequence[int], mesh: Sequence[int], *, sampling: Sampling = SAMPLING
) -> tuple[float, int, TransportTraits]:
    """Return the median seconds of a step, the largest peak memory of a rank, and the transport's traits.

    Every rank has one thread, and its own core if there are enough cores.
    """
    ranks = prod(mesh)
    spawn = "processes" if ranks == 1 else get_spawn(AUTO)
    with Workers(LaunchConfig(spawn=spawn, workers=ranks, time_limit=TIME_LIMIT)) as workers:
        results = workers.run("tessera.spatial.scaling.measure:run_step", step, tuple(image), tuple(mesh), sampling)
    return results[0][0], max(memory for _, memory, _ in results), results[0][2]


def run_step(
    worker: Worker, step: SplitStep, image: tuple[int, ...], mesh: tuple[int, ...], sampling: Sampling
) -> tuple[float, int, TransportTraits]:
    """Run the step on one rank: forward and, if training, backward with the all-reduce of the weight gradients."""
    import torch
    from torch.utils._pytree import tree_leaves

    from tessera.measure.memory import measure_resident_growth
    from tessera.models import build
    from tessera.spatial import parallelize
    from tessera.spatial.bench.rounds import sample_rounds
    from tessera.transport.registry import open_transport

    kind = getattr(torch, step.dtype)
    with closing(open_transport(AUTO, worker)) as opened:
        network = build(step.model).to(kind).train(step.training)
        pixels = torch.randn(step.batch, step.channels, *image, generator=torch.Generator().manual_seed(0)).to(kind)
        parallel = network  # a network that is not split runs on ordinary tensors
        tile = pixels
        if prod(mesh) > 1:
            parallel = parallelize(network, mesh, image_size=image, transport=opened)
            tile = parallel.scatter(pixels)
            del pixels

        def run_once(part: torch.Tensor = tile, model: torch.nn.Module = parallel) -> None:
            with torch.set_grad_enabled(step.training):
                outputs = [leaf for leaf in tree_leaves(model(part)) if isinstance(leaf, torch.Tensor)]
                if step.training:
                    network.zero_grad(set_to_none=True)
                    losses = [output.sum() for output in outputs if output.requires_grad]
                    sum(losses[1:], losses[0]).backward()  # type: ignore[no-untyped-call]

        # Warm up: libraries and kernels that are loaded on first use must not count as memory of the step.
        small = [min(size, WARM_UP_SIZE) for size in image]
        run_once(torch.randn(2, step.channels, *small, dtype=kind), network)
        network.zero_grad(set_to_none=True)
        grown = measure_resident_growth(run_once) or 0  # the first step allocates all buffers
        state = sum(t.nbytes for t in (*network.parameters(), *network.buffers()))
        samples = sample_rounds({"step": run_once}, sampling, worker)["step"]
        return summarize(samples.values).median, grown + state, opened.traits

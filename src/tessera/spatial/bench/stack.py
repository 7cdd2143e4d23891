"""The compute benchmark of several convolutions in a row, with one halo exchange per convolution or for several."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from tessera.launch.worker import Worker
from tessera.measure.sampler import Fn
from tessera.measure.samples import Sampling
from tessera.results.metrics import make_metrics
from tessera.results.record import Case
from tessera.spatial.bench.measurement import HaloMeasurement, choose_layout, get_dtype, get_median
from tessera.spatial.bench.rounds import sample_rounds
from tessera.spatial.bench.steps import build_module
from tessera.spatial.bench.unsplit import measure_unsplit
from tessera.spatial.parallel_model import ParallelModel, parallelize
from tessera.spatial.problem import HaloProblem
from tessera.spatial.tensor.boundary import split_whole
from tessera.spatial.tensor.split_tensor import Overlap
from tessera.transport.transport import Transport

UNSPLIT_SHARE = 0.25  # fraction of the time budget for the unsplit stack


@dataclass(frozen=True, slots=True, kw_only=True)
class StackSteps:
    """Factory of the timed callables: forward and, with `backward`, backward passes of a stack of convolutions."""

    layers: list[HaloProblem]
    transport: Transport
    backward: bool
    fp16_allreduce: bool
    overlap: Overlap = "none"

    def make_split(self, depth: Any, channels_last: bool, models: list[ParallelModel] | None = None) -> Fn:
        """Return a callable that computes this rank's part; the parallel network is appended to `models`."""
        parallel = parallelize(
            self._make_stack(channels_last),
            self.layers[0].mesh,
            transport=self.transport,
            channels_last=channels_last,
            fp16_allreduce=self.fp16_allreduce,
            halo_depth=depth,
            overlap=self.overlap,
        )
        if models is not None:
            models.append(parallel)
        group, image = parallel.group, self._make_image(channels_last)
        group.defers_sums = True  # as in a forward pass of the parallel network
        layout = group.get_tiles(image.shape, image.dim() - 2)
        part = image[layout.get_dim_box(group.rank).slices].contiguous(memory_format=_get_memory_format(channels_last))

        def make_tile() -> Tensor:
            group.start_pass()
            # A new split tensor in every step: an old one would keep the halo that was fetched for it.
            return split_whole(part, layout, group, is_part=True)

        return self._make_step(parallel.model, make_tile)

    def make_unsplit(self, channels_last: bool) -> Fn:
        image = self._make_image(channels_last)
        return self._make_step(self._make_stack(channels_last), lambda: image)

    def _make_stack(self, channels_last: bool) -> nn.Module:
        return nn.Sequential(*map(build_module, self.layers)).to(memory_format=_get_memory_format(channels_last))  # type: ignore[call-overload,no-any-return]

    def _make_image(self, channels_last: bool) -> Tensor:
        first = self.layers[0]
        image = torch.randn(first.batch, first.in_channels, *first.image, generator=torch.Generator().manual_seed(0))
        return image.to(get_dtype(first.dtype)).contiguous(memory_format=_get_memory_format(channels_last))

    def _make_step(self, stack: nn.Module, make_input: Callable[[], Tensor]) -> Fn:
        def forward() -> None:
            with torch.no_grad():
                stack(make_input())

        def run_forward_backward() -> None:
            stack.zero_grad(set_to_none=True)
            stack(make_input()).square().mean().backward()

        return run_forward_backward if self.backward else forward


def _get_memory_format(channels_last: bool) -> torch.memory_format:
    return torch.channels_last if channels_last else torch.contiguous_format


def measure_stack(
    worker: Worker, case: Case, problem: HaloProblem, transport: Transport, sampling: Sampling
) -> HaloMeasurement:
    """Measure a stack of convolutions with one exchange per `halo_depth` convolutions, and per convolution."""
    depth, backward = case.params.get("halo_depth", 1), bool(case.params.get("backward"))
    layers = problem.list_layers(int(case.params["fused_layers"]))
    steps = StackSteps(
        layers=layers,
        transport=transport,
        backward=backward,
        fp16_allreduce=bool(case.params.get("fp16_allreduce")),
    )
    channels_last, notes = choose_layout(
        str(case.params["layout"]), lambda last: steps.make_split(depth, last), sampling, worker, transport.barrier
    )
    models: list[ParallelModel] = []
    functions = {"split": steps.make_split(depth, channels_last, models)}
    if depth != 1:
        functions["sequential"] = steps.make_split(1, channels_last)
    split_sampling = replace(sampling, budget=sampling.budget * (1 - UNSPLIT_SHARE))
    samples = sample_rounds(functions, split_sampling, worker, transport.barrier)
    unsplit, unsplit_notes = measure_unsplit(
        worker,
        sum(layer.footprint for layer in layers),
        lambda: steps.make_unsplit(channels_last),
        replace(sampling, budget=sampling.budget * UNSPLIT_SHARE),
    )
    seconds = get_median(samples["split"])
    flops = (3 if backward else 1) * sum(layer.flops for layer in layers)
    values = {"gflops": flops / seconds / 1e9}
    if "sequential" in samples:
        values["sequential"] = get_median(samples["sequential"])
    if unsplit is not None:
        values |= {"uncut": get_median(unsplit), "efficiency": get_median(unsplit) / seconds}
    if depth == "auto":
        chosen = " ".join(str(exchange.depth) for _, exchange in models[0].group.exchanges)
        notes = (*notes, f"halo_depth auto: exchanges for {chosen} convolutions")
    return HaloMeasurement(
        samples=samples["split"],
        metrics=make_metrics(values),
        channels_last=channels_last,
        notes=(*notes, *unsplit_notes),
    )

"""The compute benchmark: exchange and convolution alone, sequential and overlapped, and the unsplit convolution."""

from __future__ import annotations

import math
from dataclasses import replace
from zlib import crc32

from tessera.launch.worker import Worker
from tessera.measure.samples import Samples, Sampling
from tessera.measure.statistics import estimate_median
from tessera.results.metrics import Metric, make_metrics
from tessera.results.record import Case
from tessera.spatial.bench.measurement import HaloMeasurement, choose_layout, get_median
from tessera.spatial.bench.rounds import sample_rounds
from tessera.spatial.bench.stack import measure_stack
from tessera.spatial.bench.steps import ComputeSteps
from tessera.spatial.bench.unsplit import measure_unsplit
from tessera.spatial.distribution import Overlap
from tessera.spatial.problem import ExchangeVolume, HaloProblem
from tessera.transport.transport import Transport

UNSPLIT_SHARE = 0.25  # fraction of the time budget for the unsplit convolution


def measure_compute(
    worker: Worker, case: Case, problem: HaloProblem, transport: Transport, sampling: Sampling
) -> HaloMeasurement:
    """Measure a convolution with its exchange in the overlap mode of the case, and exchange and convolution alone.

    With `backward`, a step is forward, backward and the all-reduce of the weight gradients. With
    `fused_layers`, a step is a stack of convolutions.
    """
    if case.params.get("fused_layers", 1) > 1:
        return measure_stack(worker, case, problem, transport, sampling)
    overlap: Overlap = case.params["overlap"]
    backward = bool(case.params.get("backward"))

    def make_steps(channels_last: bool) -> ComputeSteps:
        return ComputeSteps(
            problem,
            transport,
            seed=crc32(case.key.encode()),
            channels_last=channels_last,
            backward=backward,
            fp16_allreduce=bool(case.params.get("fp16_allreduce")),
        )

    channels_last, notes = choose_layout(
        str(case.params["layout"]),
        lambda last: make_steps(last).make_convolution(),
        sampling,
        worker,
        transport.barrier,
    )
    steps = make_steps(channels_last)
    functions = {
        "split": steps.make_split(overlap),
        "exchange": steps.make_exchange(),
        "convolution": steps.make_convolution(),
    }
    if overlap != "none":
        functions["sequential"] = steps.make_split("none")
    split_sampling = replace(sampling, budget=sampling.budget * (1 - UNSPLIT_SHARE))
    samples = sample_rounds(functions, split_sampling, worker, transport.barrier)
    unsplit_sampling = replace(sampling, budget=sampling.budget * UNSPLIT_SHARE)
    unsplit, unsplit_notes = measure_unsplit(worker, problem.footprint, steps.make_unsplit, unsplit_sampling)
    return HaloMeasurement(
        samples=samples["split"],
        metrics=_compute_metrics(problem, samples, unsplit, passes=3 if backward else 1),
        channels_last=channels_last,
        notes=(*notes, *steps.notes, *unsplit_notes),
    )


def _compute_metrics(
    problem: HaloProblem, samples: dict[str, Samples], unsplit: Samples | None, *, passes: int
) -> dict[str, Metric]:
    seconds, volume = get_median(samples["split"]), ExchangeVolume.of(problem)
    parts = ("exchange", "convolution", "sequential")
    metrics = make_metrics({name: get_median(samples[name]) for name in parts if name in samples})
    if "sequential" in samples and volume.received:
        metrics |= _compute_hidden(samples["sequential"], samples["split"], get_median(samples["exchange"]))
    if unsplit is not None:
        metrics |= make_metrics({"uncut": get_median(unsplit), "efficiency": get_median(unsplit) / seconds})
    return metrics | make_metrics({"gflops": passes * problem.flops / seconds / 1e9, "bytes": volume.received})


def _compute_hidden(sequential: Samples, overlapped: Samples, exchange: float) -> dict[str, Metric]:
    """Return the time that overlap saves as a fraction of the exchange time, with its confidence interval."""
    pairs = zip(sequential.values, overlapped.values, strict=True)  # paired samples: index = round
    saved = estimate_median([before - after for before, after in pairs])
    shares = {"hidden": saved.value / exchange}
    if math.isfinite(saved.low):
        shares |= {"hidden_low": saved.low / exchange, "hidden_high": saved.high / exchange}
    return make_metrics(shares)

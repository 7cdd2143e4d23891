"""Exchange and convolution: each alone, one after the other, overlapped, and the whole uncut on the same cores."""

from __future__ import annotations

import math
from dataclasses import replace
from zlib import crc32

from tessera.launch.worker import Worker
from tessera.measure.samples import Samples, Sampling
from tessera.measure.statistics import median_interval
from tessera.results.record import Case, Metric
from tessera.spatial.bench.figures import Figures, median, seconds
from tessera.spatial.bench.layout import chosen_layout
from tessera.spatial.bench.problem import Borders, Problem
from tessera.spatial.bench.rounds import sample_rounds
from tessera.spatial.bench.steps import Steps
from tessera.spatial.bench.uncut import measure_uncut
from tessera.spatial.placed import Overlap
from tessera.transport.transport import Transport

UNCUT = 0.25  # of the budget


def measure_compute(worker: Worker, case: Case, problem: Problem, transport: Transport, sampling: Sampling) -> Figures:
    """The record's time is that of the convolution with its exchange, overlapped as the case asks for.

    With backward, a step is forward, backward and the sum of the weights' gradients over the ranks.
    """
    overlap: Overlap = case.params["overlap"]
    backward = bool(case.params.get("backward"))

    def steps(channels_last: bool) -> Steps:
        return Steps(
            problem,
            transport,
            seed=crc32(case.key.encode()),
            channels_last=channels_last,
            backward=backward,
            fp16_allreduce=bool(case.params.get("fp16_allreduce")),
        )

    channels_last, notes = chosen_layout(
        str(case.params["layout"]), lambda last: steps(last).convolution(), sampling, worker
    )
    chosen = steps(channels_last)
    functions = {
        "cut": chosen.cut(overlap),
        "exchange": chosen.exchange(),
        "convolution": chosen.convolution(),
    }
    if overlap != "none":
        functions["sequential"] = chosen.cut("none")
    found = sample_rounds(functions, replace(sampling, budget=sampling.budget * (1 - UNCUT)), worker)
    uncut, said = measure_uncut(worker, problem, chosen.uncut, replace(sampling, budget=sampling.budget * UNCUT))
    return Figures(
        samples=found["cut"],
        metrics=_metrics(problem, found, uncut, passes=3 if backward else 1),
        channels_last=channels_last,
        notes=(*notes, *chosen.notes, *said),
    )


def _metrics(problem: Problem, found: dict[str, Samples], uncut: Samples | None, *, passes: int) -> dict[str, Metric]:
    took, borders = median(found["cut"]), Borders.of(problem)
    parts = ("exchange", "convolution", "sequential")
    metrics: dict[str, Metric] = {name: seconds(found[name]) for name in parts if name in found}
    if "sequential" in found and borders.received:
        metrics |= _hidden(found["sequential"], found["cut"], median(found["exchange"]))
    if uncut is not None:
        metrics["uncut"] = seconds(uncut)
        metrics["efficiency"] = Metric(median(uncut) / took, "", "higher")
    metrics["gflops"] = Metric(passes * problem.flops / took / 1e9, "GFLOP/s", "higher")
    metrics["bytes"] = Metric(borders.received, "B")
    return metrics


def _hidden(sequential: Samples, cut: Samples, exchange: float) -> dict[str, Metric]:
    """What overlapping saves, as a part of the exchange, with its interval: a small exchange drowns in its noise."""
    pairs = zip(sequential.values, cut.values, strict=True)  # of the same rounds
    saved = median_interval([before - after for before, after in pairs])
    metrics = {"hidden": Metric(saved.value / exchange, "", "higher")}
    if math.isfinite(saved.low):
        metrics |= {"hidden_low": Metric(saved.low / exchange), "hidden_high": Metric(saved.high / exchange)}
    return metrics

"""Fused against unfused: the same operators as separate calls, with their buffers kept, and as one kernel.

Three programs that give the same numbers are sampled in alternation: *unfused*, each step with a new output; *kept*,
the same steps in place or into buffers that are there already; *fused*, one kernel of the library or compiled. What
`kept` saves is the allocator's part of the gain, and no merit of the fusion.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tessera.errors import Refused
from tessera.launch.worker import Worker
from tessera.measure.environment import environment
from tessera.measure.interleave import sample_interleaved
from tessera.measure.samples import Sampling
from tessera.operators import backends
from tessera.operators.attempt import attempting
from tessera.operators.backends.backend import Request
from tessera.operators.backends.torch_backend import NAMES, leaves, to_array, to_tensors
from tessera.operators.catalogue.fused import FUSIONS
from tessera.operators.check import check_outputs, reference_outputs
from tessera.operators.expression import bound
from tessera.operators.figures import memory, rates
from tessera.operators.inputs import wide_names
from tessera.operators.preparation import request_of
from tessera.operators.ready import work_of
from tessera.results.figures import time_metrics
from tessera.results.record import Case, Metric, Record


def run_fused(worker: Worker, case: Case, sampling: Sampling) -> Record:
    """Measure one fused operator against its steps; the record's time, memory and rates are those of the fused one."""
    if worker.size > 1:
        raise Refused("fused operators are measured on one worker", got=f"{worker.size} ranks")
    if case.params.get("cache") == "cold":
        raise Refused("fused operators are measured in alternation, which warms the caches", got="cache=cold")
    if sampling.iterations is not None or sampling.warmup is not None:
        got, allowed = "--iterations or --warmup", "--budget and --target"
        raise Refused("fused operators are sampled in turns until their gain is known", got=got, allowed=allowed)
    request = request_of(case)
    three = programs(request, str(case.params["fusion"]))
    flops, moved = work_of(request, [to_array(leaf) for leaf in leaves(three["fused"]())])
    taken = memory(three["fused"], "torch")  # first: it empties what the allocator keeps
    found = sample_interleaved(three, budget=sampling.budget, target=sampling.target)
    seen, times = environment(), time_metrics(found.samples["fused"])
    per_second, predicted = rates(flops, moved, times["time"].value, dtype=request.dtype, environment=seen)
    gain = found.ratio("unfused", "fused")
    saved = math.log(found.ratio("unfused", "kept").value)
    gains = {
        name: Metric(time_metrics(found.samples[name])["time"].value, "s", "lower") for name in ("unfused", "kept")
    }
    gains["gain"] = Metric(gain.value, "", "higher")
    if gain.high < math.inf:  # it takes six rounds to have an interval
        gains["gain_low"], gains["gain_high"] = Metric(gain.low), Metric(gain.high)
    if gain.low > 1:  # a part of nothing is no number
        gains["allocator_share"] = Metric(min(1.0, max(0.0, saved / math.log(gain.value))))
    return Record(
        case=case,
        version=request.operator.version,
        launches=(found.samples["fused"],),
        metrics=times | taken | per_second | gains,
        predicted=predicted,
        environment=seen,
    )


def programs(request: Request, fusion: str) -> dict[str, Callable[[], Any]]:
    """The three programs by name, each checked against the reference."""
    with attempting(f"{request.operator.name} does not run fused"):
        return _checked(request, fusion)


def _checked(request: Request, fusion: str) -> dict[str, Callable[[], Any]]:
    operator = request.operator
    wanted = reference_outputs(operator, request.arrays, request.attributes)
    names = wide_names(request.arrays, request.attributes)
    how = FUSIONS[operator.name]
    known: dict[str, Any] = {**NAMES, **to_tensors(request), **request.attributes}
    for name, expression in how.buffers.items():
        known[name] = bound(expression, known)()
    found = {"unfused": bound(operator.torch, known), "kept": bound(how.kept, known)}
    if fusion == "library":
        found["fused"] = bound(how.library, known)
    else:
        found["fused"] = backends.backend("compile").prepare(request, operator.torch).call
    for name, call in found.items():
        with torch.no_grad():
            outputs = tuple(to_array(leaf) for leaf in leaves(call()))
        try:
            check_outputs(operator, outputs, wanted, dtype=request.dtype, names=names)
        except Refused as error:
            raise Refused(f"{name}: {error}") from None
    return found

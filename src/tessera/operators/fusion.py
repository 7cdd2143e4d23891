"""Compare fused with unfused operators: separate calls, separate calls with preallocated buffers, and one kernel.

Three programs with the same result are sampled in alternation: *unfused* allocates a new output for each step; *kept*
runs the same steps in place or into preallocated buffers; *fused* is one kernel, from the library or compiled. The time
that *kept* saves over *unfused* is saved allocation, not an effect of fusion.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from tessera.errors import Refused
from tessera.launch.worker import Worker
from tessera.measure.environment import describe_environment
from tessera.measure.interleave import sample_interleaved
from tessera.measure.samples import Sampling
from tessera.operators import backends
from tessera.operators.backends.backend import OperatorRequest
from tessera.operators.backends.torch_backend import EXPRESSION_NAMES, flatten_leaves, to_array, to_tensors
from tessera.operators.catalogue.fused import FUSIONS
from tessera.operators.check import check_outputs, compute_reference_outputs
from tessera.operators.expression import bind_expression
from tessera.operators.inputs import widen_inputs
from tessera.operators.metrics import compute_rates, measure_memory
from tessera.operators.preparation import build_request, count_request_work
from tessera.operators.refusal import refusing_errors
from tessera.results.metrics import make_metrics, make_time_metrics
from tessera.results.record import Case, Record


def run_fused(worker: Worker, case: Case, sampling: Sampling) -> Record:
    """Measure a fused operator and its separate steps; the record has time, memory and rates of the fused operator."""
    if worker.size > 1:
        raise Refused("--fusion supports only one worker", got=f"{worker.size} ranks")
    if case.params.get("cache") == "cold":
        raise Refused("--fusion does not support --cache cold, because the alternating programs warm the caches")
    if sampling.iterations is not None or sampling.warmup is not None:
        got, allowed = "--iterations or --warmup", "--budget and --target"
        raise Refused(
            "--fusion does not support a fixed number of iterations",
            got=got,
            allowed=allowed,
        )
    request = build_request(case)
    programs = build_programs(request, str(case.params["fusion"]))
    flops, moved = count_request_work(request, [to_array(leaf) for leaf in flatten_leaves(programs["fused"]())])
    memory = measure_memory(programs["fused"], "torch")  # before sampling, because it empties the allocator's cache
    interleaved = sample_interleaved(programs, budget=sampling.budget, target=sampling.target)
    environment_seen, times = describe_environment(), make_time_metrics(interleaved.samples["fused"])
    per_second, predicted = compute_rates(
        flops, moved, times["time"].value, dtype=request.dtype, environment=environment_seen
    )
    gain = interleaved.ratio("unfused", "fused")
    saved = math.log(interleaved.ratio("unfused", "kept").value)
    gains = {name: make_time_metrics(interleaved.samples[name])["time"].value for name in ("unfused", "kept")}
    gains["gain"] = gain.value
    if gain.high < math.inf:  # the interval is infinite for fewer than six rounds
        gains["gain_low"], gains["gain_high"] = gain.low, gain.high
    if gain.low > 1:  # only a significant gain is attributed to allocation or fusion
        gains["allocator_share"] = min(1.0, max(0.0, saved / math.log(gain.value)))
    return Record(
        case=case,
        version=request.operator.version,
        launches=(interleaved.samples["fused"],),
        metrics=times | memory | per_second | make_metrics(gains),
        predicted=predicted,
        environment=environment_seen,
    )


def build_programs(request: OperatorRequest, fusion: str) -> dict[str, Callable[[], Any]]:
    """Build the programs `unfused`, `kept` and `fused`, and compare their outputs with the reference."""
    with refusing_errors(f"{request.operator.name} does not run fused"):
        return _build_checked_programs(request, fusion)


def _build_checked_programs(request: OperatorRequest, fusion: str) -> dict[str, Callable[[], Any]]:
    operator = request.operator
    wanted = compute_reference_outputs(operator, request.arrays, request.attributes)
    names = widen_inputs(request.arrays, request.attributes)
    how = FUSIONS[operator.name]
    variables: dict[str, Any] = {**EXPRESSION_NAMES, **to_tensors(request), **request.attributes}
    for name, expression in how.buffers.items():
        variables[name] = bind_expression(expression, variables)()
    programs = {"unfused": bind_expression(operator.torch, variables), "kept": bind_expression(how.kept, variables)}
    if fusion == "library":
        programs["fused"] = bind_expression(how.library, variables)
    else:
        programs["fused"] = backends.load_backend("compile").prepare(request, operator.torch).call
    for name, call in programs.items():
        with torch.no_grad():
            outputs = tuple(to_array(leaf) for leaf in flatten_leaves(call()))
        try:
            check_outputs(operator, outputs, wanted, dtype=request.dtype, names=names)
        except Refused as error:
            raise Refused(f"{name}: {error}") from None
    return programs

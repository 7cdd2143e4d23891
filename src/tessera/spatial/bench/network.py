"""The network benchmark: a whole network on a split image, checked in float64, and timed beside the unsplit network."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

from tessera.errors import Refused, get_first_line
from tessera.launch.worker import Worker
from tessera.measure.environment import describe_environment
from tessera.measure.sampler import Fn
from tessera.measure.samples import Sampling
from tessera.models import build
from tessera.results.metrics import make_metrics, make_time_metrics
from tessera.results.record import Case, Record
from tessera.spatial.bench.measurement import get_dtype, get_median
from tessera.spatial.bench.rounds import gather_values, sample_rounds
from tessera.spatial.bench.unsplit import measure_unsplit
from tessera.spatial.parallel_model import ParallelModel, parallelize
from tessera.spatial.problem import NetworkProblem
from tessera.transport.transport import Transport

TOLERANCE = 1e-9  # largest difference in float64, relative to the largest value of the unsplit result
NEGLIGIBLE = 1e-6  # smallest scale of a gradient, relative to the largest gradient of the network
UNSPLIT_SHARE = 0.4  # fraction of the time budget for the unsplit network


def run_network(
    worker: Worker, case: Case, problem: NetworkProblem, transport: Transport, sampling: Sampling
) -> Record:
    """Check and time a network on this rank. A step is a forward pass; with `backward`, a training step.

    All ranks call it and return the same record. A training step includes the all-reduce of the weight
    gradients, but no optimizer.
    """
    backward = bool(case.params.get("backward"))
    torch.manual_seed(crc32(case.key.encode()))
    model, image = _make_network(problem, backward)
    errors = _compare_with_unsplit(model, image, problem, transport, backward=backward)
    worst = {name: max(rank[name] for rank in gather_values(worker, errors)) for name in errors}
    wrong = [f"{name.replace('_', ' ')} off by {error:.2g}" for name, error in worst.items() if not error <= TOLERANCE]
    figures = {f"error_{name}": error for name, error in worst.items()} | {"tolerance": TOLERANCE}
    if wrong:
        return Record(case=case, status="failed", reason="; ".join(wrong), metrics=make_metrics(figures, "halo"))
    split = parallelize(model, problem.mesh, transport=transport)
    explanation = split.explain(image)
    half = replace(sampling, budget=sampling.budget * (1 - UNSPLIT_SHARE))
    step = _make_split_step(split, image, backward=backward)
    samples = sample_rounds({"network": step}, half, worker, transport.barrier)["network"]
    unsplit, notes = measure_unsplit(
        worker,
        sum(parameter.nbytes for parameter in model.parameters())
        + image.nbytes
        + _count_stored(explanation.operations),
        lambda: _make_step(deepcopy(model), image, backward=backward),
        replace(sampling, budget=sampling.budget * UNSPLIT_SHARE),
    )
    figures["bytes"] = explanation.received_bytes
    if unsplit is not None:
        figures |= {"uncut": get_median(unsplit), "efficiency": get_median(unsplit) / get_median(samples)}
    return Record(
        case=case,
        launches=(samples,),
        metrics=make_time_metrics(samples) | make_metrics(figures, "halo"),
        environment=describe_environment(),
        chosen={"transport": transport.name},
        notes=notes,
        details={"explanation": explanation.to_rows()},
    )


def _make_network(problem: NetworkProblem, training: bool) -> tuple[nn.Module, Tensor]:
    dtype = get_dtype(problem.dtype)
    image = torch.randn(problem.batch, problem.in_channels, *problem.image, dtype=dtype)
    return build(problem.model).train(training).to(dtype), image


def make_network_step(problem: NetworkProblem, transport: Transport, *, backward: bool) -> Fn:
    """Return a step of the network on the split image, unchecked."""
    model, image = _make_network(problem, backward)
    return _make_split_step(parallelize(model, problem.mesh, transport=transport), image, backward=backward)


def _count_stored(operations: Any) -> int:
    """Return the bytes of all results of a network, which a training step keeps."""
    return sum(operation.stored_bytes for operation in operations)


def _make_split_step(split: ParallelModel, image: Tensor, *, backward: bool) -> Fn:
    return _make_step(split, split.scatter(image), backward=backward)


def _make_step(model: nn.Module, image: Tensor, *, backward: bool) -> Fn:
    def forward() -> None:
        with torch.no_grad():
            model(image)

    def train() -> None:
        model.zero_grad(set_to_none=True)
        model(image).square().mean().backward()

    return train if backward else forward


def _compare_with_unsplit(
    model: nn.Module, image: Tensor, problem: NetworkProblem, transport: Transport, *, backward: bool
) -> dict[str, float]:
    """Return the relative errors of the output and the weight gradients, computed in float64."""
    reference, copy = deepcopy(model).double(), deepcopy(model).double()
    split, pixels = parallelize(copy, problem.mesh, transport=transport), image.double()
    with torch.set_grad_enabled(backward):
        expected = _run_unsplit(reference, pixels)
        output = split(pixels)
        actual = split.gather(output)
    errors = {"output": _compute_error(actual.detach(), expected.detach())}
    if backward:
        expected.square().mean().backward()
        output.square().mean().backward()
        errors["weight_gradient"] = _compare_gradients(copy, reference)
    return errors


def _run_unsplit(network: nn.Module, image: Tensor) -> Any:
    """Run the unsplit network; an image that it does not accept is an error of the user."""
    try:
        return network(image)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise Refused(
            f"the network does not accept this image: {get_first_line(error)}",
            got="x".join(map(str, image.shape)),
            do="check --in-channels and --image-size",
        ) from None


def _compare_gradients(actual: nn.Module, expected: nn.Module) -> float:
    """Return the largest error of a weight gradient, relative to the largest value of the same gradient.

    The error of a gradient that is zero except for rounding (a bias before a batch norm) is relative to a small
    fraction of the largest gradient instead.
    """
    pairs = [(own.grad, whole.grad) for own, whole in zip(actual.parameters(), expected.parameters(), strict=True)]
    largest = max((float(whole.abs().max()) for _, whole in pairs if whole is not None), default=0.0)
    return max((_compute_error(own, whole, NEGLIGIBLE * largest) for own, whole in pairs), default=0.0)


def _compute_error(actual: Tensor | None, expected: Tensor | None, least_scale: float = 1e-30) -> float:
    if actual is None or expected is None:
        return 0.0 if actual is expected else float("inf")
    return float((actual - expected).abs().max() / expected.abs().max().clamp_min(max(least_scale, 1e-30)))

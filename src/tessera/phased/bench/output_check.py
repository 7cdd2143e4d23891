"""Compare the outputs of a phased model with plain torch before timing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from tessera.errors import BenchmarkFailed
from tessera.measure.memory_limits import get_available_bytes
from tessera.models.structure import collect_members
from tessera.phased.bench.workload import Workload
from tessera.phased.model import PhasedModel, as_call

# Relative to the largest output value. Splitting a batch may change the order of summation.
MAX_RELATIVE_ERRORS = {torch.float32: 1e-4, torch.float64: 1e-10, torch.float16: 4e-3, torch.bfloat16: 3e-2}
PLAIN_MEMORY_FACTOR = (
    3  # memory of plain torch over the size of the weights: while it builds, it has them in two dtypes
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCheck:
    """Result of comparing outputs: the largest error relative to the largest output value; None if not compared."""

    error: float | None
    note: str = ""


def check_output(workload: Workload, model: PhasedModel, inputs: Sequence[Any]) -> OutputCheck:
    """Compare the first mini-batch of a step with plain torch, unless the weights do not fit into memory."""
    if PLAIN_MEMORY_FACTOR * model.weight_bytes > get_available_bytes():
        return OutputCheck(error=None, note="not compared with plain torch: its weights do not fit into memory")
    if model.memory_limit is not None:
        return OutputCheck(error=None, note="not compared with plain torch, which would exceed the memory limit")
    args, kwargs = _copy(as_call(inputs[0]))  # a network may write into its input
    with torch.no_grad():
        expected = collect_members(workload.build_plain_network()(*args, **kwargs), Tensor)
    outputs = collect_members(model.run([_copy(inputs[0]), *inputs[1:]])[0], Tensor)
    errors = [compute_relative_error(output, wanted) for output, wanted in zip(outputs, expected, strict=True)]
    allowed = MAX_RELATIVE_ERRORS[workload.compute_dtype]
    for error in errors:
        if not error <= allowed:
            raise BenchmarkFailed(
                f"the output of {workload.name} differs from plain torch by {error:.1e} (allowed: {allowed:g})"
            )
    return OutputCheck(error=max(errors, default=0.0))


def _copy(inputs: Any) -> Any:
    return pytree.tree_map(lambda value: value.clone() if isinstance(value, Tensor) else value, inputs)


def compute_relative_error(output: Tensor, expected: Tensor) -> float:
    """Return the largest difference relative to the largest expected value; infinite if the shapes differ."""
    if output.shape != expected.shape:
        return math.inf
    if not expected.numel():
        return 0.0
    wide = expected.to(torch.float64)  # differences of integers may overflow, and bools cannot be subtracted
    largest = wide.abs().max().item() or 1.0
    return (output.to(torch.float64) - wide).abs().max().item() / largest

"""Whether a network in phases gives what plain torch gives, before its time is worth anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tessera.errors import BenchmarkFailed
from tessera.measure.room import available
from tessera.models.structure import members
from tessera.phased.bench.workload import Workload
from tessera.phased.model import PhasedModel

# Of the largest number of the output. The same products may be summed in another order when the batch is divided.
ALLOWED = {torch.float32: 1e-4, torch.float64: 1e-10}
ROOM = 3  # times the weights: plain torch has them in memory, and may hold two forms of them while it builds


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The largest difference, as a share of the largest number of the output; None where it was not looked for.

    Of an output of several tensors it is that of the worst.
    """

    error: float | None
    note: str = ""


def agreement(workload: Workload, model: PhasedModel, inputs: Sequence[Tensor]) -> Agreement:
    """Compare the first mini-batch of a step with plain torch; a network that does not fit into memory cannot be."""
    if ROOM * model.weight_bytes > available():
        return Agreement(error=None, note="not compared with plain torch: its weights do not fit into memory")
    first = inputs[0]
    with torch.no_grad():
        expected = members(workload.plain()(first.clone()), Tensor)  # a network may write into its input
    found = members(model.run([first.clone(), *inputs[1:]])[0], Tensor)
    errors = [_error(one, other) for one, other in zip(found, expected, strict=True)]
    allowed = ALLOWED[workload.computed]
    for error in errors:
        if not error <= allowed:
            raise BenchmarkFailed(
                f"{workload.name} in phases is off by {error:.1e} of plain torch's output (allowed: {allowed:g})"
            )
    return Agreement(error=max(errors, default=0.0))


def _error(found: Tensor, expected: Tensor) -> float:
    if found.shape != expected.shape:
        return math.inf
    if not expected.numel():
        return 0.0
    wide = expected.to(torch.float64)  # whole numbers and truth values have no difference of their own kind
    largest = wide.abs().max().item() or 1.0
    return (found.to(torch.float64) - wide).abs().max().item() / largest

"""Whether a network in phases gives what plain torch gives, before its time is worth anything."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tessera.errors import BenchmarkFailed
from tessera.measure.room import available
from tessera.phased.bench.workload import Workload
from tessera.phased.model import PhasedModel

# Of the largest number of the output. The same products may be summed in another order when the batch is divided.
ALLOWED = {torch.float32: 1e-4, torch.float64: 1e-10}
ROOM = 3  # times the weights: plain torch has them in memory, and may hold two forms of them while it builds


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """The largest difference, as a share of the largest number of the output; None where it was not looked for."""

    error: float | None
    note: str = ""


def agreement(workload: Workload, model: PhasedModel, batch: Tensor) -> Agreement:
    """Compare one mini-batch with plain torch; a network that does not fit into memory cannot be."""
    if ROOM * model.weight_bytes > available():
        return Agreement(error=None, note="not compared with plain torch: its weights do not fit into memory")
    with torch.no_grad():
        expected = workload.plain()(batch)
    found = model.run([batch])[0]
    largest = expected.abs().max().item() or 1.0
    error = (found - expected).abs().max().item() / largest
    allowed = ALLOWED[workload.computed]
    if not error <= allowed:
        raise BenchmarkFailed(
            f"{workload.name} in phases is off by {error:.1e} of plain torch's output (allowed: {allowed:g})"
        )
    return Agreement(error=error)

"""The phases of a model as a table, the settings that determine them, and the balance of loading and computing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tessera.machine.catalogue import load_host
from tessera.measure.environment import compute_host_fingerprint, describe_environment
from tessera.phased.traits import ScheduleTraits, WeightStoreTraits
from tessera.tabular import Tabular

MIN_PHASES = 8  # if the budget permits: small phases, because the first load of a pass overlaps with no computation
# FLOPs computed while one byte is loaded over a link; defaults for a host that is not calibrated.
DEFAULT_FLOPS_PER_BYTE = {"streaming": 50.0, "streaming_warm": 16.0, "copy": 16.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasingRequest:
    """Settings for splitting a model into phases: the schedule, the weight store and the budget.

    With `keep`, phases stay resident in the memory left by the buffers. `starts` names the modules at which phases
    begin, or the numbers of units; None to choose them by size, and by FLOPs if the `shapes` of the inputs are known.
    `cores` is the number of cores that compute. With `fine`, every unit is a phase. With `pinned`, the store of
    host memory is pinned memory, from which an accelerator copies.
    """

    schedule: ScheduleTraits
    store: WeightStoreTraits
    devices: int
    cores: int
    budget: int
    dtype: str | None = None
    keep: bool = True
    cold: bool = False
    starts: Sequence[str | int] | None = None
    shapes: Sequence[Sequence[int]] | None = None
    fine: bool = False
    pinned: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Modules that a network uses one after the other, and their weights.

    `modules` are its layers in the order of their use, `tensors` the names of its weights. `bytes` is the size of the
    weights in the store, which one load moves; `working_bytes` is their size in working memory, which is larger if
    16-bit weights are widened. `flops` counts one pass of one batch of the input shape; None if the shape is unknown.
    A `resident` phase is loaded once and stays in working memory.
    """

    index: int
    name: str
    modules: tuple[str, ...]
    tensors: tuple[str, ...]
    bytes: int
    working_bytes: int
    flops: int | None
    resident: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTable(Tabular):
    """The phases of a model as rows, for pandas and notebooks."""

    phases: tuple[Phase, ...]

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one row per phase: name, layers, bytes, FLOPs, and whether the phase is resident."""
        columns = ("index", "name", "bytes", "working_bytes", "flops", "resident")
        return [
            {name: getattr(phase, name) for name in columns} | {"layers": len(phase.modules)} for phase in self.phases
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the phases as plain (JSON-compatible) values."""
        return {"phases": self.to_rows()}


def get_host_balance(store: WeightStoreTraits, cold: bool, dtype: str, cores: int) -> float:
    """Return the FLOPs that `cores` cores compute while one byte is loaded, from this host's calibration if available.

    Mapped weights use the rate of reads from the page cache, because mapping is not slower than such reads.
    """
    link = store.get_link(cold=cold) or "streaming_warm"
    host = load_host(compute_host_fingerprint(describe_environment()))
    if host is None or link not in host.links or dtype not in host.flops:
        return DEFAULT_FLOPS_PER_BYTE[link]
    return host.get_rate(dtype, workers=cores) / host.get_bandwidth(link)

"""The raw samples of one launch, and how they were taken."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from tessera.errors import TesseraError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How to sample: until the interval of the median is narrow enough or the budget is spent, or a fixed count.

    `warmup` given as a number switches off the detection of warm-up; `iterations` the stopping rule and the inner
    loops: each is then one call.
    """

    target: float = 0.03
    budget: float = 1.0
    warmup: int | None = None
    iterations: int | None = None
    min_samples: int = 10
    max_samples: int = 20_000
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.target < 1:
            raise TesseraError("target must be a fraction", got=self.target, allowed="between 0 and 1")
        if not 0 < self.budget < math.inf:
            raise TesseraError("budget must be positive", got=self.budget, allowed="seconds above 0")
        if not 0 < self.confidence < 1:
            raise TesseraError("confidence must be a fraction", got=self.confidence, allowed="between 0 and 1")
        for name, least in (("warmup", 0), ("iterations", 1), ("min_samples", 1), ("max_samples", self.min_samples)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise TesseraError(f"{name} is too small", got=value, allowed=f"{least} or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What one launch measured: one value per sample, in the record's unit per call (seconds for a time).

    `warmups` were taken before the steady state and enter no statistic. `cpu` is CPU time of the process per
    call, `switches` the involuntary context switches and `steal` the seconds taken by the hypervisor while a
    sample ran. `ranks` holds the values of each rank where several were joined into `values` by `joined_by`.
    """

    values: tuple[float, ...]
    cpu: tuple[float, ...] = ()
    switches: tuple[int, ...] = ()
    steal: tuple[float, ...] = ()
    warmups: tuple[float, ...] = ()
    loops: int = 1
    faults_per_call: float = 0.0
    stopped_by: str = "count"
    interval: float | None = None
    ranks: tuple[tuple[float, ...], ...] = ()
    joined_by: str = ""

    def to_json(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Samples:
        known = {f.name for f in fields(cls)}
        kept: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k in known}
        if "ranks" in kept:
            kept["ranks"] = tuple(tuple(r) for r in kept["ranks"])
        return cls(**kept)

    @property
    def disturbed(self) -> float:
        """The share of samples during which the process was switched out or the hypervisor took the core."""
        if not self.values or not self.switches:
            return 0.0
        hit = sum(1 for s, t in zip(self.switches, self.steal, strict=True) if s or t)
        return hit / len(self.values)

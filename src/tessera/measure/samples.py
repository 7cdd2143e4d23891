"""The samples of one launch, and the settings of sampling."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, fields
from typing import Any

from tessera.errors import TesseraError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """The settings of sampling, which is adaptive unless `iterations` is set.

    Adaptive sampling stops when the relative half-width of the median's confidence interval is at most `target`, or
    when `budget` seconds are spent. If `warmup` is set, that number of warm-up calls replaces the detection of the
    steady state. If `iterations` is set, that number of samples of one call each is taken.
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
            raise TesseraError("the sampling target must be a fraction", got=self.target, allowed="between 0 and 1")
        if not 0 < self.budget < math.inf:
            raise TesseraError("the sampling budget must be positive", got=self.budget, allowed="seconds above 0")
        if not 0 < self.confidence < 1:
            raise TesseraError("the confidence must be a fraction", got=self.confidence, allowed="between 0 and 1")
        for name, least in (("warmup", 0), ("iterations", 1), ("min_samples", 1), ("max_samples", self.min_samples)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise TesseraError(f"{name} is too small", got=value, allowed=f"{least} or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The samples of one launch: one value per sample, in the record's unit per call (seconds for a time).

    `warmups` are the samples before the steady state, which enter no statistic. `cpu` is the CPU time of the process
    per call; `switches` (involuntary context switches) and `steal` (steal time in seconds) are per sample. `interval`
    is the relative half-width of the median's confidence interval. If the samples of several ranks were joined into
    `values`, `ranks` holds the values of each rank, and `joined_by` the rule.
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
        """Return all fields as plain values."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Samples:
        """Build samples from plain values; unknown fields are ignored."""
        known = {f.name for f in fields(cls)}
        kept: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k in known}
        if "ranks" in kept:
            kept["ranks"] = tuple(tuple(r) for r in kept["ranks"])
        return cls(**kept)

    @property
    def disturbed(self) -> float:
        """The share of samples during which the process was preempted or steal time occurred."""
        if not self.values or not self.switches:
            return 0.0
        hit = sum(1 for s, t in itertools.zip_longest(self.switches, self.steal) if s or t)
        return hit / len(self.values)

"""What a mode gives: samples in their unit, figures, and what is to be told about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tessera.errors import BenchmarkFailed
from tessera.measure.samples import Samples
from tessera.results.record import Direction, Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`rate` are the images per second that the machine's peak is held against; `error` is what ended it early."""

    samples: Samples
    unit: str
    direction: Direction
    rate: float
    metrics: Mapping[str, Metric]
    conditions: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    error: BenchmarkFailed | None = None

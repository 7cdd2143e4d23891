"""What a halo benchmark found, before it becomes a record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from tessera.measure.samples import Samples
from tessera.measure.statistics import summarize
from tessera.results.record import Metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """The samples that are the case's time, further figures, and what was chosen on the way."""

    samples: Samples
    metrics: Mapping[str, Metric]
    channels_last: bool
    notes: tuple[str, ...] = ()
    chosen: Mapping[str, str] = field(default_factory=dict)


def median(samples: Samples) -> float:
    return summarize(samples.values).median


def seconds(samples: Samples) -> Metric:
    """The median as a figure of a record."""
    return Metric(median(samples), "s", "lower")


def dtype_of(name: str) -> torch.dtype:
    found = getattr(torch, name)
    assert isinstance(found, torch.dtype), name
    return found

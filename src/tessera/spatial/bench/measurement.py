"""The result of a halo benchmark before it becomes a record, and the choice of the memory layout."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch

from tessera.launch.worker import Worker
from tessera.measure.sampler import Fn
from tessera.measure.samples import Samples, Sampling
from tessera.measure.statistics import summarize
from tessera.results.metrics import Metric
from tessera.spatial.bench.rounds import sample_rounds

LAYOUT_TRIAL_SHARE = 0.25  # fraction of the case's budget for timing both layouts
LAYOUT_TRIAL_TARGET = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class HaloMeasurement:
    """The measurement of a case: samples of its time, other metrics, and notes on automatic choices."""

    samples: Samples
    metrics: Mapping[str, Metric]
    channels_last: bool
    notes: tuple[str, ...] = ()
    chosen: Mapping[str, str] = field(default_factory=dict)


def get_median(samples: Samples) -> float:
    return summarize(samples.values).median


def get_dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype), name
    return dtype


def choose_layout(
    layout: str, make: Callable[[bool], Fn], sampling: Sampling, worker: Worker, barrier: Callable[[], None]
) -> tuple[bool, tuple[str, ...]]:
    """Choose the memory layout. Return whether it is channels last, and a note with the reason.

    For layout `auto`, the callables `make(False)` and `make(True)` (channels last) are timed on all ranks.
    """
    if layout != "auto":
        return layout == "channels_last", ()
    calls = {name: make(name == "channels_last") for name in ("contiguous", "channels_last")}
    trial = Sampling(budget=LAYOUT_TRIAL_SHARE * sampling.budget, target=LAYOUT_TRIAL_TARGET)
    times = {name: get_median(samples) for name, samples in sample_rounds(calls, trial, worker, barrier).items()}
    faster, slower = sorted(times, key=lambda name: times[name])
    return faster == "channels_last", (f"layout {faster}: takes {times[faster] / times[slower]:.2f}x of {slower}",)

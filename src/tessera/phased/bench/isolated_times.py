"""Load and compute times of each phase in isolation, without overlap; the ideal time of a pass follows from them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.phased.events import Event
from tessera.phased.model import PhasedModel
from tessera.phased.profile.pass_profile import COMPUTE, LOAD, PhaseCost
from tessera.phased.profile.spans import measure_spans

# For each phase, the time of the fastest of several passes is used, because noise only adds time.
MIN_PASSES, MAX_PASSES = 2, 20
MIN_MEASURING_SECONDS = 0.3  # no further pass is started after this time, except to reach MIN_PASSES


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolatedTimes:
    """Seconds to load and to compute one phase, each in isolation."""

    load: float
    compute: float


def measure_isolated_times(
    model: PhasedModel, inputs: Sequence[Any], open_baseline: Callable[[], PhasedModel]
) -> list[IsolatedTimes]:
    """Measure the phases of a model in isolation.

    If the model's schedule overlaps loads, its phases are measured with the baseline schedule instead, by a model that
    `open_baseline` opens. The compute time is divided by the number of devices that compute at the same time.
    """
    if not model.traits.overlaps_loads:
        times = _measure_fastest(model, inputs)
    else:
        with open_baseline() as baseline:
            baseline.adopt_phases(model)
            assert len(baseline.phases) == len(model.phases), "the phases begin at the same layers"
            times = _measure_fastest(baseline, inputs)
    share = model.traits.count_computing_devices(model.devices, len(inputs))
    return [IsolatedTimes(load=phase.load, compute=phase.compute / share) for phase in times]


def build_phase_costs(model: PhasedModel, times: Sequence[IsolatedTimes], batches: int) -> list[PhaseCost]:
    """Return the cost of each phase for a step of several mini-batches; a resident phase has no load cost."""
    return [
        PhaseCost(
            name=phase.name,
            bytes=0 if phase.resident else phase.bytes,
            flops=(phase.flops or 0) * batches,
            load=0.0 if phase.resident else isolated.load,
            compute=isolated.compute,
        )
        for phase, isolated in zip(model.phases, times, strict=True)
    ]


def _measure_fastest(model: PhasedModel, inputs: Sequence[Any]) -> list[IsolatedTimes]:
    model.run(inputs)  # warm-up: the first pass allocates memory pages
    passes: list[list[IsolatedTimes]] = []
    until = time.perf_counter() + MIN_MEASURING_SECONDS
    while len(passes) < MIN_PASSES or (len(passes) < MAX_PASSES and time.perf_counter() < until):
        model.run(inputs)
        passes.append([_sum_events(model.events, phase.index) for phase in model.phases])
    return [
        IsolatedTimes(
            load=min(times.load for times in phase_times), compute=min(times.compute for times in phase_times)
        )
        for phase_times in zip(*passes, strict=True)
    ]


def _sum_events(events: Sequence[Event], phase: int) -> IsolatedTimes:
    def sum_seconds(kind: str) -> float:
        return measure_spans(
            (event.start, event.stop) for event in events if event.kind == kind and event.phase == phase
        )

    return IsolatedTimes(load=sum_seconds(LOAD), compute=sum_seconds(COMPUTE))

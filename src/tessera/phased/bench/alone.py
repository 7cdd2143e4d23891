"""How long each phase loads and computes by itself, with nothing beside it: what the ideal of a pass is made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor

from tessera.phased.choices import HOLD_ALL, compute_together
from tessera.phased.events import Event
from tessera.phased.model import PhasedModel
from tessera.phased.phase import Phase
from tessera.phased.profile.pass_profile import COMPUTE, LOAD, Part
from tessera.phased.profile.spans import length

# Passes of which the quickest counts, phase by phase: noise only adds.
LEAST, MOST = 2, 20
LONG_ENOUGH = 0.3  # seconds, after which the least will do


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """Seconds of one phase."""

    load: float
    compute: float


def alone(
    model: PhasedModel, inputs: Sequence[Tensor], sequential: Callable[[Sequence[int]], PhasedModel]
) -> list[Alone]:
    """The phases of a model, each by itself.

    Where the model's own schedule lets them overlap, another one of the same phases loads and computes them one after
    the other; `sequential` opens it from the numbers of the layers at which they begin, for a layer that is called
    twice has its name twice. Devices that compute at the same time have an equal share of the work each, if all goes
    well.
    """
    if model.schedule in HOLD_ALL or model.schedule == "sequential":
        found = _quickest(model, inputs)
    else:
        with sequential([0, *accumulate(len(phase.modules) for phase in model.phases[:-1])]) as other:
            assert len(other.phases) == len(model.phases), "the phases begin at the same layers"
            found = _quickest(other, inputs)
    share = model.devices if compute_together(model.schedule, len(inputs)) else 1
    return [Alone(load=one.load, compute=one.compute / share) for one in found]


def parts(phases: Sequence[Phase], times: Sequence[Alone], batches: int, *, streamed: bool) -> list[Part]:
    """The phases on paper; one that stays in memory loads nothing."""
    return [
        Part(
            name=phase.name,
            bytes=phase.bytes if streamed and not phase.resident else 0,
            flops=(phase.flops or 0) * batches,
            load=one.load if streamed and not phase.resident else 0.0,
            compute=one.compute,
        )
        for phase, one in zip(phases, times, strict=True)
    ]


def _quickest(model: PhasedModel, inputs: Sequence[Tensor]) -> list[Alone]:
    model.run(inputs)  # the first pass of anything takes new pages
    passes: list[list[Alone]] = []
    until = time.perf_counter() + LONG_ENOUGH
    while len(passes) < LEAST or (len(passes) < MOST and time.perf_counter() < until):
        model.run(inputs)
        passes.append([_of(model.events, phase.index) for phase in model.phases])
    return [
        Alone(load=min(one.load for one in same), compute=min(one.compute for one in same))
        for same in zip(*passes, strict=True)
    ]


def _of(events: Sequence[Event], phase: int) -> Alone:
    def seconds(kind: str) -> float:
        return length((event.start, event.stop) for event in events if event.kind == kind and event.phase == phase)

    return Alone(load=seconds(LOAD), compute=seconds(COMPUTE))

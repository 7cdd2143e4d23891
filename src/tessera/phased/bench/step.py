"""What is timed: one step of all mini-batches through all phases, with the events of every pass kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from tessera.measure.samples import Samples
from tessera.measure.statistics import summarize
from tessera.phased.events import Event
from tessera.phased.model import PhasedModel
from tessera.phased.profile.pass_profile import Part, PassProfile


@dataclass(slots=True, kw_only=True)
class Step:
    """A call is a step. Keeps when each pass was, and what happened in it."""

    model: PhasedModel
    inputs: Sequence[Tensor]
    passes: list[tuple[float, float, Sequence[Event]]] = field(default_factory=list)

    def __call__(self) -> None:
        begin = time.perf_counter()
        self.model.run(self.inputs)
        self.passes.append((begin, time.perf_counter(), self.model.events))

    def typical(self, samples: Samples, parts: Sequence[Part]) -> PassProfile:
        """The timed pass that took as long as the middle one.

        One more pass is run, untimed: what is loaded ahead for the next pass belongs to the time of this one, and is
        among the events of the next.
        """
        middle = summarize(samples.values).median
        first = len(self.passes) - len(samples.values) * samples.loops
        self()
        timed = range(first, len(self.passes) - 1)
        chosen = min(timed, key=lambda n: abs(self.passes[n][1] - self.passes[n][0] - middle))
        begin, end, events = self.passes[chosen]
        return PassProfile.of([*events, *self.passes[chosen + 1][2]], parts, begin, end)

"""What a run is to do: cases, how each is sampled, in how many launches, and within how long."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tessera.launch import LaunchConfig
from tessera.measure.samples import Sampling
from tessera.results.record import Case

OVERHEAD = 0.3  # seconds of forking, building inputs, checking and measuring memory around a case's samples
START = 4.0  # seconds to start a worker that imports torch
LEAST = 0.03  # seconds of sampling that a divided budget leaves a case at least


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be run, and how. `budget` is the time for everything: cases that do not fit it are left out.

    `preparation` are the seconds that a case takes at most beside its samples.
    """

    cases: tuple[Case, ...]
    sampling: Sampling
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    launches: int = 1
    budget: float | None = None
    preparation: float = OVERHEAD

    @property
    def bounded(self) -> bool:
        """Whether a case has an end that is known: a number of iterations may take any time."""
        return self.sampling.iterations is None

    @property
    def longest(self) -> float:
        """Seconds that one launch of one case takes at most, when it behaves."""
        return self.sampling.budget + self.preparation

    def estimate(self, done: int = 0) -> float:
        """Seconds the whole takes at most; `done` launches of cases are there already."""
        starts = START if self.launch.workers == 1 else START * self.launches
        seconds = starts + (len(self.cases) * self.launches - done) * self.longest
        return seconds if self.budget is None else min(seconds, self.budget)

    def divided(self) -> Plan:
        """The same with its budget divided over the cases: each is sampled for less, so that all of them fit."""
        if self.budget is None:
            return self
        share = (self.budget - START) / max(1, len(self.cases) * self.launches) - self.preparation
        seconds = max(LEAST, min(share, self.sampling.budget))
        return replace(self, sampling=replace(self.sampling, budget=seconds))

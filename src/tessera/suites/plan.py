"""The plan of a run: its cases, sampling settings, number of launches and time budget."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from tessera.launch import LaunchConfig
from tessera.measure.samples import Sampling
from tessera.results.record import Case

CASE_OVERHEAD_SECONDS = 0.3  # per case, besides sampling: forking, building inputs, checking, measuring memory
WORKER_START_SECONDS = 4.0  # start of a worker that imports torch
MIN_SAMPLING_SECONDS = 0.03  # minimum sampling time per case after `divide_budget`


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """The cases of a run, and how to run them.

    `budget` is the time in seconds for the whole run: cases that do not fit are left out. `preparation_seconds` is the
    longest time that a case takes besides sampling. `settings` are passed to the session of a feature that has one.
    """

    cases: tuple[Case, ...]
    sampling: Sampling
    launch: LaunchConfig = field(default_factory=LaunchConfig)
    launches: int = 1
    budget: float | None = None
    preparation_seconds: float = CASE_OVERHEAD_SECONDS
    settings: Any = None

    @property
    def is_bounded(self) -> bool:
        """Whether the duration of a case is bounded; false for a fixed number of iterations."""
        return self.sampling.iterations is None

    @property
    def max_case_seconds(self) -> float:
        """The maximum duration in seconds of one launch of one case that does not fail."""
        return self.sampling.budget + self.preparation_seconds

    def estimate_seconds(self, done: int = 0) -> float:
        """Return the maximum duration of the run in seconds; `done` is the number of launches stored already."""
        starts = WORKER_START_SECONDS if self.launch.workers == 1 else WORKER_START_SECONDS * self.launches
        seconds = starts + (len(self.cases) * self.launches - done) * self.max_case_seconds
        return seconds if self.budget is None else min(seconds, self.budget)

    def divide_budget(self) -> RunPlan:
        """Return the plan with shorter sampling, so that all cases fit into the budget."""
        if self.budget is None:
            return self
        share = (self.budget - WORKER_START_SECONDS) / max(
            1, len(self.cases) * self.launches
        ) - self.preparation_seconds
        seconds = max(MIN_SAMPLING_SECONDS, min(share, self.sampling.budget))
        return replace(self, sampling=replace(self.sampling, budget=seconds))

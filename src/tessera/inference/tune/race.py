"""A race of candidates: short bursts in turns, the slow ones leave early, the time goes to those that may win.

First come the heats. Every team shows what it can do in one burst of its most likely batch; a team that is clearly
behind is not looked at any further, the others try their other batches; engines that take long to start come after
all that. Then come the rounds: those that are left take
turns in random order, so that the machine's mood hits all alike, and after each rung the better half goes on with
twice as many bursts. A race ends when one is left, or its time is up.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tessera.errors import TesseraError
from tessera.inference.tune.candidates import SLOW_TO_START, Candidate, Team
from tessera.inference.tune.goal import Goal

CLEARLY = 0.75  # of the best score: what reached less in its first burst will not make up for it
FALLEN = 0.95  # of the batch before: a team that reached less is not led on to still larger, or smaller, batches
KEPT = 8  # candidates that are held ready at most
FIRST_RUNG = 3  # bursts of each candidate in the first rung of the rounds
HEATS_SHARE = 0.6  # of the time that the heats may take


@dataclass(frozen=True, slots=True)
class Burst:
    """What a candidate did in one burst: images per second, and the latency of every batch in seconds."""

    rate: float
    latencies: tuple[float, ...]


class Track(Protocol):
    """Where candidates run: makes one ready, lets it run for a while, takes it away."""

    def open(self, candidate: Candidate) -> None: ...

    def burst(self, candidate: Candidate) -> Burst: ...

    def close(self, candidate: Candidate) -> None: ...

    def tight(self) -> bool:
        """Whether the machine has no room for one more candidate beside those that are open."""


@dataclass(slots=True, kw_only=True)
class Standing:
    """How a candidate stands: its burst in the heats, those of the rounds, how many rungs it went through, why it left.

    Who went further is better, whatever the figures: those of the others are of another time.
    """

    candidate: Candidate
    heat: Burst | None = None
    rounds: list[Burst] = field(default_factory=list)
    rungs: int = 0
    left: str = ""

    @property
    def bursts(self) -> list[Burst]:
        """Those that count: the heat was not interleaved, and steps back when there are rounds."""
        return self.rounds or ([self.heat] if self.heat else [])

    @property
    def rate(self) -> float:
        return statistics.median(burst.rate for burst in self.bursts)

    @property
    def latency(self) -> float:
        """Seconds within which nine of ten batches were done."""
        return float(np.quantile([one for burst in self.bursts for one in burst.latencies], 0.9))


class Race:
    """Runs candidates against one another until one is left or the time is up."""

    def __init__(
        self,
        track: Track,
        goal: Goal,
        *,
        budget: float,
        seed: int = 0,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._track, self._goal, self._clock, self._say = track, goal, clock, say
        self._random = random.Random(seed)
        self._began, self._budget = clock(), budget
        self._standings: list[Standing] = []
        self._open: list[Standing] = []

    def run(self, teams: Sequence[Team], batches: Sequence[int]) -> list[Standing]:
        """Every candidate's standing, the best first; those that were never measured come last."""
        try:
            self._heats(teams, self._goal.walks(tuple(batches)))
            self._rounds()
        finally:
            for standing in list(self._open):
                self._leave(standing, standing.left)
        return sorted(self._standings, key=lambda one: (not one.bursts, -one.rungs, -self._score(one)))

    def _score(self, standing: Standing) -> float:
        return self._goal.score(standing.rate, standing.latency) if standing.bursts else 0.0

    def _spent(self) -> float:
        return (self._clock() - self._began) / self._budget

    def _heats(self, teams: Sequence[Team], walks: Sequence[Sequence[int]]) -> None:
        """The likely batch of every team, then the other batches of those that keep up; last what is slow to start."""
        first = walks[0][0]
        for slow in (False, True):
            own = [team for team in teams if (team.engine in SLOW_TO_START) is slow]
            starts = {team: self._heat(Candidate(team=team, batch=first)) for team in own}
            self._other_batches(starts, walks, first)

    def _other_batches(self, starts: Mapping[Team, Standing], walks: Sequence[Sequence[int]], first: int) -> None:
        best = max(map(self._score, self._standings), default=0.0)
        for team, start in sorted(starts.items(), key=lambda pair: -self._score(pair[1])):
            keeps_up = bool(start.bursts) and self._score(start) >= CLEARLY * best
            for walk in walks:
                before = start
                for batch in walk[walk[0] == first :]:
                    if not keeps_up:
                        self._pass_over(Candidate(team=team, batch=batch), f"not tried: behind at batch {first}")
                        continue
                    here = self._heat(Candidate(team=team, batch=batch))
                    if not self._worth_a_step(here, before):
                        break
                    before = here

    def _worth_a_step(self, here: Standing, before: Standing) -> bool:
        """Whether a team that got so far may gain by one more step in the same direction."""
        return here in self._open and self._score(here) > FALLEN * self._score(before)

    def _pass_over(self, candidate: Candidate, why: str) -> Standing:
        standing = Standing(candidate=candidate, left=why)
        self._standings.append(standing)
        return standing

    def _heat(self, candidate: Candidate) -> Standing:
        """The first burst of a candidate, unless the time for the heats is over."""
        if self._spent() > HEATS_SHARE:
            return self._pass_over(candidate, "not tried: no time left")
        self._say(f"{candidate}: first burst")
        standing = self._pass_over(candidate, "")
        try:
            while self._open and (len(self._open) >= KEPT or self._track.tight()):
                self._leave(min(self._open, key=self._score), "behind the others when room was needed")
            self._track.open(candidate)
            self._open.append(standing)
            standing.heat = self._track.burst(candidate)
        except TesseraError as error:
            self._leave(standing, f"does not run: {error}")
            return standing
        best = max(map(self._score, self._standings))
        for other in [one for one in self._open if self._score(one) < CLEARLY * best]:
            self._leave(other, "behind in its first burst")
        return standing

    def _leave(self, standing: Standing, why: str) -> None:
        standing.left = why
        if standing in self._open:
            self._open.remove(standing)
            self._track.close(standing.candidate)

    def _rounds(self) -> None:
        """Rungs of interleaved bursts; after each the better half goes on."""
        bursts = FIRST_RUNG
        # a first turn even where the heats took all of the time: one burst each, not interleaved, decides nothing
        while len(self._open) > 1 and (self._spent() < 1 or bursts == FIRST_RUNG):
            for number in range(bursts):
                self._say(f"{len(self._open)} candidates, burst {number + 1} of {bursts}")
                for standing in self._random.sample(self._open, len(self._open)):
                    if self._spent() >= 1 and standing.rounds:
                        continue
                    self._round(standing)
            for standing in self._open:
                standing.rungs += 1
            ranked = sorted(self._open, key=self._score, reverse=True)
            for standing in ranked[(len(ranked) + 1) // 2 :]:
                self._leave(standing, "behind in the rounds")
            bursts *= 2

    def _round(self, standing: Standing) -> None:
        try:
            standing.rounds.append(self._track.burst(standing.candidate))
        except TesseraError as error:
            self._leave(standing, f"failed: {error}")

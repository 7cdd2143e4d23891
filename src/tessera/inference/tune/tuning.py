"""Tune a network to this machine: race the candidates, and make records of all that were measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tessera.errors import Refused, TesseraError
from tessera.inference.bench import VERSION
from tessera.inference.engines import ENGINES, available
from tessera.inference.measures.figures import latency_metrics
from tessera.inference.replicas.placement import ASKED
from tessera.inference.settings import Settings
from tessera.inference.tune.candidates import Candidate, Team, teams
from tessera.inference.tune.front import front
from tessera.inference.tune.goal import Goal
from tessera.inference.tune.race import Race, Standing
from tessera.inference.tune.track import ReplicaTrack
from tessera.launch import LaunchConfig
from tessera.measure.samples import Samples
from tessera.results.record import Case, Metric, Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What came of a tuning: how every candidate stands, the best first, and records of those measured."""

    goal: Goal
    standings: tuple[Standing, ...]
    cases: Mapping[Candidate, Case]
    records: tuple[Record, ...]

    @property
    def measured(self) -> tuple[Standing, ...]:
        return tuple(standing for standing in self.standings if standing.bursts)

    @property
    def best(self) -> Standing:
        return self.standings[0]

    @property
    def within_bound(self) -> bool:
        """Whether the best keeps to the latency that was asked for; if it does not, none does."""
        return self.goal.allows(self.best.latency)

    def front(self) -> list[Standing]:
        """Those that no other one beats both in images per second and in latency."""
        return front((standing, standing.rate, standing.latency) for standing in self.measured)


def usable_engines(
    settings: Settings, asked: Sequence[str] = (), say: Callable[[str], None] = lambda text: None
) -> list[str]:
    """The engines that take these settings here, of those asked for or all; one asked for that does not is an error.

    Which of all are left out, and why, is said.
    """
    found = []
    for name in asked or ENGINES:
        why = available(name)
        if why is not None:
            if asked:
                raise TesseraError(f"engine {name} cannot run here: {why}")
            say(f"{name} is left out: {why}")
            continue
        try:
            replace(settings, engine=name)
        except Refused as refused:
            if asked:
                raise
            say(f"{name} is left out: {refused}")
            continue
        found.append(name)
    return found


def tune(
    settings: Settings,
    goal: Goal,
    *,
    engines: Sequence[str],
    places: Sequence[tuple[int, int]],
    batches: Sequence[int],
    budget: float,
    launch: LaunchConfig | None = None,
    env: Mapping[str, str] | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Tuned:
    """Race every engine in every placement with every batch for `budget` seconds.

    An engine that cannot run the network takes its own candidates out of the race; where none is left that is an error.
    """
    if launch is not None:
        ASKED.set(launch)
    with ReplicaTrack(settings, env=env) as track:
        standings = Race(track, goal, budget=budget, say=say).run(teams(engines, places), batches)
        cases = {one.candidate: track.case_of(one.candidate) for one in standings}
        seen = dict(track.environments)
    if not standings[0].bursts:
        raise TesseraError(f"no candidate ran; {standings[0].candidate}: {standings[0].left}")
    measured = [one for one in standings if one.bursts]
    records = tuple(_record(one, cases[one.candidate], seen) for one in measured)
    return Tuned(goal=goal, standings=tuple(standings), cases=cases, records=records)


def _record(standing: Standing, case: Case, seen: Mapping[Team, Mapping[str, Any]]) -> Record:
    """A candidate as a record: its bursts are its samples."""
    latencies = [one for burst in standing.bursts for one in burst.latencies]
    rate = Metric(standing.rate, "images/s", "higher")
    ended = standing.left or "in the race to the end"
    return Record(
        case=case,
        version=f"{VERSION} tuning",
        unit="images/s",
        direction="higher",
        launches=(Samples(values=tuple(burst.rate for burst in standing.bursts), stopped_by=ended),),
        metrics={"throughput": rate, **latency_metrics(latencies)},
        environment=seen[standing.candidate.team],
        conditions={"tuning": {"rungs": standing.rungs, "left": standing.left}},
        notes=(f"tuning: {ended}",),
    )

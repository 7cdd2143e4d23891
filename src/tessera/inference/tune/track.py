"""The track of a tuning: teams of replicas that stay alive while any of their candidates is in the race."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from tessera.inference.cases import case_of
from tessera.inference.replicas.crew import OnReplicas, Replicas
from tessera.inference.replicas.placement import Placement
from tessera.inference.settings import Settings
from tessera.inference.tune.candidates import Candidate, Team
from tessera.inference.tune.race import Burst
from tessera.measure.room import available
from tessera.results.record import Case

BURST = 0.5  # seconds, or one batch where that takes longer
LEAD_IN = 0.3  # a batch shorter than this runs once before a burst: whoever ran before may still be spinning down
LEAST_FREE = 0.2  # of what was free at first: with less no candidate is opened beside the others


class ReplicaTrack:
    """Candidates on real replicas. The files of the networks are shared by all, and an engine is checked once."""

    def __init__(self, settings: Settings, *, env: Mapping[str, str] | None = None) -> None:
        self._settings, self._env = settings, env or {}
        self._teams: dict[Team, Replicas] = {}
        self._open: dict[Candidate, OnReplicas] = {}
        self._checked: set[str] = set()
        self.environments: dict[Team, Mapping[str, Any]] = {}
        self._free = available()

    def __enter__(self) -> ReplicaTrack:
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(TemporaryDirectory(prefix="tessera-tune-"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for replicas in self._teams.values():
                replicas.__exit__(kind, error, trace)
        finally:
            self._teams.clear()
            self._stack.close()

    def settings_of(self, candidate: Candidate) -> Settings:
        return replace(self._settings, engine=candidate.team.engine, batch_size=candidate.batch)

    def placement_of(self, team: Team) -> Placement:
        return Placement(num_replicas=team.replicas, cores_per_replica=team.threads, env=self._env, force=True)

    def case_of(self, candidate: Candidate) -> Case:
        """What runs a candidate by itself: forced, where it asks for more cores than there are."""
        return case_of({**self.settings_of(candidate).params(), **self.placement_of(candidate.team).params()})

    def open(self, candidate: Candidate) -> None:
        """Make a candidate ready; its team is started with its first one."""
        team = candidate.team
        settings = self.settings_of(candidate)
        if team not in self._teams:
            self._teams[team] = Replicas(self.placement_of(team), folder=self._folder).__enter__()
            self.environments[team] = self._teams[team].run("tessera.inference.replicas.inside:seen")[0]
        try:
            check = team.engine not in self._checked
            self._open[candidate] = self._teams[team].load(settings, str(candidate), check=check)
        except BaseException:
            self._dismiss_if_idle(team)
            raise
        self._checked.add(team.engine)

    def burst(self, candidate: Candidate) -> Burst:
        on = self._ready(candidate)
        if on.loaded[0].batch < LEAD_IN:
            on.window(batches=1, seconds=0.0)
        window = on.window(batches=1, seconds=BURST)
        while window.seconds <= 0:  # one replica was over before another began
            window = on.window(batches=2, seconds=BURST)
        return Burst(window.rate, window.latencies)

    def close(self, candidate: Candidate) -> None:
        """Let a candidate go; its team ends with its last one."""
        on = self._open.pop(candidate, None)
        if on is not None and not self._dismiss_if_idle(candidate.team):
            on.unload()

    def tight(self) -> bool:
        return available() < LEAST_FREE * self._free

    def _ready(self, candidate: Candidate) -> OnReplicas:
        """A candidate that is open; loaded again where its team was started anew, since another one made it die."""
        on = self._open[candidate]
        if not on.is_ready():
            on = self._teams[candidate.team].load(on.settings, on.name, check=False)
            self._open[candidate] = on
        return on

    def _dismiss_if_idle(self, team: Team) -> bool:
        """End a team that has no candidate in the race any more."""
        if any(candidate.team == team for candidate in self._open):
            return False
        replicas = self._teams.pop(team, None)
        if replicas is not None:
            replicas.__exit__(None, None, None)
        return True

"""The race: the best wins, the slow leave early, nothing stays open, and time is kept."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.errors import BenchmarkFailed, Refused, TesseraError
from tessera.inference.tune.candidates import Candidate, Team, placements, teams
from tessera.inference.tune.goal import GOALS, Goal
from tessera.inference.tune.race import KEPT, Burst, Race

BATCHES = (1, 2, 4, 8, 16, 32)


class Invented:
    """Candidates with a known rate, noise, a clock that their bursts and loads move, and a limit of memory."""

    def __init__(self, rates: dict[str, float], *, noise: float = 0.0, seed: int = 0, load: float = 1.0) -> None:
        self.rates, self.noise, self.load = rates, noise, load
        self.random = random.Random(seed)
        self.now = 0.0
        self.open_now: set[Candidate] = set()
        self.opened: list[Candidate] = []
        self.most_open = 0
        self.bursts: dict[Candidate, int] = {}
        self.refused: set[str] = set()
        self.dies: set[Candidate] = set()
        self.memory = 100

    def true_rate(self, candidate: Candidate) -> float:
        """Larger batches gain a little, the largest lose again."""
        gain = {1: 0.8, 2: 0.9, 4: 0.95, 8: 1.0, 16: 1.02, 32: 0.97}[candidate.batch]
        return self.rates[candidate.team.engine] * gain * (1.05 if candidate.team.replicas > 1 else 1.0)

    def open(self, candidate: Candidate) -> None:
        self.now += self.load
        if candidate.team.engine in self.refused:
            raise Refused("this engine does not agree with torch")
        self.open_now.add(candidate)
        self.opened.append(candidate)
        self.most_open = max(self.most_open, len(self.open_now))

    def burst(self, candidate: Candidate) -> Burst:
        assert candidate in self.open_now
        self.now += 0.5
        if candidate in self.dies and self.bursts.get(candidate, 0) > 0:
            raise BenchmarkFailed("rank 0 of 1 died")
        self.bursts[candidate] = self.bursts.get(candidate, 0) + 1
        rate = self.true_rate(candidate) * self.random.gauss(1, self.noise)
        return Burst(rate, (candidate.batch * candidate.team.replicas / rate,) * 3)

    def close(self, candidate: Candidate) -> None:
        self.open_now.discard(candidate)

    def tight(self) -> bool:
        return len(self.open_now) >= self.memory

    def clock(self) -> float:
        return self.now


ENGINES = {"a": 20.0, "b": 19.0, "slow": 9.0}


def race(track: Invented, goal: Goal | None = None, budget: float = 400.0, batches=BATCHES):
    found = Race(track, goal or Goal(), budget=budget, clock=track.clock).run(
        teams(list(track.rates), placements(2)), batches
    )
    assert not track.open_now, "everything is closed at the end"
    return found


def test_the_best_wins_and_every_candidate_has_a_standing():
    track = Invented(ENGINES)
    found = race(track)
    assert found[0].candidate == Candidate(team=Team(engine="a", replicas=2, threads=1), batch=16)
    assert len({one.candidate for one in found}) == len(found)
    assert found[0].left == ""
    rungs = [one.rungs for one in found if one.bursts]
    assert rungs == sorted(rungs, reverse=True)


def test_a_team_that_is_clearly_behind_gets_one_burst():
    track = Invented(ENGINES)
    found = race(track)
    slow = [one for one in found if one.candidate.team.engine == "slow"]
    assert sum(track.bursts.get(one.candidate, 0) for one in slow) == 2, "one for each placement"
    assert {one.left.split(":")[0] for one in slow} == {"behind in its first burst", "not tried"}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_under_noise_the_winner_is_within_a_few_per_cent_of_the_best(seed):
    track = Invented(ENGINES, noise=0.02, seed=seed)
    found = race(track)
    best = max(track.true_rate(one.candidate) for one in found)
    assert track.true_rate(found[0].candidate) > 0.95 * best


def test_few_are_open_at_a_time_and_fewer_where_memory_is_tight():
    track = Invented(dict.fromkeys("abcdef", 20.0))
    race(track)
    assert track.most_open <= KEPT
    tight = Invented(dict.fromkeys("abc", 20.0))
    tight.memory = 2
    race(tight)
    assert tight.most_open <= 2


def test_time_is_kept():
    track = Invented(ENGINES, noise=0.05, load=5.0)
    found = race(track, budget=60.0)
    assert track.now < 90
    assert any(one.left == "not tried: no time left" for one in found)
    assert found[0].bursts


def test_what_is_slow_to_start_comes_after_the_batches_of_the_others():
    track = Invented({"torch-compile": 19.0, "a": 20.0})
    race(track)
    engines = [one.team.engine for one in track.opened]
    assert engines == sorted(engines), "all of a first"
    assert {one.batch for one in track.opened if one.team.engine == "a"} >= {8, 16, 4}


def test_even_late_the_candidates_meet_once_in_turns():
    track = Invented(ENGINES, load=40.0)
    found = race(track, budget=70.0)
    assert [len(one.rounds) for one in found if one.rungs] == [1, 1]
    assert found[0].rungs == 1


def test_the_lowest_latency_is_that_of_the_smallest_batch():
    track = Invented(ENGINES)
    found = race(track, Goal(kind="latency"))
    assert found[0].candidate.batch == 1
    assert found[0].candidate.team == Team(engine="a", replicas=1, threads=2)
    assert max(track.bursts, key=lambda one: one.batch).batch <= 2, "larger ones are not worth a burst"


def test_a_bound_on_the_latency_excludes_the_large_batches():
    track = Invented(ENGINES)
    bound = 0.5
    (best, *_) = race(track, Goal(max_latency=bound))
    assert best.latency <= bound
    assert best.candidate.batch in (4, 8)


@pytest.mark.parametrize("kind", GOALS)
def test_where_nobody_keeps_to_the_bound_the_lowest_latency_wins(kind):
    track = Invented(ENGINES)
    goal = Goal(kind=kind, max_latency=1e-6)
    found = race(track, goal)
    assert found[0].candidate == Candidate(team=Team(engine="a", replicas=1, threads=2), batch=1)
    assert found[0].latency == min(one.latency for one in found if one.bursts)
    assert not goal.allows(found[0].latency)


def test_an_engine_that_is_refused_and_a_replica_that_dies_only_lose_themselves():
    track = Invented(ENGINES)
    track.refused = {"a"}
    doomed = Candidate(team=Team(engine="b", replicas=2, threads=1), batch=16)
    track.dies = {doomed}
    found = {one.candidate: one for one in race(track)}
    refused = [one for one in found.values() if one.candidate.team.engine == "a"]
    assert all(not one.bursts for one in refused)
    assert any(one.left.startswith("does not run: this engine does not agree") for one in refused)
    assert found[doomed].left.startswith("failed: rank 0 of 1 died")
    assert next(iter(found)).team.engine == "b"


def test_placements_fill_the_cores_or_are_what_was_asked_for():
    assert placements(6) == [(6, 1), (3, 2), (2, 3), (1, 6)]
    assert placements(4, threads=[2]) == [(2, 2)]
    assert placements(2, replicas=[1, 2], threads=[1]) == [(1, 1), (2, 1)]
    with pytest.raises(TesseraError, match="nothing to choose from"):
        teams([], placements(2))

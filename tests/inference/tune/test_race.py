"""Tests of the tuning race: winner, early dropping of slow candidates, closing of all candidates, and budget."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.errors import BenchmarkFailed, Refused, TesseraError
from tessera.inference.tune.race import (
    MAX_OPEN_CANDIDATES,
    TUNING_GOALS,
    Burst,
    Race,
    ReplicaSet,
    TuningCandidate,
    TuningGoal,
    list_placements,
    list_replica_sets,
)

BATCH_SIZES = (1, 2, 4, 8, 16, 32)


class SyntheticCandidates:
    """Synthetic candidates with given rates, noise and memory; loading and bursts advance the clock."""

    def __init__(self, rates: dict[str, float], *, noise: float = 0.0, seed: int = 0, load: float = 1.0) -> None:
        self.rates, self.noise, self.load = rates, noise, load
        self.random = random.Random(seed)
        self.now = 0.0
        self.open_now: set[TuningCandidate] = set()
        self.opened: list[TuningCandidate] = []
        self.most_open = 0
        self.bursts: dict[TuningCandidate, int] = {}
        self.refused: set[str] = set()
        self.dies: set[TuningCandidate] = set()
        self.memory = 100

    def compute_true_rate(self, candidate: TuningCandidate) -> float:
        """Return the rate of a candidate without noise; it is highest at batch size 16."""
        gain = {1: 0.8, 2: 0.9, 4: 0.95, 8: 1.0, 16: 1.02, 32: 0.97}[candidate.batch]
        return self.rates[candidate.replica_set.engine] * gain * (1.05 if candidate.replica_set.replicas > 1 else 1.0)

    def open(self, candidate: TuningCandidate) -> None:
        self.now += self.load
        if candidate.replica_set.engine in self.refused:
            raise Refused("this engine does not agree with torch")
        self.open_now.add(candidate)
        self.opened.append(candidate)
        self.most_open = max(self.most_open, len(self.open_now))

    def run_burst(self, candidate: TuningCandidate) -> Burst:
        assert candidate in self.open_now
        self.now += 0.5
        if candidate in self.dies and self.bursts.get(candidate, 0) > 0:
            raise BenchmarkFailed("rank 0 of 1 died")
        self.bursts[candidate] = self.bursts.get(candidate, 0) + 1
        rate = self.compute_true_rate(candidate) * self.random.gauss(1, self.noise)
        return Burst(rate, (candidate.batch * candidate.replica_set.replicas / rate,) * 3)

    def close(self, candidate: TuningCandidate) -> None:
        self.open_now.discard(candidate)

    def is_memory_low(self) -> bool:
        return len(self.open_now) >= self.memory

    def clock(self) -> float:
        return self.now


ENGINES = {"a": 20.0, "b": 19.0, "slow": 9.0}


def run_race(track: SyntheticCandidates, goal: TuningGoal | None = None, budget: float = 400.0, batches=BATCH_SIZES):
    ranking = Race(track, goal or TuningGoal(), budget=budget, clock=track.clock).run(
        list_replica_sets(list(track.rates), list_placements(2)), batches
    )
    assert not track.open_now, "everything is closed at the end"
    return ranking


def test_the_best_candidate_wins_and_every_candidate_has_a_result():
    track = SyntheticCandidates(ENGINES)
    ranking = run_race(track)
    assert ranking[0].candidate == TuningCandidate(replica_set=ReplicaSet(engine="a", replicas=2, threads=1), batch=16)
    assert len({one.candidate for one in ranking}) == len(ranking)
    assert ranking[0].dropped == ""
    rungs = [one.rungs for one in ranking if one.bursts]
    assert rungs == sorted(rungs, reverse=True)


def test_a_much_slower_replica_set_gets_one_burst():
    track = SyntheticCandidates(ENGINES)
    ranking = run_race(track)
    slow = [one for one in ranking if one.candidate.replica_set.engine == "slow"]
    assert sum(track.bursts.get(one.candidate, 0) for one in slow) == 2, "one for each placement"
    assert {one.dropped.split(":")[0] for one in slow} == {"too slow in its first burst", "not tried"}


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000))
def test_with_noise_the_winner_is_within_a_few_per_cent_of_the_best(seed):
    track = SyntheticCandidates(ENGINES, noise=0.02, seed=seed)
    ranking = run_race(track)
    best = max(track.compute_true_rate(one.candidate) for one in ranking)
    assert track.compute_true_rate(ranking[0].candidate) > 0.95 * best


def test_the_number_of_open_candidates_is_limited_also_by_memory():
    track = SyntheticCandidates(dict.fromkeys("abcdef", 20.0))
    run_race(track)
    assert track.most_open <= MAX_OPEN_CANDIDATES
    tight = SyntheticCandidates(dict.fromkeys("abc", 20.0))
    tight.memory = 2
    run_race(tight)
    assert tight.most_open <= 2


def test_the_race_ends_within_the_budget():
    track = SyntheticCandidates(ENGINES, noise=0.05, load=5.0)
    ranking = run_race(track, budget=60.0)
    assert track.now < 90
    assert any(one.dropped == "not tried: no time left" for one in ranking)
    assert ranking[0].bursts


def test_engines_that_start_slowly_are_screened_last():
    track = SyntheticCandidates({"torch-compile": 19.0, "a": 20.0})
    run_race(track)
    engines = [one.replica_set.engine for one in track.opened]
    assert engines == sorted(engines), "all of a first"
    assert {one.batch for one in track.opened if one.replica_set.engine == "a"} >= {8, 16, 4}


def test_one_interleaved_round_runs_even_without_time_left():
    track = SyntheticCandidates(ENGINES, load=40.0)
    ranking = run_race(track, budget=70.0)
    assert [len(one.rounds) for one in ranking if one.rungs] == [1, 1]
    assert ranking[0].rungs == 1


def test_goal_latency_selects_the_smallest_batch():
    track = SyntheticCandidates(ENGINES)
    ranking = run_race(track, TuningGoal(kind="latency"))
    assert ranking[0].candidate.batch == 1
    assert ranking[0].candidate.replica_set == ReplicaSet(engine="a", replicas=1, threads=2)
    assert max(track.bursts, key=lambda one: one.batch).batch <= 2, "larger ones are not worth a burst"


def test_a_latency_bound_excludes_large_batches():
    track = SyntheticCandidates(ENGINES)
    bound = 0.5
    (best, *_) = run_race(track, TuningGoal(max_latency=bound))
    assert best.latency <= bound
    assert best.candidate.batch in (4, 8)


@pytest.mark.parametrize("kind", TUNING_GOALS)
def test_the_lowest_latency_wins_if_no_candidate_meets_the_bound(kind):
    track = SyntheticCandidates(ENGINES)
    goal = TuningGoal(kind=kind, max_latency=1e-6)
    ranking = run_race(track, goal)
    assert ranking[0].candidate == TuningCandidate(replica_set=ReplicaSet(engine="a", replicas=1, threads=2), batch=1)
    assert ranking[0].latency == min(one.latency for one in ranking if one.bursts)
    assert not goal.allows(ranking[0].latency)


def test_a_refused_engine_or_dead_replica_drops_only_its_own_candidates():
    track = SyntheticCandidates(ENGINES)
    track.refused = {"a"}
    doomed = TuningCandidate(replica_set=ReplicaSet(engine="b", replicas=2, threads=1), batch=16)
    track.dies = {doomed}
    ranking = {one.candidate: one for one in run_race(track)}
    refused = [one for one in ranking.values() if one.candidate.replica_set.engine == "a"]
    assert all(not one.bursts for one in refused)
    assert any(one.dropped.startswith("does not run: this engine does not agree") for one in refused)
    assert ranking[doomed].dropped.startswith("failed: rank 0 of 1 died")
    assert next(iter(ranking)).replica_set.engine == "b"


def test_sizes_of_an_engine_that_never_ran_are_not_called_slow():
    track = SyntheticCandidates(ENGINES)
    track.refused = {"a"}
    untried = [one for one in run_race(track) if not one.tried]
    reasons = {one.candidate.replica_set.engine: one.dropped for one in untried}
    assert reasons == {"a": "not tried: did not run at batch 8", "slow": "not tried: too slow at batch 8"}
    assert not any(one.out_of_time for one in untried)


def test_candidates_without_time_are_marked():
    track = SyntheticCandidates(ENGINES, load=20.0)
    ranking = run_race(track, budget=60.0)
    assert {one.dropped for one in ranking if one.out_of_time} == {"not tried: no time left"}
    assert all(one.tried is not one.out_of_time for one in ranking)


def test_no_candidate_is_started_that_would_exceed_the_time_for_screening():
    track = SyntheticCandidates({"a": 20.0}, load=30.0)
    run_race(track, budget=70.0)
    assert len(track.opened) == 1, "a second one would end after 61 s of 70"


def test_placements_use_all_cores_or_the_given_numbers():
    assert list_placements(6) == [(6, 1), (3, 2), (2, 3), (1, 6)]
    assert list_placements(4, threads=[2]) == [(2, 2)]
    assert list_placements(2, replicas=[1, 2], threads=[1]) == [(1, 1), (2, 1)]
    with pytest.raises(TesseraError, match="at least one engine and one placement"):
        list_replica_sets([], list_placements(2))

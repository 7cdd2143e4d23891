"""Tests of the sampling of throughput windows: stopping rule, failures, scaling efficiency, and energy counters."""

from __future__ import annotations

import os
import random

import pytest

from tessera.errors import BenchmarkFailed
from tessera.inference.measures import (
    MAX_PAIRS,
    MIN_WINDOWS,
    MIN_WINDOWS_FOR_INTERVAL,
    WARMUP_WINDOWS,
    EnergyCounters,
    read_energy_counters,
    sample_windows,
)
from tessera.inference.replicas.windows import BatchTimes, ThroughputWindow
from tessera.measure.samples import Sampling
from tests.inference.measures.synthetic import SyntheticReplicas


def take(crew: SyntheticReplicas, sampling: Sampling, **more):
    return sample_windows(crew, sampling, clock=crew.clock, counters=lambda: None, **more)


def test_a_fixed_number_of_iterations_is_used():
    crew = SyntheticReplicas(1, lambda replica, window: 0.01, batch=8)
    taken = take(crew, Sampling(iterations=20, warmup=3), batches=5)
    assert (len(taken.warmups), len(taken.windows), taken.stopped_by) == (3, 20, "count")
    assert crew.requests == [(5, 0.0, False)] * 23
    assert taken.rate == pytest.approx(800)
    assert taken.efficiency is None
    assert taken.images == 20 * 5 * 8


def test_a_steady_rate_stops_at_the_target_and_a_noisy_one_at_the_budget():
    steady = take(SyntheticReplicas(1, lambda *_: 0.01), Sampling(target=0.05, budget=10.0))
    assert (steady.stopped_by, len(steady.windows), len(steady.warmups)) == (
        "target",
        MIN_WINDOWS_FOR_INTERVAL,
        WARMUP_WINDOWS,
    )
    noise = random.Random(3)
    noisy = take(SyntheticReplicas(1, lambda *_: noise.uniform(0.01, 0.03)), Sampling(target=0.001, budget=2.0))
    assert noisy.stopped_by == "budget"
    assert len(noisy.windows) > MIN_WINDOWS


def test_a_batch_longer_than_the_budget_is_measured_a_few_times():
    taken = take(SyntheticReplicas(1, lambda *_: 7.0), Sampling(target=0.01, budget=1.0))
    assert (len(taken.windows), taken.stopped_by) == (MIN_WINDOWS, "budget")


def test_efficiency_compares_adjacent_windows_of_all_replicas_and_of_one():
    crew = SyntheticReplicas(2, lambda replica, window: 0.0125 if not crew.requests[-1][2] else 0.01)
    taken = take(crew, Sampling(iterations=12, warmup=0))
    assert len(taken.pairs) == MAX_PAIRS
    assert [alone for _, _, alone in crew.requests[:4]] == [False, True, False, True]
    assert taken.efficiency is not None
    assert taken.efficiency.value == pytest.approx(0.8)


def test_samples_hold_the_sum_and_the_rate_of_each_replica():
    taken = take(
        SyntheticReplicas(2, lambda replica, window: 0.01 * (replica + 1)), Sampling(iterations=8, warmup=1), batches=10
    )
    samples = taken.samples()
    assert samples.joined_by == "sum over ranks"
    assert len(samples.ranks) == 2
    assert samples.values == pytest.approx([a + b for a, b in zip(*samples.ranks, strict=True)])
    assert samples.ranks[0][0] == pytest.approx(2 * samples.ranks[1][0])
    assert len(samples.warmups) == 1
    assert samples.interval is not None
    alone = take(SyntheticReplicas(1, lambda *_: 0.01), Sampling(iterations=3)).samples()
    assert (alone.ranks, alone.joined_by, alone.interval) == ((), "", None)


def test_windows_before_the_death_of_a_replica_are_kept():
    taken = take(SyntheticReplicas(2, lambda *_: 0.01, dies_in=WARMUP_WINDOWS + 7), Sampling(iterations=20))
    assert isinstance(taken.error, BenchmarkFailed)
    assert taken.stopped_by == "failure"
    assert len(taken.windows) == 4
    assert len(taken.samples().ranks) == 2


def test_a_death_before_the_first_window_is_an_error():
    with pytest.raises(BenchmarkFailed, match="SIGKILL"):
        take(SyntheticReplicas(2, lambda *_: 0.01, dies_in=WARMUP_WINDOWS), Sampling(iterations=20))


def test_replicas_that_never_compute_at_the_same_time_are_an_error():
    class DisjointReplicas(SyntheticReplicas):
        def run_window(self, **asked):
            return ThroughputWindow(
                batch=1, replicas=(BatchTimes(starts=(0,), ends=(1,)), BatchTimes(starts=(2,), ends=(3,)))
            )

    with pytest.raises(BenchmarkFailed, match="never computed at the same time"):
        take(DisjointReplicas(2, lambda *_: 1.0), Sampling(iterations=2))


def test_a_window_without_overlap_is_repeated_with_a_longer_duration():
    asked = []

    class LateReplica(SyntheticReplicas):
        def run_window(self, *, batches, **others):
            asked.append(batches)
            second = range(40, 40 + batches)  # the second replica starts after forty batches of the first
            moments = (range(batches), second)
            return ThroughputWindow(
                batch=1,
                replicas=tuple(BatchTimes(starts=(*m,), ends=(*(moment + 1 for moment in m),)) for m in moments),
            )

    taken = take(LateReplica(2, lambda *_: 1.0), Sampling(iterations=1, warmup=0))
    assert asked[:4] == [1, 4, 16, 64]
    assert taken.windows[0].seconds > 0


def test_energy_covers_only_the_windows():
    crew = SyntheticReplicas(1, lambda *_: 0.01)
    readings = iter(range(0, 10**9, 1_000_000))
    result = sample_windows(
        crew,
        Sampling(iterations=5, warmup=2),
        clock=crew.clock,
        counters=lambda: EnergyCounters((next(readings),), (10**12,)),
    )
    assert result.joules == pytest.approx(5.0)


def write_package(root, name: str, energy: int, *, domain: str = "package-0", limit: int = 262_143_328_850) -> None:
    folder = root / name
    folder.mkdir()
    (folder / "name").write_text(f"{domain}\n")
    (folder / "energy_uj").write_text(f"{energy}\n")
    (folder / "max_energy_range_uj").write_text(f"{limit}\n")


def test_only_package_counters_are_summed(tmp_path):
    write_package(tmp_path, "intel-rapl:0", 1_000_000)
    write_package(tmp_path, "intel-rapl:0:0", 700_000, domain="core")
    write_package(tmp_path, "intel-rapl:1", 2_000_000, domain="package-1")
    write_package(tmp_path, "intel-rapl:2", 9_000_000, domain="psys")
    before = read_energy_counters(tmp_path)
    assert before is not None
    assert before.energy == (1_000_000, 2_000_000)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("4000000")
    after = read_energy_counters(tmp_path)
    assert after is not None
    assert before.compute_joules(after) == pytest.approx(3.0)


def test_a_counter_that_wraps_around_is_corrected():
    assert EnergyCounters((90,), (100,)).compute_joules(EnergyCounters((15,), (100,))) == pytest.approx(25e-6)


def test_without_counters_there_is_no_energy(tmp_path):
    assert read_energy_counters(tmp_path) is None
    assert read_energy_counters(tmp_path / "nowhere") is None
    write_package(tmp_path, "intel-rapl:0", 9_000_000, domain="psys")
    assert read_energy_counters(tmp_path) is None


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_counters_give_no_energy(tmp_path):
    write_package(tmp_path, "intel-rapl:0", 1)
    (tmp_path / "intel-rapl:0" / "energy_uj").chmod(0)
    assert read_energy_counters(tmp_path) is None

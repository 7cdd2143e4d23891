"""Windows until the rate is known: when it stops, what it keeps, and what one replica reaches beside all."""

from __future__ import annotations

import random

import pytest

from tessera.errors import BenchmarkFailed
from tessera.inference.measures.energy import Counters
from tessera.inference.measures.throughput import ENOUGH_WINDOWS, LEAST_WINDOWS, PAIRS, WARMUPS, sample_windows
from tessera.inference.measures.windows import Stretch, Window
from tessera.measure.samples import Sampling
from tests.inference.measures.synthetic import Invented


def take(crew: Invented, sampling: Sampling, **more):
    return sample_windows(crew, sampling, clock=crew.clock, counters=lambda: None, **more)


def test_a_fixed_number_of_iterations_is_taken_as_given():
    crew = Invented(1, lambda replica, window: 0.01, batch=8)
    taken = take(crew, Sampling(iterations=20, warmup=3), batches=5)
    assert (len(taken.warmups), len(taken.windows), taken.stopped_by) == (3, 20, "count")
    assert crew.asked == [(5, 0.0, False)] * 23
    assert taken.rate == pytest.approx(800)
    assert taken.efficiency is None
    assert taken.images == 20 * 5 * 8


def test_a_steady_rate_stops_at_the_target_and_a_noisy_one_at_the_budget():
    steady = take(Invented(1, lambda *_: 0.01), Sampling(target=0.05, budget=10.0))
    assert (steady.stopped_by, len(steady.windows), len(steady.warmups)) == ("target", ENOUGH_WINDOWS, WARMUPS)
    noise = random.Random(3)
    noisy = take(Invented(1, lambda *_: noise.uniform(0.01, 0.03)), Sampling(target=0.001, budget=2.0))
    assert noisy.stopped_by == "budget"
    assert len(noisy.windows) > LEAST_WINDOWS


def test_even_a_batch_longer_than_the_budget_is_measured_a_few_times():
    taken = take(Invented(1, lambda *_: 7.0), Sampling(target=0.01, budget=1.0))
    assert (len(taken.windows), taken.stopped_by) == (LEAST_WINDOWS, "budget")


def test_efficiency_compares_all_with_the_first_alone_between_the_same_windows():
    crew = Invented(2, lambda replica, window: 0.0125 if not crew.asked[-1][2] else 0.01)
    taken = take(crew, Sampling(iterations=12, warmup=0))
    assert len(taken.pairs) == PAIRS
    assert [alone for _, _, alone in crew.asked[:4]] == [False, True, False, True]
    assert taken.efficiency is not None
    assert taken.efficiency.value == pytest.approx(0.8)


def test_the_samples_hold_the_sum_and_every_replicas_own():
    taken = take(
        Invented(2, lambda replica, window: 0.01 * (replica + 1)), Sampling(iterations=8, warmup=1), batches=10
    )
    samples = taken.samples()
    assert samples.joined_by == "sum over ranks"
    assert len(samples.ranks) == 2
    assert samples.values == pytest.approx([a + b for a, b in zip(*samples.ranks, strict=True)])
    assert samples.ranks[0][0] == pytest.approx(2 * samples.ranks[1][0])
    assert len(samples.warmups) == 1
    assert samples.interval is not None
    alone = take(Invented(1, lambda *_: 0.01), Sampling(iterations=3)).samples()
    assert (alone.ranks, alone.joined_by, alone.interval) == ((), "", None)


def test_what_was_measured_before_a_replica_dies_is_kept_and_marked():
    taken = take(Invented(2, lambda *_: 0.01, dies_in=WARMUPS + 7), Sampling(iterations=20))
    assert isinstance(taken.error, BenchmarkFailed)
    assert taken.stopped_by == "failure"
    assert len(taken.windows) == 4
    assert len(taken.samples().ranks) == 2


def test_a_death_before_anything_was_measured_is_an_error():
    with pytest.raises(BenchmarkFailed, match="SIGKILL"):
        take(Invented(2, lambda *_: 0.01, dies_in=WARMUPS), Sampling(iterations=20))


def test_replicas_that_never_work_at_the_same_time_are_an_error():
    class Apart(Invented):
        def window(self, **asked):
            return Window(batch=1, stretches=(Stretch(begun=(0,), ended=(1,)), Stretch(begun=(2,), ended=(3,))))

    with pytest.raises(BenchmarkFailed, match="never worked at the same time"):
        take(Apart(2, lambda *_: 1.0), Sampling(iterations=2))


def test_a_window_in_which_the_replicas_missed_each_other_is_taken_again_for_longer():
    asked = []

    class Slow(Invented):
        def window(self, *, batches, **others):
            asked.append(batches)
            second = range(40, 40 + batches)  # the second replica wakes when the first has done forty batches
            moments = (range(batches), second)
            return Window(
                batch=1, stretches=tuple(Stretch(begun=(*m,), ended=(*(moment + 1 for moment in m),)) for m in moments)
            )

    taken = take(Slow(2, lambda *_: 1.0), Sampling(iterations=1, warmup=0))
    assert asked[:4] == [1, 4, 16, 64]
    assert taken.windows[0].seconds > 0


def test_energy_is_that_of_the_windows_alone():
    crew = Invented(1, lambda *_: 0.01)
    readings = iter(range(0, 10**9, 1_000_000))
    found = sample_windows(
        crew,
        Sampling(iterations=5, warmup=2),
        clock=crew.clock,
        counters=lambda: Counters((next(readings),), (10**12,)),
    )
    assert found.joules == pytest.approx(5.0)

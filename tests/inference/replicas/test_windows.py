"""Tests of windows: only the time during which all replicas compute counts, and batches count as fractions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.inference.replicas.windows import BatchTimes, ThroughputWindow


@st.composite
def draw_replicas(draw: st.DrawFn) -> BatchTimes:
    """Draw the batch times of one replica, without gaps between batches."""
    begin = draw(st.integers(0, 10**9))
    lengths = draw(st.lists(st.integers(10**6, 10**9), min_size=1, max_size=12))
    marks = [begin]
    for length in lengths:
        marks.append(marks[-1] + length)
    return BatchTimes(starts=tuple(marks[:-1]), ends=tuple(marks[1:]), cpu_ns=draw(st.integers(0, 10**9)))


@given(draw_replicas(), st.integers(0, 2 * 10**9), st.integers(0, 2 * 10**9))
def test_batches_count_by_their_fraction_of_an_interval(replica, a, b):
    start, end = min(a, b), max(a, b)
    expected = 0.0
    for batch_start, batch_end in zip(replica.starts, replica.ends, strict=True):
        covered = measure_overlap(batch_start, batch_end, start, end)
        expected += covered / (batch_end - batch_start)
    assert replica.count_batches(start, end) == pytest.approx(expected)
    assert replica.count_batches(replica.first, replica.last) == pytest.approx(len(replica.starts))


def measure_overlap(a: int, b: int, c: int, d: int) -> int:
    return max(0, min(b, d) - max(a, c))


@given(draw_replicas(), st.integers(1, 64))
def test_the_window_of_one_replica_is_its_whole_time(replica, batch):
    window = ThroughputWindow(batch=batch, replicas=(replica,))
    assert window.seconds == pytest.approx(replica.wall_ns / 1e9)
    assert window.rate == pytest.approx(batch * len(replica.starts) / window.seconds)
    assert len(window.latencies) == len(replica.starts)


@given(st.lists(draw_replicas(), min_size=2, max_size=4))
def test_the_common_window_is_within_the_time_of_every_replica(replicas):
    window = ThroughputWindow(batch=8, replicas=tuple(replicas))
    assert window.start == max(replica.first for replica in replicas)
    assert window.end == min(replica.last for replica in replicas)
    if window.seconds <= 0:
        return
    assert window.rate == pytest.approx(sum(window.rates))
    for replica, rate in zip(replicas, window.rates, strict=True):
        assert rate * window.seconds <= 8 * len(replica.starts) * (1 + 1e-9)


def test_batches_after_the_first_end_of_a_replica_do_not_count():
    second = 10**9
    short = BatchTimes(starts=(0,), ends=(second,))
    long = BatchTimes(starts=(0, second, 2 * second), ends=(second, 2 * second, 3 * second))
    both = ThroughputWindow(batch=4, replicas=(short, long))
    assert both.rates == (4.0, 4.0)
    assert both.latencies == (1.0, 1.0)


def test_concurrent_batches_may_end_out_of_order():
    flying = BatchTimes(starts=(0, 1, 2), ends=(40, 20, 30))
    assert (flying.first, flying.last, flying.wall_ns) == (0, 40, 40)


def test_utilisation_is_summed_over_replicas():
    busy = BatchTimes(starts=(0,), ends=(100,), cpu_ns=100)
    half = BatchTimes(starts=(0,), ends=(100,), cpu_ns=50)
    assert ThroughputWindow(batch=1, replicas=(busy, half)).utilisation == pytest.approx(1.5)


def test_replicas_on_one_device_count_its_energy_once():
    def replica(device: str, joules: float | None) -> BatchTimes:
        return BatchTimes(starts=(0,), ends=(100,), device=device, device_joules=joules)

    def compute(*replicas: BatchTimes) -> float | None:
        return ThroughputWindow(batch=1, replicas=replicas).device_joules

    assert compute(replica("cuda:0", 3.0), replica("cuda:1", 4.0)) == 7.0
    assert compute(replica("cuda:0", 3.0), replica("cuda:0", 3.5), replica("cuda:1", 4.0)) == 7.5
    assert compute(replica("cuda:0", 3.0), replica("cuda:1", None)) is None

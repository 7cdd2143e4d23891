"""Tests of interleaved sampling: ratios of callables under drift on a synthetic clock, and on the real clock."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tessera.errors import TesseraError
from tessera.measure.interleave import estimate_paired_ratio, sample_interleaved
from tests.measure.synthetic import SyntheticClock


def sample_planted(ratio, drift, budget=2.0):
    """Sample two callables of known ratio while both slow down by a factor of up to `1 + drift`."""
    synthetic = SyntheticClock()
    noise = random.Random()

    def compute_drift():
        return 1 + drift * (1 + np.sin(synthetic.now / 3e8)) / 2

    a = synthetic.make_call(lambda: 1e5 * compute_drift() * noise.lognormvariate(0, 0.02))
    b = synthetic.make_call(lambda: 1e5 * ratio * compute_drift() * noise.lognormvariate(0, 0.02))
    sampling = sample_interleaved({"a": a, "b": b}, budget=budget, clock=synthetic.make_clock())
    return sampling, sampling.ratio("b", "a")


@pytest.mark.parametrize("ratio", [0.9, 1.0, 1.02, 1.1])
@pytest.mark.parametrize("drift", [0.0, 0.5])
def test_a_known_ratio_is_estimated_in_spite_of_drift(ratio, drift):
    _, estimate = sample_planted(ratio, drift)
    assert estimate.value == pytest.approx(ratio, abs=0.005)
    assert estimate.low <= estimate.value <= estimate.high
    assert estimate.relative < 0.01


def test_intervals_cover_the_truth():
    hits = 0
    for _ in range(40):
        estimate = sample_planted(1.03, 0.3, budget=0.1)[1]
        hits += estimate.low <= 1.03 <= estimate.high
    assert hits >= 32


def test_sampling_stops_at_the_target_after_a_whole_round():
    sampling, _ = sample_planted(1.0, 0.2)
    assert sampling.stopped_by == "target"
    assert len(sampling.samples["a"].values) == len(sampling.samples["b"].values) >= 30
    assert sampling.samples["a"].warmups


def test_the_order_is_random_every_round():
    synthetic = SyntheticClock()
    order = []

    def make_logged(name):
        step = synthetic.make_call(lambda: 1e5)

        def log_and_step():
            order.append(name)
            step()

        return log_and_step

    sample_interleaved({n: make_logged(n) for n in "abc"}, budget=0.05, target=1e-9, clock=synthetic.make_clock())
    rounds = [tuple(order[i : i + 3]) for i in range(len(order) - 60, len(order), 3)]
    assert all(sorted(r) == ["a", "b", "c"] for r in rounds)
    assert len(set(rounds)) > 2


def test_the_ratio_of_real_work():
    block = bytes(20_000)
    import zlib

    sampling = sample_interleaved(
        {"one": lambda: zlib.crc32(block), "two": lambda: (zlib.crc32(block), zlib.crc32(block))}, budget=0.3
    )
    assert 1.8 < sampling.ratio("two", "one").value < 2.2


def test_one_callable_or_an_unknown_name_is_refused():
    with pytest.raises(TesseraError, match="interleaving requires several callables"):
        sample_interleaved({"a": lambda: None})
    sampling, _ = sample_planted(1.0, 0.0, budget=0.05)
    with pytest.raises(TesseraError, match="no callable of this name was sampled"):
        sampling.ratio("c", "a")


def test_a_burst_of_noise_does_not_bias_the_ratio():
    rng = np.random.default_rng()
    base = np.ones(1000)
    values = rng.lognormal(0, 0.01, 1000)
    values[100:150] *= 3
    estimate = estimate_paired_ratio(tuple(values), tuple(base))
    assert estimate.value == pytest.approx(1, abs=0.003)

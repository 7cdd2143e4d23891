"""Interleaved sampling: ratios on synthetic clocks under drift, and on real work."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tessera.errors import TesseraError
from tessera.measure.interleave import paired_ratio, sample_interleaved
from tests.measure.synthetic import SyntheticClock


def planted(ratio, drift, budget=2.0):
    """Two callables on a machine whose speed wanders by up to a factor of `1 + drift`."""
    synthetic = SyntheticClock()
    noise = random.Random()

    def mood():
        return 1 + drift * (1 + np.sin(synthetic.now / 3e8)) / 2

    a = synthetic.call(lambda: 1e5 * mood() * noise.lognormvariate(0, 0.02))
    b = synthetic.call(lambda: 1e5 * ratio * mood() * noise.lognormvariate(0, 0.02))
    found = sample_interleaved({"a": a, "b": b}, budget=budget, clock=synthetic.clock())
    return found, found.ratio("b", "a")


@pytest.mark.parametrize("ratio", [0.9, 1.0, 1.02, 1.1])
@pytest.mark.parametrize("drift", [0.0, 0.5])
def test_a_planted_ratio_is_found_through_drift(ratio, drift):
    _, found = planted(ratio, drift)
    assert found.value == pytest.approx(ratio, abs=0.005)
    assert found.low <= found.value <= found.high
    assert found.relative < 0.01


def test_intervals_cover_the_truth():
    hits = 0
    for _ in range(40):
        found = planted(1.03, 0.3, budget=0.1)[1]
        hits += found.low <= 1.03 <= found.high
    assert hits >= 32


def test_stops_when_known_well_enough_and_keeps_rounds_together():
    found, _ = planted(1.0, 0.2)
    assert found.stopped_by == "target"
    assert len(found.samples["a"].values) == len(found.samples["b"].values) >= 30
    assert found.samples["a"].warmups


def test_the_order_is_random_every_round():
    synthetic = SyntheticClock()
    order = []

    def logged(name):
        step = synthetic.call(lambda: 1e5)

        def fn():
            order.append(name)
            step()

        return fn

    sample_interleaved({n: logged(n) for n in "abc"}, budget=0.05, target=1e-9, clock=synthetic.clock())
    rounds = [tuple(order[i : i + 3]) for i in range(len(order) - 60, len(order), 3)]
    assert all(sorted(r) == ["a", "b", "c"] for r in rounds)
    assert len(set(rounds)) > 2


def test_real_work_of_twice_the_length_is_seen_as_such():
    block = bytes(20_000)
    import zlib

    found = sample_interleaved(
        {"one": lambda: zlib.crc32(block), "two": lambda: (zlib.crc32(block), zlib.crc32(block))}, budget=0.3
    )
    assert 1.8 < found.ratio("two", "one").value < 2.2


def test_one_callable_or_an_unknown_name_is_refused():
    with pytest.raises(TesseraError, match="alternate"):
        sample_interleaved({"a": lambda: None})
    found, _ = planted(1.0, 0.0, budget=0.05)
    with pytest.raises(TesseraError, match="no such callable"):
        found.ratio("c", "a")


def test_a_burst_of_noise_over_neighbouring_rounds_does_not_fool_the_interval():
    rng = np.random.default_rng()
    base = np.ones(1000)
    values = rng.lognormal(0, 0.01, 1000)
    values[100:150] *= 3
    found = paired_ratio(tuple(values), tuple(base))
    assert found.value == pytest.approx(1, abs=0.003)

"""What is hidden, from samples of the same rounds."""

from __future__ import annotations

import random

import pytest

from tessera.measure.samples import Samples
from tessera.spatial.bench.compute import _hidden


def test_a_known_part_is_found_under_drift_that_both_share():
    drift = [random.uniform(1.0, 2.0) for _ in range(40)]
    sequential = Samples(values=tuple(1e-2 + 1e-3 * one for one in drift))
    cut = Samples(values=tuple(value - 3e-4 for value in sequential.values))
    found = {name: metric.value for name, metric in _hidden(sequential, cut, 1e-3).items()}
    assert found["hidden"] == pytest.approx(0.3)
    assert found["hidden_low"] == pytest.approx(0.3)
    assert found["hidden_high"] == pytest.approx(0.3)


def test_noise_makes_the_interval_wide_and_few_rounds_leave_none():
    noisy = [Samples(values=tuple(random.gauss(1e-2, 1e-3) for _ in range(40))) for _ in range(2)]
    found = _hidden(*noisy, 1e-5)
    assert found["hidden_high"].value - found["hidden_low"].value > 1
    few = [Samples(values=(1.0, 2.0, 3.0)) for _ in range(2)]
    assert set(_hidden(*few, 1.0)) == {"hidden"}

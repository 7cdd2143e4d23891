"""Tests of the hidden share of an exchange, computed from paired samples of the same rounds."""

from __future__ import annotations

import random

import pytest

from tessera.measure.samples import Samples
from tessera.spatial.bench.compute import _compute_hidden


def test_a_known_hidden_share_is_recovered_under_common_drift():
    drift = [random.uniform(1.0, 2.0) for _ in range(40)]
    sequential = Samples(values=tuple(1e-2 + 1e-3 * factor for factor in drift))
    overlapped = Samples(values=tuple(value - 3e-4 for value in sequential.values))
    values = {name: metric.value for name, metric in _compute_hidden(sequential, overlapped, 1e-3).items()}
    assert values["hidden"] == pytest.approx(0.3)
    assert values["hidden_low"] == pytest.approx(0.3)
    assert values["hidden_high"] == pytest.approx(0.3)


def test_noise_widens_the_interval_and_few_rounds_have_none():
    noisy = [Samples(values=tuple(random.gauss(1e-2, 1e-3) for _ in range(40))) for _ in range(2)]
    metrics = _compute_hidden(*noisy, 1e-5)
    assert metrics["hidden_high"].value - metrics["hidden_low"].value > 1
    few = [Samples(values=(1.0, 2.0, 3.0)) for _ in range(2)]
    assert set(_compute_hidden(*few, 1.0)) == {"hidden"}

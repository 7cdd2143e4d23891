"""Tests of the reference random operators: means and standard deviations of many draws, compared with torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import tessera.operators.reference as ref

N = 200_000
RNG = np.random.default_rng(3)
DATA = RNG.standard_normal((N // 100, 100))
PLANES = RNG.standard_normal((100, 200, 3, 3))
CHANCES = RNG.uniform(0.0, 1.0, (4, 50))
COUNT, PROB = RNG.integers(1, 20, N).astype(float), RNG.uniform(0.1, 0.9, N)


def tensor(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array)


PAIRS = {
    "dropout": (lambda: ref.dropout(DATA, 0.3), lambda: F.dropout(tensor(DATA), 0.3)),
    "dropout of planes": (lambda: ref.dropout(PLANES, 0.3, whole=2), lambda: F.dropout2d(tensor(PLANES), 0.3)),
    "alpha_dropout": (lambda: ref.alpha_dropout(DATA, 0.3), lambda: F.alpha_dropout(tensor(DATA), 0.3, training=True)),
    "binomial": (lambda: ref.binomial(COUNT, PROB), lambda: torch.binomial(tensor(COUNT), tensor(PROB))),
    "truncated_normal": (
        lambda: ref.truncated_normal((N,)),
        lambda: torch.nn.init.trunc_normal_(torch.empty(N, dtype=torch.float64)),
    ),
    "multinomial": (
        lambda: ref.multinomial(CHANCES, 50_000),
        lambda: torch.multinomial(tensor(CHANCES), 50_000, replacement=True),
    ),
    "multinomial_once": (
        lambda: np.concatenate([ref.multinomial_once(CHANCES, 5) for _ in range(1000)]),
        lambda: torch.cat([torch.multinomial(tensor(CHANCES), 5) for _ in range(1000)]),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_moments(name):
    torch.manual_seed(0)
    np.random.seed(0)
    got, want = (np.asarray(draw(), dtype=float) for draw in PAIRS[name])
    assert got.shape == want.shape
    assert got.mean() == pytest.approx(want.mean(), abs=0.03 * want.std())
    assert got.std() == pytest.approx(want.std(), rel=0.03)


def test_a_dropped_plane_is_dropped_as_a_whole():
    kept = ref.dropout(PLANES, 0.5, whole=2) != 0
    assert np.array_equal(kept.all((2, 3)), kept.any((2, 3)))


def test_samples_without_replacement_are_distinct():
    drawn = ref.multinomial_once(CHANCES, 50)
    assert np.array_equal(np.sort(drawn), np.tile(np.arange(50), (4, 1)))

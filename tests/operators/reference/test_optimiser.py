"""Tests of the reference optimiser steps: several steps, compared with torch.optim in double precision."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.operators import reference as ref

BETAS = {"beta1": 0.8, "beta2": 0.95}


def _adam(**more):
    return {"lr": 0.1, **BETAS, "eps": 1e-6, **more}


# name -> (torch optimiser, its options, (reference step, initial states, whether it needs the step number, options))
CASES = {
    "sgd": (
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1},
        (ref.sgd, [0.0], False, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1}),
    ),
    "nesterov": (
        torch.optim.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True},
        (ref.sgd, [0.0], False, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.0, "nesterov": True}),
    ),
    "adam": (
        torch.optim.Adam,
        {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1},
        (ref.adam, [0.0, 0.0], True, _adam(weight_decay=0.1)),
    ),
    "adamw": (
        torch.optim.AdamW,
        {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-6, "weight_decay": 0.1},
        (ref.adam, [0.0, 0.0], True, _adam(weight_decay=0.1, decoupled_weight_decay=True)),
    ),
    "amsgrad": (
        torch.optim.Adam,
        {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-6, "amsgrad": True},
        (ref.amsgrad, [0.0, 0.0, 0.0], True, _adam()),
    ),
    "adamax": (
        torch.optim.Adamax,
        {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-6},
        (ref.adamax, [0.0, 0.0], True, _adam()),
    ),
    "radam": (
        torch.optim.RAdam,
        {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-6},
        (ref.radam, [0.0, 0.0], True, _adam()),
    ),
    "rmsprop": (
        torch.optim.RMSprop,
        {"lr": 0.1, "alpha": 0.9, "eps": 1e-6},
        (ref.rmsprop, [0.0], False, {"lr": 0.1, "alpha": 0.9, "eps": 1e-6}),
    ),
    "rmsprop_momentum": (
        torch.optim.RMSprop,
        {"lr": 0.1, "alpha": 0.9, "eps": 1e-6, "momentum": 0.9},
        (ref.rmsprop_momentum, [0.0, 0.0], False, {"lr": 0.1, "alpha": 0.9, "eps": 1e-6, "momentum": 0.9}),
    ),
    "adagrad": (
        torch.optim.Adagrad,
        {"lr": 0.1, "lr_decay": 0.1, "eps": 1e-6},
        (ref.adagrad, [0.0], True, {"lr": 0.1, "lr_decay": 0.1, "eps": 1e-6}),
    ),
    "adadelta": (
        torch.optim.Adadelta,
        {"lr": 0.5, "rho": 0.8, "eps": 1e-3},
        (ref.adadelta, [0.0, 0.0], False, {"lr": 0.5, "rho": 0.8, "eps": 1e-3}),
    ),
    "rprop": (
        torch.optim.Rprop,
        {"lr": 0.1, "etas": (0.5, 1.2), "step_sizes": (1e-3, 0.2)},
        (
            ref.rprop,
            [0.0, 0.1],
            False,
            {"etaminus": 0.5, "etaplus": 1.2, "step_size_min": 1e-3, "step_size_max": 0.2},
        ),
    ),
}


@pytest.mark.parametrize("name", sorted(CASES))
@given(seed=st.integers(0, 2**31), steps=st.integers(1, 12))
@settings(max_examples=8, deadline=None)
def test_steps_match_torch(name, seed, steps):
    optimiser, options, (step, starts, counts, given_options) = CASES[name]
    rng = np.random.default_rng(seed)
    param, gradients = rng.standard_normal((3, 4)), rng.standard_normal((steps, 3, 4))
    tensor = torch.nn.Parameter(torch.from_numpy(param.copy()))
    taught = optimiser([tensor], **options)
    states = [np.full_like(param, start) for start in starts]
    for number, gradient in enumerate(gradients):
        tensor.grad = torch.from_numpy(gradient)
        taught.step()
        counted = [np.float64(number)] if counts else []
        param, *states = step(param, gradient, *states, *counted, **given_options)
    np.testing.assert_allclose(param, tensor.detach(), atol=1e-7)


@given(seed=st.integers(0, 2**31), steps=st.integers(1, 12))
@settings(max_examples=10, deadline=None)
def test_nadam_steps_match_torch(seed, steps):
    rng = np.random.default_rng(seed)
    param, gradients = rng.standard_normal((3, 4)), rng.standard_normal((steps, 3, 4))
    tensor = torch.nn.Parameter(torch.from_numpy(param.copy()))
    taught = torch.optim.NAdam([tensor], lr=0.1, betas=(0.8, 0.95), eps=1e-6, momentum_decay=0.1)
    mean, square, product = np.zeros((3, 4)), np.zeros((3, 4)), 1.0
    for number, gradient in enumerate(gradients):
        tensor.grad = torch.from_numpy(gradient)
        taught.step()
        now = np.float64(number)
        param, mean, square = ref.nadam(param, gradient, mean, square, product, now, **_adam(momentum_decay=0.1))
        product *= 0.8 * (1.0 - 0.5 * 0.96 ** ((number + 1) * 0.1))
    np.testing.assert_allclose(param, tensor.detach(), atol=1e-6)


@given(seed=st.integers(0, 2**31), steps=st.integers(1, 6))
@settings(max_examples=10, deadline=None)
def test_factored_steps_match_torch(seed, steps):
    rng = np.random.default_rng(seed)
    param, gradients = rng.standard_normal((3, 4)), rng.standard_normal((steps, 3, 4))
    tensor = torch.nn.Parameter(torch.from_numpy(param.copy()))
    taught = torch.optim.Adafactor([tensor], lr=0.1, weight_decay=0.1, eps=(1e-6, 1e-3))
    rows, columns = np.zeros((3, 1)), np.zeros((1, 4))
    for number, gradient in enumerate(gradients):
        tensor.grad = torch.from_numpy(gradient)
        taught.step()
        param, rows, columns = ref.adafactor(
            param,
            gradient,
            rows,
            columns,
            np.float64(number),
            lr=0.1,
            beta2_decay=-0.8,
            weight_decay=0.1,
            eps1=1e-6,
            eps2=1e-3,
            d=1.0,
        )
    np.testing.assert_allclose(param, tensor.detach(), atol=1e-7)


@given(seed=st.integers(0, 2**31), mu=st.floats(0.1, 0.9))
@settings(max_examples=10, deadline=None)
def test_averaged_descent_matches_torch(seed, mu):
    param, gradient, average = np.random.default_rng(seed).standard_normal((3, 3, 4))
    tensors = [torch.from_numpy(array.copy()) for array in (param, gradient, average)]
    rates = [torch.tensor(value, dtype=torch.float64) for value in (mu, 0.05, 3.0)]
    torch.optim._functional.asgd(
        *([one] for one in (*tensors, *rates)), foreach=False, lambd=0.1, lr=0.05, t0=10.0, alpha=0.75, weight_decay=0.0
    )
    result = ref.asgd(param, gradient, average, np.float64(mu), np.float64(0.05), lambd=0.1)
    np.testing.assert_allclose(result[0], tensors[0], atol=1e-12)
    np.testing.assert_allclose(result[1], tensors[2], atol=1e-12)

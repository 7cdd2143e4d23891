"""Elementwise operators: what their families share, and that those in place can be called for ever."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tessera.operators.backends import expressions
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS, find
from tessera.operators.catalogue.elementwise import elementwise, value
from tessera.operators.draws import cells
from tessera.operators.operator import Call
from tessera.operators.preparation import prepare

CATEGORIES = ("arithmetic", "comparison", "logical", "exp_log", "powers", "trigonometric", "rounding", "activation")
IN_PLACE = [one.name for one in find(category=CATEGORIES) if one.name.startswith("inplace_")]
TYPED = [(name, dtype) for name in IN_PLACE for dtype in ("float32", "float16") if dtype in OPERATORS[name].dtypes]


def _ready(name: str, dtype: str = "float32", backend: str = "torch"):
    (case,) = cases(
        [name], size=["small"], passes=["forward"], dtype=[dtype], backend=[backend], seed=random.randrange(2**31)
    )
    return prepare(case)


def _denormals(values: torch.Tensor, dtype: torch.dtype) -> int:
    return int(((values != 0) & (values.abs() < torch.finfo(dtype).tiny)).sum())


@pytest.fixture(autouse=True)
def _one_thread():
    """Small inputs: a second thread would only be waited for."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("name", "dtype"), TYPED)
def test_a_buffer_overwritten_again_and_again_keeps_normal_numbers(name, dtype):
    _, ready = _ready(name, dtype)
    for _ in range(500):
        found = ready.call()
    if found.is_floating_point():
        assert torch.isfinite(found).all()
        assert found.any()
        at_first = _denormals(torch.from_numpy(ready.outputs[0]), found.dtype)
        assert _denormals(found, found.dtype) <= at_first + found.numel() // 500  # some are there by chance


@pytest.mark.parametrize("name", [name for name in IN_PLACE if name in expressions("numpy")])
def test_numpy_too_overwrites_its_first_input(name):
    request, ready = _ready(name, backend="numpy")
    first = next(iter(request.arrays.values()))
    assert np.shares_memory(ready.call(), first)


@given(st.integers(1, 4))
def test_a_backward_pass_reads_inputs_and_gradient_and_writes_gradients(count):
    made = elementwise("any", "made", "", "", inputs={f"input{n}": value() for n in range(count)})
    inputs = made.inputs("small")
    call = Call(
        shapes={name: one.shape for name, one in inputs.items()},
        attributes={},
        outputs=((64, 64),),
        read=dict.fromkeys(inputs, 64 * 64 * 4),
        written=(64 * 64 * 4,),
    )
    assert made.work(call, "forward") == (64 * 64, (count + 1) * 64 * 64 * 4)
    assert made.work(call, "backward")[1] == pytest.approx((2 * count + 1) * 64 * 64 * 4)


@given(st.integers(-5, 0), st.integers(1, 5), st.sampled_from([0.1, 0.5, 1.0]), st.integers(0, 2**31))
def test_cells_keep_away_from_the_lines_of_their_grid(low, high, width, seed):
    values = cells(low, high, 0.2, 0.7, width)(np.random.default_rng(seed), (50,)) / width
    assert values.min() >= low
    assert values.max() <= high
    assert ((values % 1 >= 0.2 - 1e-9) & (values % 1 <= 0.7 + 1e-9)).all()

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
from tessera.operators.catalogue import OPERATORS
from tessera.operators.catalogue.elementwise import elementwise, value
from tessera.operators.draws import cells
from tessera.operators.operator import Call
from tessera.operators.preparation import prepare

IN_PLACE = [name for name in OPERATORS if name.startswith("inplace_")]
TYPED = [(name, dtype) for name in IN_PLACE for dtype in ("float32", "float16") if dtype in OPERATORS[name].dtypes]


def _ready(name: str, dtype: str = "float32", backend: str = "torch"):
    (case,) = cases(
        [name], size=["small"], passes=["forward"], dtype=[dtype], backend=[backend], seed=random.randrange(2**31)
    )
    return prepare(case)


@pytest.mark.parametrize(("name", "dtype"), TYPED)
def test_a_buffer_overwritten_again_and_again_keeps_normal_numbers(name, dtype):
    _, ready = _ready(name, dtype)
    for _ in range(2000):
        found = ready.call()
    if not found.is_floating_point():
        return
    size = found.abs()
    assert torch.isfinite(found).all()
    assert ((size == 0) | (size >= torch.finfo(found.dtype).tiny)).all()


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

"""Tests of elementwise operators: costs that a family shares, and repeated calls of in-place operators."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tessera.operators.backends import load_expressions
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS, find_operators
from tessera.operators.catalogue.families import ElementwiseFamily, make_value
from tessera.operators.draws import between_multiples
from tessera.operators.operator import OperatorCall
from tessera.operators.preparation import prepare_operator

CATEGORIES = ("arithmetic", "comparison", "logical", "exp_log", "powers", "trigonometric", "rounding", "activation")
IN_PLACE = [one.name for one in find_operators(category=CATEGORIES) if one.name.startswith("inplace_")]
TYPED = [(name, dtype) for name in IN_PLACE for dtype in ("float32", "float16") if dtype in OPERATORS[name].dtypes]


def _prepare(name: str, dtype: str = "float32", backend: str = "torch"):
    seed = random.randrange(2**31)
    (case,) = cases([name], size=["small"], passes=["forward"], dtype=[dtype], backend=[backend], seed=seed)
    print(case.key)  # the key contains the seed
    return prepare_operator(case)


def _count_denormals(values: torch.Tensor, dtype: torch.dtype) -> int:
    return int(((values != 0) & (values.abs() < torch.finfo(dtype).tiny)).sum())


@pytest.fixture(autouse=True)
def _one_thread():
    """Use one torch thread, because the inputs are too small for two."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("name", "dtype"), TYPED)
def test_repeatedly_overwritten_buffer_keeps_normal_numbers(name, dtype):
    _, ready = _prepare(name, dtype)
    for _ in range(500):
        output = ready.call()
    if output.is_floating_point():
        assert torch.isfinite(output).all()
        assert output.any()
        at_first = _count_denormals(torch.from_numpy(ready.outputs[0]), output.dtype)
        assert _count_denormals(output, output.dtype) <= at_first + output.numel() // 500  # a few occur by chance


@pytest.mark.parametrize("name", [name for name in IN_PLACE if name in load_expressions("numpy")])
def test_numpy_overwrites_its_first_input(name):
    request, ready = _prepare(name, backend="numpy")
    first = next(iter(request.arrays.values()))
    assert np.shares_memory(ready.call(), first)


@given(st.integers(1, 4))
def test_a_backward_pass_reads_inputs_and_gradient_and_writes_gradients(count):
    operator = ElementwiseFamily("any").define("made", "", "", inputs={f"input{n}": make_value() for n in range(count)})
    inputs = operator.get_inputs("small")
    call = OperatorCall(
        shapes={name: one.shape for name, one in inputs.items()},
        attributes={},
        outputs=((64, 64),),
        read=dict.fromkeys(inputs, 64 * 64 * 4),
        written=(64 * 64 * 4,),
    )
    assert operator.count_work(call, "forward") == (64 * 64, (count + 1) * 64 * 64 * 4)
    assert operator.count_work(call, "backward")[1] == pytest.approx((2 * count + 1) * 64 * 64 * 4)


@given(st.integers(-5, 0), st.integers(1, 5), st.sampled_from([0.1, 0.5, 1.0]), st.integers(0, 2**31))
def test_between_multiples_avoids_multiples_of_the_width(low, high, width, seed):
    values = between_multiples(low, high, 0.2, 0.7, width)(np.random.default_rng(seed), (50,)) / width
    assert values.min() >= low
    assert values.max() <= high
    assert ((values % 1 >= 0.2 - 1e-9) & (values % 1 <= 0.7 + 1e-9)).all()

"""Every operator of the catalogue runs, gives the reference's numbers and gradients, and is well described."""

from __future__ import annotations

import math
import random
import re

import pytest

from tessera.errors import Refused
from tessera.measure.samples import Sampling
from tessera.operators.backends import BACKENDS, expressions
from tessera.operators.bench import run_case
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS, categories
from tessera.operators.preparation import prepare
from tests.operators.test_operators import WORKER

SEED = random.randrange(2**31)


def right(name, **axes):
    """Prepare cases, which checks them. Now and then a value comes to lie on a kink: what is right is so on others."""
    try:
        for case in cases([name], seed=SEED, **axes):
            prepare(case)
    except Refused:
        for case in cases([name], seed=SEED + 1, **axes):
            prepare(case)


@pytest.mark.parametrize("name", OPERATORS)
def test_small_inputs_give_the_references_numbers_and_gradients(name):
    right(name, size=["small"], passes=["forward", "backward"])


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_medium_inputs_give_the_references_numbers_and_gradients(name, dtype):
    operator = OPERATORS[name]
    if dtype not in operator.dtypes:
        pytest.skip(f"{name} has no {dtype}")
    right(name, size=["medium"], passes=["forward", "both"], dtype=[dtype])


@pytest.mark.slow
@pytest.mark.parametrize("name", OPERATORS)
def test_large_inputs_run(name):
    for case in cases([name], size=["large"], passes=["forward"], seed=SEED):
        run_case(WORKER, case, Sampling(iterations=1, warmup=0))


@pytest.mark.parametrize("name", OPERATORS)
def test_the_dtypes_it_says_are_those_it_has(name):
    operator = OPERATORS[name]
    for dtype in ("float64", "bfloat16", "float16"):
        if dtype in operator.dtypes:
            right(name, size=["small"], passes=["forward"], dtype=[dtype])


def test_there_are_more_than_four_hundred_for_torch():
    assert len(expressions("torch")) >= 400


def test_every_category_of_the_seed_is_there():
    wanted = (
        "arithmetic comparison logical exp_log powers trigonometric rounding reduction sorting indexing joining shaping"
        " creation conversion random gemm linear_algebra convolution pooling normalisation activation loss recurrent"
        " attention embedding optimiser fft misc fused"
    )
    assert set(wanted.split()) <= set(categories())


@pytest.mark.parametrize("name", OPERATORS)
def test_sizes_grow_and_names_can_be_written_in_python(name):
    operator = OPERATORS[name]
    assert re.fullmatch(r"[a-z][a-z0-9_]*", name)
    sizes = [sum(math.prod(one.shape) for one in operator.sizes[size].values()) for size in operator.sizes]
    assert sizes == sorted(sizes)
    assert operator.reference


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backend_writes_only_operators_that_there_are(backend):
    assert set(expressions(backend)) <= set(OPERATORS)


def test_a_wrong_operator_is_refused(monkeypatch):
    (case,) = cases(["add"], size=["small"], passes=["forward"])
    monkeypatch.setitem(expressions("torch"), "add", "torch.add(lhs, rhs) * 1.001")
    with pytest.raises(Refused, match="add differs from the reference by"):
        prepare(case)


def test_a_wrong_gradient_is_refused(monkeypatch):
    (case,) = cases(["multiply"], size=["small"], passes=["backward"])
    monkeypatch.setitem(expressions("torch"), "multiply", "lhs * rhs + 0.1 * (lhs - lhs.detach())")
    with pytest.raises(Refused, match="the gradient of multiply differs by"):
        prepare(case)

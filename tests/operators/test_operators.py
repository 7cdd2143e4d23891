"""The three operators: their passes against plain torch, their FLOPs, their cases, their records."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from tessera.errors import TesseraError
from tessera.launch.worker import Worker
from tessera.measure.samples import Sampling
from tessera.measure.sync import ALONE
from tessera.operators.bench import callable_of, run_case
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS, Operator, find, register
from tessera.operators.passes import make_inputs, make_pass

REFERENCE = {
    "add": lambda lhs, rhs: lhs + rhs,
    "matmul": lambda lhs, rhs: lhs @ rhs,
    "conv2d": lambda data, weight: torch.conv2d(data, weight, padding=1),
}


@given(st.sampled_from(sorted(OPERATORS)), st.integers(0, 2**31), st.sampled_from(["float32", "float64"]))
@settings(max_examples=20, deadline=None)
def test_every_pass_gives_torchs_numbers(name, seed, dtype):
    operator = OPERATORS[name]
    inputs = make_inputs(operator, "small", dtype, seed, grad=True)
    expected = REFERENCE[name](*inputs.values())
    plain = {k: v.detach() for k, v in inputs.items()}
    assert torch.equal(make_pass(operator, "forward", plain)(), expected)
    gradient = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1)).to(expected.dtype)
    gradients = torch.autograd.grad(expected, tuple(inputs.values()), gradient)
    for which in ("backward", "both"):
        for _ in range(2):  # a second call must not accumulate
            found = make_pass(operator, which, inputs)()
            assert all(torch.equal(a, b) for a, b in zip(found, gradients, strict=True))
    assert all(t.grad is None for t in inputs.values())


@pytest.mark.parametrize("name", ["matmul", "conv2d"])
@pytest.mark.parametrize("size", ["small", "medium", "large"])
def test_flops_are_torchs_own_count(name, size):
    operator = OPERATORS[name]
    with torch.device("meta"):
        inputs = [torch.empty(shape) for shape in operator.shapes(size).values()]
    with FlopCounterMode(display=False) as counter:
        result = REFERENCE[name](*inputs)
    assert operator.work(size, "forward", 4)[0] == counter.get_total_flops()
    assert tuple(result.shape) == operator.output(operator.shapes(size))
    assert operator.work(size, "both", 4)[0] == 3 * counter.get_total_flops()


def test_inputs_repeat_with_their_seed_and_differ_without():
    add = OPERATORS["add"]
    one, same, other = (make_inputs(add, "small", "float32", seed, grad=False)["lhs"] for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_a_record_holds_time_memory_rates_and_environment():
    (case,) = cases(["add"], size=["medium"], passes=["forward"])
    worker = Worker(rank=0, size=1, spawn="inline", cpus=(), threads=1, sync=ALONE)
    record = run_case(worker, case, Sampling(budget=0.1))
    assert record.status == "ok"
    assert record.metrics["peak_allocated"].value == 4 * 1024 * 1024
    assert record.metrics["gflops"].value == pytest.approx(1024 * 1024 / record.metrics["time"].value / 1e9)
    assert record.metrics["bandwidth"].value == pytest.approx(12 * record.metrics["gflops"].value)
    assert record.environment["fingerprint"]
    assert len(record.launches[0].values) >= 3


def test_cases_are_the_product_of_their_axes_and_callable():
    found = cases(["add", "conv*"], size=["small"], passes=["forward", "both"], dtype=["float32", "float64"])
    assert len({case.key for case in found}) == 8
    for case in found:
        callable_of(case)()


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"names": ["ad"]}, "did you mean add"),
        ({"names": ["add"], "size": ["huge"]}, "unknown size"),
        ({"names": ["add"], "passes": ["sideways"]}, "unknown pass"),
        ({"names": ["add"], "dtype": ["int3"]}, "unknown dtype"),
    ],
)
def test_wrong_words_are_refused_with_the_right_ones(wrong, words):
    with pytest.raises(TesseraError, match=words):
        cases(**wrong)


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="twice"):
        register(OPERATORS["add"])
    assert isinstance(find(["add"])[0], Operator)

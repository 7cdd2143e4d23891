"""Tests of the cases, passes and records of a few operators."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.errors import Refused, TesseraError
from tessera.launch.worker import RunContext
from tessera.measure.samples import Sampling
from tessera.operators.bench import build_callable, run_case
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS, find_operators, register_operators
from tessera.operators.preparation import build_request, prepare_operator

PLAIN = {
    "add": lambda lhs, rhs: lhs + rhs,
    "matmul": lambda lhs, rhs: lhs @ rhs,
    "conv2d": lambda data, weight: torch.conv2d(data, weight, padding=1),
}


@given(st.sampled_from(sorted(PLAIN)), st.integers(0, 2**31), st.sampled_from(["float32", "float64"]))
@settings(max_examples=20, deadline=None)
def test_every_pass_matches_torch(name, seed, dtype):
    actual = {case.params["pass"]: case for case in _make_cases(name, seed, dtype)}
    inputs = {n: torch.from_numpy(a).requires_grad_() for n, a in build_request(actual["both"]).arrays.items()}
    expected = PLAIN[name](*inputs.values())
    assert torch.equal(build_callable(actual["forward"])(), expected)
    for which in ("backward", "both"):
        _, ready = prepare_operator(actual[which])
        weight = torch.from_numpy(ready.output_gradients[0]).to(expected.dtype)
        gradients = torch.autograd.grad(expected, tuple(inputs.values()), weight, retain_graph=True)
        for _ in range(2):  # a second call must not accumulate gradients
            assert all(torch.equal(a, b) for a, b in zip(ready.call(), gradients, strict=True))


def _make_cases(name, seed, dtype):
    return cases([name], size=["small"], passes=["forward", "backward", "both"], dtype=[dtype], seed=seed)


def test_a_record_holds_time_memory_rates_and_environment():
    (case,) = cases(["add"], size=["medium"], passes=["forward"])
    record = run_case(RunContext(), case, Sampling(budget=0.1))
    assert record.status == "ok"
    assert record.metrics["peak_allocated"].value == 4 * 1024 * 1024
    assert record.metrics["gflops"].value == pytest.approx(1024 * 1024 / record.metrics["time"].value / 1e9)
    assert record.metrics["bandwidth"].value == pytest.approx(12 * record.metrics["gflops"].value)
    assert record.metrics["work"].value == 12 * 1024 * 1024
    assert record.environment["fingerprint"]
    assert len(record.launches[0].values) >= 3


def test_cases_are_the_product_of_their_axes():
    actual = cases(["add", "conv2d"], size=["small"], passes=["forward", "both"], dtype=["float32", "float64"])
    assert len({case.key for case in actual}) == 8


def test_an_operator_without_gradient_has_a_forward_pass_only():
    actual = cases(["inplace_add"], size=["small"], passes=["forward", "backward"])
    assert [case.params["pass"] for case in actual] == ["forward"]
    (case,) = cases(["inplace_add"], size=["small"], passes=["backward"])
    with pytest.raises(Refused, match="has no backward pass"):
        prepare_operator(case)


def test_a_backend_without_gradient_has_a_forward_pass_only():
    actual = cases(["add"], backend=["torch", "numpy"], size=["small"], passes=["forward", "backward"])
    assert [(c.params["backend"], c.params["pass"]) for c in actual] == [
        ("torch", "forward"),
        ("torch", "backward"),
        ("numpy", "forward"),
    ]
    (case,) = cases(["add"], backend=["numpy"], size=["small"], passes=["backward"])
    with pytest.raises(Refused, match="NumPy has no backward pass"):
        prepare_operator(case)


def test_given_inputs_replace_shapes_and_arguments():
    seed = random.randrange(2**31)
    given_inputs = {"data": (2, 16, 9, 11), "stride": 2}
    (case,) = cases(["conv2d"], size=["small"], passes=["forward"], inputs=given_inputs, seed=seed)
    assert build_callable(case)().shape == (2, 16, 5, 6)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"lhs": (3, 4), "rhs": (5, 4)}, "the reference of add does not run: operands could not be broadcast"),
        ({"lhs": (1 << 40,)}, "do not fit into the free memory"),
    ],
)
def test_invalid_inputs_are_errors(inputs, words):
    (case,) = cases(["add"], size=["small"], passes=["forward"], inputs=inputs)
    with pytest.raises(Refused, match=words):
        prepare_operator(case)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"names": ["ad"]}, "did you mean add"),
        ({"names": ["add"], "size": ["huge"]}, "unknown size"),
        ({"names": ["add"], "passes": ["sideways"]}, "unknown pass"),
        ({"names": ["add"], "dtype": ["int3"]}, "unknown dtype"),
        ({"names": ["add"], "backend": ["tensorflow"]}, "unknown backend.*numpy"),
        ({"names": ["add"], "skew": ["odd"]}, "unknown skew.*strided"),
        ({"names": ["add"], "seed": -1}, "seed: got -1; allowed: 0 or more"),
        (
            {"names": ["add"], "inputs": {"left": (3,)}},
            "add has no input or argument of this name: got 'left'; allowed: lhs, rhs, dtype",
        ),
        ({"names": ["add"], "inputs": {"lhs": "wide"}}, "invalid shape of lhs: got 'wide'"),
        ({"category": ["arithmetics"]}, "unknown category"),
    ],
)
def test_unknown_values_are_errors_that_list_allowed_values(wrong, words):
    with pytest.raises(TesseraError, match=words):
        cases(**wrong)


def test_unsupported_dtype_is_an_error_that_lists_supported_dtypes():
    (case,) = cases(["fft_fft"], size=["small"], passes=["forward"], dtype=["float16"])
    with pytest.raises(Refused, match="fft_fft does not support the dtype: got 'float16'; allowed: float32, float64"):
        prepare_operator(case)


def test_registering_a_name_twice_is_an_error():
    with pytest.raises(ValueError, match="already used by"):
        register_operators([OPERATORS["add"]])


def test_operators_are_found_by_torch_names():
    assert find_operators(["mul", "sub"]) == [OPERATORS["multiply"], OPERATORS["subtract"]]

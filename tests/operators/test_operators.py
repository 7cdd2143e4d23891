"""Cases, passes and records of operators, on a few of them."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.errors import Refused, TesseraError
from tessera.launch.worker import Worker
from tessera.measure.samples import Sampling
from tessera.measure.sync import ALONE
from tessera.operators.bench import run_case
from tessera.operators.cases import cases
from tessera.operators.catalogue import OPERATORS, find, register
from tessera.operators.preparation import callable_of, prepare, request_of

WORKER = Worker(rank=0, size=1, spawn="inline", cpus=(), threads=1, sync=ALONE)
PLAIN = {
    "add": lambda lhs, rhs: lhs + rhs,
    "matmul": lambda lhs, rhs: lhs @ rhs,
    "conv2d": lambda data, weight: torch.conv2d(data, weight, padding=1),
}


@given(st.sampled_from(sorted(PLAIN)), st.integers(0, 2**31), st.sampled_from(["float32", "float64"]))
@settings(max_examples=20, deadline=None)
def test_every_pass_gives_torchs_numbers(name, seed, dtype):
    found = {case.params["pass"]: case for case in _cases(name, seed, dtype)}
    inputs = {n: torch.from_numpy(a).requires_grad_() for n, a in request_of(found["both"]).arrays.items()}
    expected = PLAIN[name](*inputs.values())
    assert torch.equal(callable_of(found["forward"])(), expected)
    for which in ("backward", "both"):
        _, ready = prepare(found[which])
        weight = torch.from_numpy(ready.output_gradients[0]).to(expected.dtype)
        gradients = torch.autograd.grad(expected, tuple(inputs.values()), weight, retain_graph=True)
        for _ in range(2):  # a second call must not accumulate
            assert all(torch.equal(a, b) for a, b in zip(ready.call(), gradients, strict=True))


def _cases(name, seed, dtype):
    return cases([name], size=["small"], passes=["forward", "backward", "both"], dtype=[dtype], seed=seed)


def test_a_record_holds_time_memory_rates_and_environment():
    (case,) = cases(["add"], size=["medium"], passes=["forward"])
    record = run_case(WORKER, case, Sampling(budget=0.1))
    assert record.status == "ok"
    assert record.metrics["peak_allocated"].value == 4 * 1024 * 1024
    assert record.metrics["gflops"].value == pytest.approx(1024 * 1024 / record.metrics["time"].value / 1e9)
    assert record.metrics["bandwidth"].value == pytest.approx(12 * record.metrics["gflops"].value)
    assert record.metrics["work"].value == 12 * 1024 * 1024
    assert record.environment["fingerprint"]
    assert len(record.launches[0].values) >= 3


def test_cases_are_the_product_of_their_axes():
    found = cases(["add", "conv2d"], size=["small"], passes=["forward", "both"], dtype=["float32", "float64"])
    assert len({case.key for case in found}) == 8


def test_an_operator_without_gradient_has_a_forward_pass_only():
    found = cases(["inplace_add"], size=["small"], passes=["forward", "backward"])
    assert [case.params["pass"] for case in found] == ["forward"]
    (case,) = cases(["inplace_add"], size=["small"], passes=["backward"])
    with pytest.raises(Refused, match="does not differentiate"):
        prepare(case)


def test_a_backend_without_gradient_has_a_forward_pass_only():
    found = cases(["add"], backend=["torch", "numpy"], size=["small"], passes=["forward", "backward"])
    assert [(c.params["backend"], c.params["pass"]) for c in found] == [
        ("torch", "forward"),
        ("torch", "backward"),
        ("numpy", "forward"),
    ]
    (case,) = cases(["add"], backend=["numpy"], size=["small"], passes=["backward"])
    with pytest.raises(Refused, match="NumPy does not differentiate"):
        prepare(case)


def test_inputs_of_ones_own_replace_shapes_and_arguments():
    seed = random.randrange(2**31)
    given_inputs = {"data": (2, 16, 9, 11), "stride": 2}
    (case,) = cases(["conv2d"], size=["small"], passes=["forward"], inputs=given_inputs, seed=seed)
    assert callable_of(case)().shape == (2, 16, 5, 6)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"lhs": (3, 4), "rhs": (5, 4)}, "does not run on torch: operands could not be broadcast"),
        ({"lhs": (1 << 40,)}, "too large for memory"),
    ],
)
def test_inputs_that_cannot_be_are_refused(inputs, words):
    (case,) = cases(["add"], size=["small"], passes=["forward"], inputs=inputs)
    with pytest.raises(Refused, match=words):
        prepare(case)


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
        ({"names": ["add"], "inputs": {"left": (3,)}}, "add has no such input: got 'left'; allowed: lhs, rhs, dtype"),
        ({"names": ["add"], "inputs": {"lhs": "wide"}}, "shape of lhs: got 'wide'"),
        ({"category": ["arithmetics"]}, "unknown category"),
    ],
)
def test_wrong_words_are_refused_with_the_right_ones(wrong, words):
    with pytest.raises(TesseraError, match=words):
        cases(**wrong)


def test_a_dtype_that_the_operator_lacks_is_refused_with_those_it_has():
    (case,) = cases(["fft_fft"], size=["small"], passes=["forward"], dtype=["float16"])
    with pytest.raises(Refused, match="fft_fft has no such dtype: got 'float16'; allowed: float32, float64"):
        prepare(case)


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="taken"):
        register([OPERATORS["add"]])


def test_torchs_own_names_find_operators_too():
    assert find(["mul", "sub"]) == [OPERATORS["multiply"], OPERATORS["subtract"]]

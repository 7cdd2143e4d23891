"""Tests of fused operators, compared with their separate steps: equal outputs, and the recorded speed-up."""

from __future__ import annotations

import math
import random

import pytest

from tessera.errors import Refused
from tessera.launch import Worker
from tessera.measure.samples import Sampling
from tessera.measure.sync import SingleRank
from tessera.operators.backends.backend import OperatorRequest
from tessera.operators.cases import cases
from tessera.operators.catalogue import group_by_category
from tessera.operators.catalogue.fused import FUSIONS
from tessera.operators.fusion import build_programs, run_fused
from tessera.operators.preparation import build_request

SEED = random.randrange(2**31)
ALONE = Worker(rank=0, size=1, spawn="inline", cpus=(), threads=1, sync=SingleRank())
LIBRARY = [name for name, fusion in FUSIONS.items() if fusion.library]


def _request(name: str, size: str) -> OperatorRequest:
    (case, *_) = cases([name], size=[size], passes=["forward"], seed=SEED)
    return build_request(case)


def test_every_fused_operator_has_a_fusion():
    assert set(FUSIONS) == {operator.name for operator in group_by_category()["fused"]}


@pytest.mark.parametrize("size", ["small", "medium"])
@pytest.mark.parametrize("name", LIBRARY)
def test_steps_kept_buffers_and_library_kernel_agree(name, size):
    build_programs(_request(name, size), "library")


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FUSIONS)
def test_steps_and_compiled_kernel_agree(name):
    build_programs(_request(name, "small"), "compile")


def test_record_has_gain_and_allocator_share():
    ways = {case.params["fusion"]: case for case in cases(["multiply_add"], size=["medium"], passes=["forward"])}
    assert set(ways) == {"compile", "library"}
    metrics = run_fused(ALONE, ways["library"], Sampling(budget=0.3)).metrics
    assert metrics["unfused"].value > 0 < metrics["time"].value
    if "gain_low" in metrics:
        assert metrics["gain_low"].value <= metrics["gain"].value <= metrics["gain_high"].value < math.inf
    if "allocator_share" in metrics:
        assert 0 <= metrics["allocator_share"].value <= 1


def test_a_fixed_number_of_calls_is_refused():
    (case, *_) = cases(["multiply_add"], size=["small"], passes=["forward"], fusion=["library"])
    with pytest.raises(Refused, match="does not support a fixed number of iterations"):
        run_fused(ALONE, case, Sampling(iterations=5))


@pytest.mark.parametrize("name", LIBRARY)
def test_every_fused_record_has_rates_and_memory(name):
    (case,) = cases([name], size=["small"], passes=["forward"], fusion=["library"], seed=SEED)
    record = run_fused(ALONE, case, Sampling(budget=0.02))
    seconds = record.metrics["time"].value
    assert record.metrics["gflops"].value * seconds > 0
    # the bandwidth counts every input and output once
    request = build_request(case)
    read = sum(array.nbytes for array in request.arrays.values())
    assert record.metrics["bandwidth"].value * seconds * 1e9 > read
    assert record.metrics["work"].value >= record.metrics["bandwidth"].value * seconds * 1e9 * 0.999
    assert record.metrics["peak_allocated"].value > 0


def test_unfused_steps_run_with_other_backends_or_without_fusion():
    assert {c.params.get("fusion") for c in cases(["add_relu"], passes=["forward"])} == {"compile"}
    for axes in ({"backend": ["torch", "jax"]}, {"fusion": []}):
        assert {c.params.get("fusion") for c in cases(["add_relu"], passes=["forward"], **axes)} == {None}

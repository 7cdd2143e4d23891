"""Tests of the time limit and of the memory estimate of a case."""

from __future__ import annotations

import pytest

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Workers
from tessera.launch.config import SpawnMethod
from tessera.measure.samples import Sampling
from tessera.spatial.bench.memory_demand import check_memory, estimate_memory
from tessera.spatial.bench.time_limit import START_SECONDS, compute_time_limit
from tessera.spatial.cases import cases

FIXED = Sampling(warmup=10, iterations=100)


def compute_limit(name: str, sampling: Sampling = FIXED, **axes: object) -> float:
    axes = {"overlap": "none", "in_channels": 64, "image_size": 256} | axes
    if name == "exchange":
        axes.pop("overlap")
    (case,) = cases([name], **{axis: [value] for axis, value in axes.items()})
    seconds = compute_time_limit(case, sampling)
    assert seconds is not None
    return seconds


@pytest.mark.parametrize("name", ["exchange", "compute", "validate"])
def test_more_work_may_take_longer(name: str) -> None:
    small, large = compute_limit(name), compute_limit(name, image_size=1024)
    assert START_SECONDS < small < large


@pytest.mark.parametrize("name", ["exchange", "compute"])
def test_backward_and_iterations_count(name: str) -> None:
    assert compute_limit(name) < compute_limit(name, backward=True)
    assert compute_limit(name) < compute_limit(name, Sampling(warmup=10, iterations=200))


def test_a_convolution_may_take_one_second_per_gflop() -> None:
    operations = 2 * 256 * 256 * 64 * 256 * 9
    assert compute_limit("compute") > 110 * operations / 1e9


def test_a_budget_needs_no_time_limit() -> None:
    (case,) = cases(["exchange"])
    assert compute_time_limit(case, Sampling(budget=2.0)) is None


@pytest.mark.parametrize("name", ["exchange", "compute", "validate", "network"])
def test_memory_is_foreseen(name: str) -> None:
    case = cases([name], in_channels=[16], image_size=[1_000_000])[0]
    assert estimate_memory(case) >= 16 * 4 * 10**12
    with pytest.raises(TesseraError, match=r"not enough memory: got '.* or more'; allowed: .* available here"):
        check_memory([case])
    check_memory(cases([name], image_size=[64]))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("spawn", ["inline", "processes"])
@pytest.mark.parametrize("limit", [3e6, 1e10, 1e300])
def test_a_very_long_time_limit_is_no_error(spawn: SpawnMethod, limit: float) -> None:
    with Workers(LaunchConfig(spawn=spawn, time_limit=limit)) as workers:
        assert workers.run("tests.launch.worker_functions:get_torch_threads") == [1]

"""The time limit of a case: more for more work, and far beyond what any machine takes."""

from __future__ import annotations

import pytest

from tessera.measure.samples import Sampling
from tessera.spatial.bench.limit import START, time_limit
from tessera.spatial.cases import cases

FIXED = Sampling(warmup=10, iterations=100)


def limit(name: str, sampling: Sampling = FIXED, **axes: object) -> float:
    axes = {"overlap": "none", "in_channels": 64, "image_size": 256} | axes
    if name == "exchange":
        axes.pop("overlap")
    (case,) = cases([name], **{axis: [value] for axis, value in axes.items()})
    found = time_limit(case, sampling)
    assert found is not None
    return found


@pytest.mark.parametrize("name", ["exchange", "compute", "validate"])
def test_more_work_may_take_longer(name: str) -> None:
    small, large = limit(name), limit(name, image_size=1024)
    assert START < small < large


@pytest.mark.parametrize("name", ["exchange", "compute"])
def test_backward_and_iterations_count(name: str) -> None:
    assert limit(name) < limit(name, backward=True)
    assert limit(name) < limit(name, Sampling(warmup=10, iterations=200))


def test_a_convolution_may_take_a_second_for_a_thousand_million_operations() -> None:
    operations = 2 * 256 * 256 * 64 * 256 * 9
    assert limit("compute") > 110 * operations / 1e9


def test_where_a_budget_ends_the_sampling_there_is_no_limit_of_its_own() -> None:
    (case,) = cases(["exchange"])
    assert time_limit(case, Sampling(budget=2.0)) is None

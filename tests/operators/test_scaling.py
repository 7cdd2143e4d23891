"""The fit over sizes: planted overheads and costs come out, and what does not fit is said."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.operators.scaling import Fit, Size, fit_line, fit_table, fits
from tests.operators.invented import operator_record

works = st.lists(st.floats(1e2, 1e10), min_size=2, max_size=5, unique=True).filter(lambda w: max(w) > 10 * min(w))


@given(works, st.floats(1e-7, 1e-4), st.floats(1e-12, 1e-8))
@settings(max_examples=100, deadline=None)
def test_points_on_a_line_give_the_line_back(works: list[float], overhead: float, cost: float) -> None:
    sizes = [Size(name=str(work), work=work, seconds=overhead + work * cost) for work in works]
    found = fit_line(sizes)
    assert min(found) >= 0
    for size in sizes:
        assert found[0] + size.work * found[1] == pytest.approx(size.seconds, rel=1e-6)


def test_noise_moves_the_line_by_no_more_than_itself() -> None:
    rng = random.Random(4)
    for _ in range(50):
        overhead, cost = 10 ** rng.uniform(-6, -5), 10 ** rng.uniform(-11, -10)
        works = (overhead / cost / 30, overhead / cost, 30 * overhead / cost)
        seconds = [(overhead + work * cost) * rng.gauss(1, 0.01) for work in works]
        sizes = [Size(name="", work=work, seconds=time) for work, time in zip(works, seconds, strict=True)]
        found = fit_line(sizes)
        assert found == (pytest.approx(overhead, rel=0.08), pytest.approx(cost, rel=0.08))


def test_a_time_that_is_not_sure_counts_less() -> None:
    line = [Size(name="", work=work, seconds=1e-6 + work * 1e-10) for work in (1e3, 1e5, 1e7)]
    off = Size(name="", work=1e6, seconds=2 * (1e-6 + 1e6 * 1e-10))
    sure, unsure = (fit_line([*line, replace(off, error=error)])[1] for error in (0.01, 1.0))
    assert abs(unsure - 1e-10) < abs(sure - 1e-10) / 5


@given(st.lists(st.tuples(st.floats(1e2, 1e10), st.floats(1e-7, 1.0), st.floats(0.01, 0.1)), min_size=2, max_size=5))
@settings(max_examples=60, deadline=None)
def test_no_other_line_is_nearer(points: list[tuple[float, float, float]]) -> None:
    sizes = [Size(name="", work=work, seconds=seconds, error=error) for work, seconds, error in points]

    def loss(overhead: float, cost: float) -> float:
        return sum((((overhead + s.work * cost) / s.seconds - 1) / s.error) ** 2 for s in sizes)

    overhead, cost = fit_line(sizes)
    best = loss(overhead, cost)
    for one, other in itertools.product((0.9, 0.999, 1.0, 1.001, 1.1), repeat=2):
        assert loss(overhead * one, cost * other) >= best * (1 - 1e-9) - 1e-9
    assert loss(overhead + min(s.seconds for s in sizes) / 100, cost) >= best * (1 - 1e-9) - 1e-9


def test_a_size_beyond_the_caches_does_not_hide_the_overhead() -> None:
    records = [
        operator_record("add", seconds=seconds, work=work, size=size)
        for size, work, seconds in (("small", 4.9e4, 2.2e-6), ("medium", 1.3e7, 2.3e-4), ("large", 2e8, 3.3e-2))
    ]
    (fit,) = fits(records)
    assert fit.overhead == pytest.approx(1.2e-6, rel=0.2)
    size, ratio = fit.furthest
    assert size.name == "large"
    assert ratio > 5


def test_neither_part_is_negative() -> None:
    caches = [Size(name="", work=1e3, seconds=1e-7), Size(name="", work=1e6, seconds=1e-3)]
    assert fit_line(caches)[0] == 0
    flat = [Size(name="", work=1e3, seconds=2e-6), Size(name="", work=1e6, seconds=1e-6)]
    assert fit_line(flat)[1] == 0


def test_the_size_at_which_overhead_equals_work() -> None:
    case = operator_record("add", seconds=1.0).case
    fit = Fit(case=case, unit="B", overhead=2e-6, cost=1e-10, sizes=(Size(name="s", work=1e4, seconds=3e-6),))
    assert fit.even == pytest.approx(2e4)
    assert fit.rate == pytest.approx(1e10)
    assert fit.furthest == (fit.sizes[0], pytest.approx(1))
    assert replace(fit, cost=0.0).even is None


def test_every_backend_pass_and_dtype_has_a_line_of_its_own() -> None:
    records = [
        operator_record(
            "add", seconds=overhead + work * 1e-10, work=work, backend=backend, size=size, **{"pass": which}
        )
        for backend, overhead in (("torch", 1e-6), ("jax", 5e-6))
        for which in ("forward", "backward")
        for size, work in (("small", 1e4), ("medium", 1e7))
    ]
    found = fits(records)
    assert [(f.case.params["backend"], f.case.params["pass"]) for f in found] == [
        ("torch", "forward"),
        ("torch", "backward"),
        ("jax", "forward"),
        ("jax", "backward"),
    ]
    assert [f.overhead for f in found] == pytest.approx([1e-6, 1e-6, 5e-6, 5e-6])
    assert all("size" not in f.case.params for f in found)


def test_two_sizes_with_work_are_needed() -> None:
    one = operator_record("add", seconds=1e-3, work=1e6, size="medium")
    view = [operator_record("reshape", seconds=1e-6, work=0.0, size=size) for size in ("small", "medium")]
    bare = [operator_record("sort", seconds=1e-6, size=size) for size in ("small", "medium")]
    other_unit = operator_record("add", seconds=1e-2, work=1e9, unit="FLOP", size="large")
    failed = replace(one, status="failed", reason="died", launches=())
    assert fits([one, *view, *bare, other_unit, failed]) == []
    assert fit_table([one]) == (fit_table([])[0], [])


def test_the_table_reads_well() -> None:
    records = [
        operator_record("add", seconds=2e-6 + work * 1e-10, work=work, size=size, dtype="float32", seed=0)
        for size, work in (("small", 5e4), ("medium", 1.2e7))
    ]
    columns, rows = fit_table(records)
    assert [column.name for column in columns] == [
        "operator",
        "overhead",
        "cost",
        "rate",
        "overhead = work at",
        "furthest off",
        "sizes",
    ]
    assert rows == [["add", "2.00 µs", "100 ps/B", "10.0 GB/s", "19.5 KiB", "", "small, medium"]]

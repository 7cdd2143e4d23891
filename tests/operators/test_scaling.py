"""Tests of the linear fit of time over work: known overheads and costs are recovered, and poor fits are reported."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.operators.scaling import ScalingFit, SizePoint, build_fit_table, fit_line, fit_records
from tests.operators.synthetic import make_operator_record

works = st.lists(st.floats(1e2, 1e10), min_size=2, max_size=5, unique=True).filter(lambda w: max(w) > 10 * min(w))


@given(works, st.floats(1e-7, 1e-4), st.floats(1e-12, 1e-8))
@settings(max_examples=100, deadline=None)
def test_fit_recovers_an_exact_line(works: list[float], overhead: float, cost: float) -> None:
    sizes = [SizePoint(name=str(work), work=work, seconds=overhead + work * cost) for work in works]
    actual = fit_line(sizes)
    assert min(actual) >= 0
    for size in sizes:
        assert actual[0] + size.work * actual[1] == pytest.approx(size.seconds, rel=1e-6)


def test_fit_error_is_at_most_the_noise() -> None:
    rng = random.Random(4)
    for _ in range(50):
        overhead, cost = 10 ** rng.uniform(-6, -5), 10 ** rng.uniform(-11, -10)
        works = (overhead / cost / 30, overhead / cost, 30 * overhead / cost)
        seconds = [(overhead + work * cost) * rng.gauss(1, 0.01) for work in works]
        sizes = [SizePoint(name="", work=work, seconds=time) for work, time in zip(works, seconds, strict=True)]
        actual = fit_line(sizes)
        assert actual == (pytest.approx(overhead, rel=0.08), pytest.approx(cost, rel=0.08))


def test_uncertain_times_have_less_weight() -> None:
    line = [SizePoint(name="", work=work, seconds=1e-6 + work * 1e-10) for work in (1e3, 1e5, 1e7)]
    off = SizePoint(name="", work=1e6, seconds=2 * (1e-6 + 1e6 * 1e-10))
    sure, unsure = (fit_line([*line, replace(off, error=error)])[1] for error in (0.01, 1.0))
    assert abs(unsure - 1e-10) < abs(sure - 1e-10) / 5


@given(st.lists(st.tuples(st.floats(1e2, 1e10), st.floats(1e-7, 1.0), st.floats(0.01, 0.1)), min_size=2, max_size=5))
@settings(max_examples=60, deadline=None)
def test_fit_is_optimal(points: list[tuple[float, float, float]]) -> None:
    sizes = [SizePoint(name="", work=work, seconds=seconds, error=error) for work, seconds, error in points]

    def loss(overhead: float, cost: float) -> float:
        return sum((((overhead + s.work * cost) / s.seconds - 1) / s.error) ** 2 for s in sizes)

    overhead, cost = fit_line(sizes)
    best = loss(overhead, cost)
    for one, other in itertools.product((0.9, 0.999, 1.0, 1.001, 1.1), repeat=2):
        assert loss(overhead * one, cost * other) >= best * (1 - 1e-9) - 1e-9
    assert loss(overhead + min(s.seconds for s in sizes) / 100, cost) >= best * (1 - 1e-9) - 1e-9


def test_a_size_beyond_the_caches_does_not_hide_the_overhead() -> None:
    records = [
        make_operator_record("add", seconds=seconds, work=work, size=size)
        for size, work, seconds in (("small", 4.9e4, 2.2e-6), ("medium", 1.3e7, 2.3e-4), ("large", 2e8, 3.3e-2))
    ]
    (fit,) = fit_records(records)
    assert fit.overhead == pytest.approx(1.2e-6, rel=0.2)
    size, ratio = fit.largest_residual
    assert size.name == "large"
    assert ratio > 5


def test_overhead_and_cost_are_not_negative() -> None:
    caches = [SizePoint(name="", work=1e3, seconds=1e-7), SizePoint(name="", work=1e6, seconds=1e-3)]
    assert fit_line(caches)[0] == 0
    flat = [SizePoint(name="", work=1e3, seconds=2e-6), SizePoint(name="", work=1e6, seconds=1e-6)]
    assert fit_line(flat)[1] == 0


def test_break_even_work() -> None:
    case = make_operator_record("add", seconds=1.0).case
    fit = ScalingFit(
        case=case, unit="B", overhead=2e-6, cost=1e-10, sizes=(SizePoint(name="s", work=1e4, seconds=3e-6),)
    )
    assert fit.break_even_work == pytest.approx(2e4)
    assert fit.rate == pytest.approx(1e10)
    assert fit.largest_residual == (fit.sizes[0], pytest.approx(1))
    assert replace(fit, cost=0.0).break_even_work is None


def test_every_backend_pass_and_dtype_is_fitted_separately() -> None:
    records = [
        make_operator_record(
            "add", seconds=overhead + work * 1e-10, work=work, backend=backend, size=size, **{"pass": which}
        )
        for backend, overhead in (("torch", 1e-6), ("jax", 5e-6))
        for which in ("forward", "backward")
        for size, work in (("small", 1e4), ("medium", 1e7), ("large", 1e9))
    ]
    actual = fit_records(records)
    assert [(f.case.params["backend"], f.case.params["pass"]) for f in actual] == [
        ("torch", "forward"),
        ("torch", "backward"),
        ("jax", "forward"),
        ("jax", "backward"),
    ]
    assert [f.overhead for f in actual] == pytest.approx([1e-6, 1e-6, 5e-6, 5e-6])
    assert all("size" not in f.case.params for f in actual)


def test_fit_requires_three_sizes_with_work() -> None:
    one = make_operator_record("add", seconds=1e-3, work=1e6, size="medium")
    view = [make_operator_record("reshape", seconds=1e-6, work=0.0, size=size) for size in ("small", "medium")]
    bare = [make_operator_record("sort", seconds=1e-6, size=size) for size in ("small", "medium")]
    other_unit = make_operator_record("add", seconds=1e-2, work=1e9, unit="FLOP", size="large")
    small = make_operator_record("add", seconds=1e-5, work=1e4, size="small")
    assert fit_records([small, one]) == []
    failed = replace(one, status="failed", reason="died", launches=())
    assert fit_records([one, *view, *bare, other_unit, failed]) == []
    assert build_fit_table([one]) == (build_fit_table([])[0], [])


def test_fit_table_text() -> None:
    records = [
        make_operator_record("add", seconds=2e-6 + work * 1e-10, work=work, size=size, dtype="float32", seed=0)
        for size, work in (("small", 5e4), ("medium", 1.2e7), ("large", 1.2e9))
    ]
    columns, rows = build_fit_table(records)
    assert [column.title for column in columns] == [
        "operator",
        "overhead",
        "cost",
        "rate",
        "break-even work",
        "largest residual",
        "sizes",
    ]
    assert rows == [["add", "2.00 µs", "100 ps/B", "10.0 GB/s", "19.5 KiB", "", "small, medium, large"]]

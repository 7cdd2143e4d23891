"""Tests of the operators section of the report: few records, grouped records, and parts without data."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from tessera.operators.section.categories import group_records, select_main_backend
from tessera.operators.section.section import build_section
from tessera.report.blocks import Cell, Plot, Section, Table
from tessera.report.page import build_page
from tessera.results.record import Metric
from tests.operators.synthetic import (
    list_operator_names,
    make_full_run,
    make_fused_record,
    make_nights,
    make_operator_record,
    make_operator_records,
    make_run_view,
)


@pytest.fixture(autouse=True)
def same_noise() -> None:
    """Seed the random module, so that every test sees the same noise."""
    random.seed(11)


def find_blocks(block: Section, kind: type) -> list:  # type: ignore[type-arg]
    inside = [b for part in block.blocks if isinstance(part, Section) for b in find_blocks(part, kind)]
    return [part for part in block.blocks if isinstance(part, kind)] + inside


def list_parts(whole: Section) -> list[str]:
    return [block.title for block in whole.blocks if isinstance(block, Section)]


def find_part(whole: Section, title: str) -> Section:
    return next(block for block in whole.blocks if isinstance(block, Section) and block.title == title)


def find_table(whole: Section, caption: str) -> Table:
    return next(t for t in find_blocks(whole, Table) if caption in t.caption)


def get_text(cell: Cell | str) -> str:
    return cell.text if isinstance(cell, Cell) else cell


def test_a_dozen_records_are_shown_one_by_one() -> None:
    whole = build_section([make_run_view("r", make_operator_records(["add", "matmul"], launches=3))])
    assert list_parts(whole) == ["Overhead and cost", "All records"]
    captions = " ".join(plot.caption for plot in find_blocks(whole, Plot))
    for words in ("median of each case", "GB/s", "Each launch", "Time over work"):
        assert words in captions
    assert len(find_table(whole, "Every record").rows) == 12


def test_many_records_are_grouped_and_only_the_table_lists_all() -> None:
    view = make_full_run()
    whole = build_section([view])
    assert len(view.records) >= 1600
    assert list_parts(whole) == ["By category", "Overhead and cost", "Fused against unfused", "All records"]
    for plot in find_blocks(whole, Plot):
        rows = plot.figure["layout"].get("yaxis", {}).get("categoryarray", [])
        assert len(rows) <= 40, plot.caption
        assert plot.figure["layout"]["height"] < 2000, plot.caption
    assert len(find_table(whole, "Every record").rows) == len(view.records)
    assert len(find_table(whole, "slowest").rows) == 20


def test_categories_match_the_catalogue_and_count_only_the_main_backend() -> None:
    records = make_operator_records(["add", "matmul", "unheard_of"], backends=("jax", "torch"), sizes=("small",))
    groups = group_records(select_main_backend(records))
    assert list(groups) == ["arithmetic", "gemm", "other"]
    assert all(record.case.params["backend"] == "torch" for own in groups.values() for record in own)
    assert select_main_backend([]) == []


def test_bars_show_the_median_share_of_a_category() -> None:
    shares = [random.uniform(0, 1) for _ in range(41)]
    records = [
        make_operator_record("add", seconds=1e-3, share=share, backend="torch", n=n) for n, share in enumerate(shares)
    ]
    (plot,) = find_blocks(find_part(build_section([make_run_view("r", records)]), "By category"), Plot)
    (bars,) = plot.figure["data"]
    assert bars["y"] == ["arithmetic"]
    assert bars["x"] == [pytest.approx(sorted(shares)[20])]


def test_uncalibrated_machine_is_reported() -> None:
    records = [make_operator_record("add", seconds=1e-3, share=None, backend="torch", n=n) for n in range(41)]
    whole = find_part(build_section([make_run_view("r", records)]), "By category")
    assert find_blocks(whole, Plot) == []
    assert "tessera doctor --calibrate" in whole.blocks[0].text  # type: ignore[union-attr]


def test_backends_are_compared_with_torch_on_the_same_inputs() -> None:
    def timed(name: str, backend: str, seconds: float, size: str) -> object:
        return make_operator_record(name, seconds=seconds, backend=backend, size=size)

    records = [
        timed("add", "numpy", 2e-3, "small"),
        timed("add", "torch", 1e-3, "small"),
        timed("add", "numpy", 8e-3, "medium"),
        timed("add", "torch", 1e-3, "medium"),
        timed("mul", "jax", 1e-3, "small"),
        timed("sub", "torch", 1e-3, "small"),
    ]
    whole = find_part(build_section([make_run_view("r", records)]), "Backends side by side")  # type: ignore[arg-type]
    summary = find_table(whole, "shares with torch")
    assert [[get_text(cell) for cell in row] for row in summary.rows] == [["numpy", "2", "4.00x", "0", "2"]]
    (plot,) = find_blocks(whole, Plot)
    dots = {trace["name"]: trace for trace in plot.figure["data"]}
    assert (dots["numpy"]["y"], dots["numpy"]["x"]) == (["add"], [pytest.approx(4.0)])
    assert [get_text(row[-1]) for row in find_table(whole, "several backends").rows] == ["torch", "torch"]


def test_ratio_plot_shows_the_operators_that_differ_most() -> None:
    records = make_operator_records(
        list_operator_names(60), backends=("torch", "jax", "numpy"), sizes=("small",), passes=("forward",)
    )
    far = make_operator_record("far_off", seconds=1.0, backend="jax", size="small")
    near = make_operator_record("far_off", seconds=1e-6, backend="torch", size="small")
    (plot,) = find_blocks(
        find_part(build_section([make_run_view("r", [*records, far, near])]), "Backends side by side"), Plot
    )
    rows = plot.figure["layout"]["yaxis"]["categoryarray"]
    assert len(rows) == 20
    assert rows[-1] == "far_off"


def test_fused_section_shows_the_allocator_share() -> None:
    records = [
        make_fused_record("conv_relu", seconds=1e-3, gain=2.0, kept=1.25, fusion="library"),
        make_fused_record("conv_bn", seconds=1e-3, gain=0.9, kept=1.0, fusion="compile"),
    ]
    whole = find_part(build_section([make_run_view("r", records)]), "Fused against unfused")
    rows = [[get_text(cell) for cell in row] for row in find_table(whole, "Every fusion").rows]
    assert rows[0][1:] == ["2.00 ms", "1.60 ms", "1.00 ms", "2.00x", "1.94 to 2.06", "30.0%"]
    assert rows[1][4:] == ["0.90x", "0.87 to 0.93", ""]
    (plot,) = find_blocks(whole, Plot)
    kept, fused = plot.figure["data"]
    assert kept["x"] == pytest.approx([1.25, 1.0])
    assert fused["x"] == pytest.approx([2.0, 0.9])


def test_gain_without_an_interval_is_not_marked() -> None:
    record = make_fused_record("conv_relu", seconds=1e-3, gain=2.0, kept=1.25, fusion="library")
    unknown = {**record.metrics, "gain_low": Metric(0.0), "gain_high": Metric(math.inf)}
    whole = find_part(build_section([make_run_view("r", [replace(record, metrics=unknown)])]), "Fused against unfused")
    (row,) = find_table(whole, "Every fusion").rows
    assert [get_text(cell) for cell in row][4:6] == ["2.00x", ""]
    assert row[4].tone == "muted"  # type: ignore[union-attr]
    (plot,) = find_blocks(whole, Plot)
    assert plot.figure["data"][1]["error_x"]["array"] == [0.0]


def test_more_than_two_runs_are_shown_as_history() -> None:
    runs = make_nights(12, ["add", "matmul"], slower="matmul", since=8)
    whole = build_section(runs)
    assert "History" in list_parts(whole)
    changes = find_table(find_part(whole, "History"), "Changes")
    assert {(get_text(row[0]).split()[0], get_text(row[3])) for row in changes.rows} == {("matmul", "night-08")}
    assert len(find_table(whole, "Every record").rows) == len(runs[-1].records)
    assert "History" not in list_parts(build_section(runs[:2]))
    early = find_part(build_section(runs[:4]), "History")
    assert "It takes 8 runs" in early.intro


def test_records_without_metrics_do_not_break_any_section() -> None:
    view = make_full_run(count=20)
    broken = [replace(record, status="failed", reason="died", launches=(), metrics={}) for record in view.records]
    whole = build_section([make_run_view("broken", broken)])
    assert list_parts(whole) == ["By category", "All records"]
    assert build_section([make_run_view("empty", [])]).title == "Operators"
    mixed = [make_run_view(f"r{n}", [*view.records[:30], *broken[30:]], f"2026-03-{n + 1:02}") for n in range(7)]
    assert "History" in list_parts(build_section(mixed))


def test_report_of_the_whole_catalogue_stays_small() -> None:
    text = build_page([make_full_run()], {"ops": build_section})
    plotly = len(text.partition('id="plotly">')[2])
    assert len(text) - plotly < 6_000_000

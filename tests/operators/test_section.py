"""The operators' section: small for few records, grouped for many, each part only where it has something to say."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from tessera.operators.section.categories import by_category, main_backend
from tessera.operators.section.section import section
from tessera.report.blocks import Cell, Plot, Section, Table
from tessera.report.page import page
from tessera.results.record import Metric
from tests.operators.invented import full, fused_record, names, nights, operator_record, operator_records, run


@pytest.fixture(autouse=True)
def same_noise() -> None:
    """What is found in noise depends on it: each test gets the same."""
    random.seed(11)


def found(block: Section, kind: type) -> list:  # type: ignore[type-arg]
    inside = [b for part in block.blocks if isinstance(part, Section) for b in found(part, kind)]
    return [part for part in block.blocks if isinstance(part, kind)] + inside


def parts(whole: Section) -> list[str]:
    return [block.title for block in whole.blocks if isinstance(block, Section)]


def part(whole: Section, title: str) -> Section:
    return next(block for block in whole.blocks if isinstance(block, Section) and block.title == title)


def table(whole: Section, caption: str) -> Table:
    return next(t for t in found(whole, Table) if caption in t.caption)


def text(cell: Cell | str) -> str:
    return cell.text if isinstance(cell, Cell) else cell


def test_a_dozen_records_are_shown_one_by_one() -> None:
    whole = section([run("r", operator_records(["add", "matmul", "conv2d"], launches=3))])
    assert parts(whole) == ["Overhead and cost", "All records"]
    captions = " ".join(plot.caption for plot in found(whole, Plot))
    for words in ("median of each case", "GB/s", "Every launch", "Time over work"):
        assert words in captions
    assert len(table(whole, "Every record").rows) == 12


def test_many_records_are_grouped_and_nothing_has_a_row_for_each_but_the_table() -> None:
    view = full()
    whole = section([view])
    assert len(view.records) >= 1600
    assert parts(whole) == ["By category", "Overhead and cost", "Fused against unfused", "All records"]
    for plot in found(whole, Plot):
        rows = plot.figure["layout"].get("yaxis", {}).get("categoryarray", [])
        assert len(rows) <= 40, plot.caption
        assert plot.figure["layout"]["height"] < 2000, plot.caption
    assert len(table(whole, "Every record").rows) == len(view.records)
    assert len(table(whole, "slowest").rows) == 20


def test_categories_are_those_of_the_catalogue_and_count_the_main_backend_alone() -> None:
    records = operator_records(["add", "matmul", "unheard_of"], backends=("jax", "torch"), sizes=("small",))
    groups = by_category(main_backend(records))
    assert list(groups) == ["arithmetic", "gemm", "other"]
    assert all(record.case.params["backend"] == "torch" for own in groups.values() for record in own)
    assert main_backend([]) == []


def test_bars_are_the_middle_share_of_a_category() -> None:
    shares = [random.uniform(0, 1) for _ in range(41)]
    records = [
        operator_record("add", seconds=1e-3, share=share, backend="torch", n=n) for n, share in enumerate(shares)
    ]
    (plot,) = found(part(section([run("r", records)]), "By category"), Plot)
    (bars,) = plot.figure["data"]
    assert bars["y"] == ["arithmetic"]
    assert bars["x"] == [pytest.approx(sorted(shares)[20])]


def test_an_uncalibrated_machine_is_said_to_be_one() -> None:
    records = [operator_record("add", seconds=1e-3, share=None, backend="torch", n=n) for n in range(41)]
    whole = part(section([run("r", records)]), "By category")
    assert found(whole, Plot) == []
    assert "tessera doctor --calibrate" in whole.blocks[0].text  # type: ignore[union-attr]


def test_backends_are_held_against_torch_on_the_same_inputs() -> None:
    def timed(name: str, backend: str, seconds: float, size: str) -> object:
        return operator_record(name, seconds=seconds, backend=backend, size=size)

    records = [
        timed("add", "numpy", 2e-3, "small"),
        timed("add", "torch", 1e-3, "small"),
        timed("add", "numpy", 8e-3, "medium"),
        timed("add", "torch", 1e-3, "medium"),
        timed("mul", "jax", 1e-3, "small"),
        timed("sub", "torch", 1e-3, "small"),
    ]
    whole = part(section([run("r", records)]), "Backends side by side")  # type: ignore[arg-type]
    summary = table(whole, "shares with torch")
    assert [[text(cell) for cell in row] for row in summary.rows] == [["numpy", "2", "4.00x", "0", "2"]]
    (plot,) = found(whole, Plot)
    dots = {trace["name"]: trace for trace in plot.figure["data"]}
    assert (dots["numpy"]["y"], dots["numpy"]["x"]) == (["add"], [pytest.approx(4.0)])
    assert [text(row[-1]) for row in table(whole, "several backends").rows] == ["torch", "torch"]


def test_of_many_backends_ratios_the_plot_shows_those_that_differ_most() -> None:
    records = operator_records(names(60), backends=("torch", "jax", "numpy"), sizes=("small",), passes=("forward",))
    far = operator_record("far_off", seconds=1.0, backend="jax", size="small")
    near = operator_record("far_off", seconds=1e-6, backend="torch", size="small")
    (plot,) = found(part(section([run("r", [*records, far, near])]), "Backends side by side"), Plot)
    rows = plot.figure["layout"]["yaxis"]["categoryarray"]
    assert len(rows) == 20
    assert rows[-1] == "far_off"


def test_fused_operators_show_the_allocators_part() -> None:
    records = [
        fused_record("conv_relu", seconds=1e-3, gain=2.0, kept=1.25, fusion="library"),
        fused_record("conv_bn", seconds=1e-3, gain=0.9, kept=1.0, fusion="compile"),
    ]
    whole = part(section([run("r", records)]), "Fused against unfused")
    rows = [[text(cell) for cell in row] for row in table(whole, "Every fusion").rows]
    assert rows[0][1:] == ["2.00 ms", "1.60 ms", "1.00 ms", "2.00x", "1.94 to 2.06", "30.0%"]
    assert rows[1][4:] == ["0.90x", "0.87 to 0.93", ""]
    (plot,) = found(whole, Plot)
    kept, fused = plot.figure["data"]
    assert kept["x"] == pytest.approx([1.25, 1.0])
    assert fused["x"] == pytest.approx([2.0, 0.9])


def test_a_gain_without_an_interval_is_no_verdict() -> None:
    record = fused_record("conv_relu", seconds=1e-3, gain=2.0, kept=1.25, fusion="library")
    unknown = {**record.metrics, "gain_low": Metric(0.0), "gain_high": Metric(math.inf)}
    whole = part(section([run("r", [replace(record, metrics=unknown)])]), "Fused against unfused")
    (row,) = table(whole, "Every fusion").rows
    assert [text(cell) for cell in row][4:6] == ["2.00x", ""]
    assert row[4].tone == "muted"  # type: ignore[union-attr]
    (plot,) = found(whole, Plot)
    assert plot.figure["data"][1]["error_x"]["array"] == [0.0]


def test_more_than_two_runs_are_a_history_with_its_changes() -> None:
    runs = nights(12, ["add", "matmul"], slower="matmul", since=8)
    whole = section(runs)
    assert "History" in parts(whole)
    changes = table(part(whole, "History"), "Changes")
    assert {(text(row[0]).partition("[")[0], text(row[3])) for row in changes.rows} == {("matmul", "night-08")}
    assert len(table(whole, "Every record").rows) == len(runs[-1].records)
    assert "History" not in parts(section(runs[:2]))
    early = part(section(runs[:4]), "History")
    assert "It takes 8 runs" in early.intro


def test_records_without_a_figure_do_not_stop_any_part() -> None:
    view = full(count=20)
    broken = [replace(record, status="failed", reason="died", launches=(), metrics={}) for record in view.records]
    whole = section([run("broken", broken)])
    assert parts(whole) == ["By category", "All records"]
    assert section([run("empty", [])]).title == "Operators"
    mixed = [run(f"r{n}", [*view.records[:30], *broken[30:]], f"2026-03-{n + 1:02}") for n in range(7)]
    assert "History" in parts(section(mixed))


def test_the_page_of_the_whole_catalogue_stays_small() -> None:
    text = page([full()], {"ops": section})
    plotly = len(text.partition('id="plotly">')[2])
    assert len(text) - plotly < 6_000_000

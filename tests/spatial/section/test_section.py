"""Tests of the halo report section: each part appears only if there are records for this part."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tessera.measure.samples import Samples
from tessera.report.blocks import Cards, Cell, Picture, Plot, Section, Table
from tessera.report.page import build_page
from tessera.report.runs import RunView
from tessera.results.record import Metric, Record
from tessera.spatial.cases import cases
from tessera.spatial.section.section import section

SPLITS = (("horizontal", 4e-3), ("square", 2e-3))
ENVIRONMENT = {"cpu": "AMD EPYC 9B14", "cores": 2, "fingerprint": "3f9ab2c41d77"}


def make_record(name: str, seconds: float, metrics: dict[str, float], predicted: float | None = None, **axes) -> Record:
    (case,) = cases([name], **{axis: [value] for axis, value in axes.items()})
    samples = Samples(values=tuple(seconds * random.gauss(1, 0.01) for _ in range(20)))
    units = {"bytes": "B", "bandwidth": "GB/s", "hidden": "", "efficiency": "", "neighbours": ""}
    figures = {"time": seconds, "p99": 1.2 * seconds, **metrics}
    return Record(
        case=case,
        launches=(samples,),
        metrics={key: Metric(value, units.get(key, "s")) for key, value in figures.items()},
        predicted={} if predicted is None else {"time": Metric(predicted, "s"), "copy": Metric(predicted / 3, "s")},
        environment=ENVIRONMENT,
        chosen={"transport": "gloo" if axes.get("transport") == "gloo" else "shared", "layout": "channels_last"},
        seconds=1.0,
    )


def make_exchange(size: int, transport: str = "auto", **axes) -> Record:
    moved = size * 64
    figures = {"bytes": moved, "neighbours": 1, "copy": moved / 3e10, "bandwidth": 9.0}
    split = {"num_spatial_parts": 2, "slice_method": "vertical"} | axes
    took = 1e-5 + moved / 1e10
    return make_record(
        "exchange", took, figures, predicted=took, image_size=size, in_channels=16, transport=transport, **split
    )


def make_compute(overlap: str, parts: int = 2, **axes) -> Record:
    took = {"none": 1.1e-2, "split": 1.08e-2, "recompute": 1.01e-2}[overlap] / parts
    figures = {
        "exchange": 1e-3 / parts,
        "convolution": 1e-2 / parts,
        "uncut": 1e-2 / parts,
        "efficiency": 0.9,
    }
    if overlap != "none":
        figures |= {"sequential": 1.1e-2 / parts, "hidden": (1.1e-2 / parts - took) / (1e-3 / parts)}
    split = {"num_spatial_parts": parts, "slice_method": "vertical"} | axes
    return make_record("compute", took, figures, predicted=0.8 * took, overlap=overlap, image_size=64, **split)


def make_validation(status: str = "ok") -> Record:
    (case,) = cases(["validate"])
    errors = {f"error_{name}": Metric(1e-7) for name in ("output", "input_gradient", "weight_gradient")}
    wrong = 0 if status == "ok" else 1
    metrics = {**errors, "error_pixels": Metric(0.0), "tolerance": Metric(1e-4), "failed_ranks": Metric(wrong)}
    reason = "" if status == "ok" else "Validation failed for rank: 1: received pixels"
    return Record(case=case, status=status, reason=reason, metrics=metrics, environment=ENVIRONMENT)


def make_run_view(records, name: str = "r") -> RunView:
    return RunView(name=name, created="2026-03-01T12:00:00+00:00", command="tessera suite quick", records=records)


def make_all_records() -> list[Record]:
    exchanges = [make_exchange(size, transport) for size in (64, 256, 1024) for transport in ("auto", "gloo")]
    squares = [make_exchange(64, num_spatial_parts=4, slice_method="square")]
    computed = [make_compute(overlap, parts) for parts in (1, 2, 4) for overlap in ("none", "split", "recompute")]
    return [*exchanges, *squares, *computed, make_validation()]


def find_blocks(block: Section, kind: type) -> list:  # type: ignore[type-arg]
    """Return all blocks of a type, including blocks of nested sections."""
    inside = [b for part in block.blocks if isinstance(part, Section) for b in find_blocks(part, kind)]
    return [part for part in block.blocks if isinstance(part, kind)] + inside


def get_parts(whole: Section) -> dict[str, Section]:
    return {block.title: block for block in whole.blocks if isinstance(block, Section)}


def read_text(cell: Cell | str) -> str:
    return cell.text if isinstance(cell, Cell) else cell


def test_the_section_has_all_parts_in_order() -> None:
    whole = section([make_run_view(make_all_records())])
    assert list(get_parts(whole)) == [
        "Exchange",
        "Convolution with its exchange",
        "Scaling",
        "Exactness",
        "A plan",
        "All records",
    ]
    assert len(find_blocks(get_parts(whole)["All records"], Table)[0].rows) == len(make_all_records())
    (cards,) = find_blocks(whole, Cards)
    assert {card.label: card.figure for card in cards.cards}["Exact"] == "1"


def test_exchanges_are_shown_with_the_time_of_a_copy() -> None:
    part = get_parts(section([make_run_view(make_all_records())]))["Exchange"]
    (plot,) = find_blocks(part, Plot)
    traces = {trace["name"]: trace for trace in plot.figure["data"]}
    assert set(traces) == {
        "shared, 2 ranks vertical",
        "gloo, 2 ranks vertical",
        "shared, 4 ranks square",
        "a plain copy, measured",
        "a plain copy, calibrated",
    }
    line = traces["shared, 2 ranks vertical"]
    assert line["x"] == sorted(line["x"])
    assert traces["a plain copy, measured"]["y"] == pytest.approx([x / 3e10 for x in line["x"]])
    (table,) = find_blocks(part, Table)
    assert read_text(table.rows[0][8]).endswith("x")


def test_hidden_shares_are_bars_per_overlap() -> None:
    part = get_parts(section([make_run_view(make_all_records())]))["Convolution with its exchange"]
    (plot,) = find_blocks(part, Plot)
    bars = {trace["name"]: trace for trace in plot.figure["data"]}
    assert set(bars) == {"split", "recompute"}
    assert bars["recompute"]["x"] == pytest.approx([90.0] * 3)
    assert bars["split"]["x"] == pytest.approx([20.0] * 3)
    assert len(set(bars["split"]["y"])) == 3


def test_a_hidden_part_below_the_noise_has_no_bar_and_says_so() -> None:
    planted = make_compute("split")
    bounds = {"hidden": Metric(-35.7), "hidden_low": Metric(-39.1), "hidden_high": Metric(-32.3)}
    unresolved = replace(planted, metrics={**planted.metrics, **bounds})
    part = get_parts(section([make_run_view([make_compute("recompute"), unresolved])]))["Convolution with its exchange"]
    (plot,) = find_blocks(part, Plot)
    assert [trace["name"] for trace in plot.figure["data"]] == ["recompute"]
    (table,) = find_blocks(part, Table)
    assert [read_text(row[9]) for row in table.rows] == ["90.0%", "n/a (below noise)"]


def test_scaling_needs_several_numbers_of_ranks_and_shows_the_prediction() -> None:
    part = get_parts(section([make_run_view(make_all_records())]))["Scaling"]
    (plot,) = find_blocks(part, Plot)
    assert plot.figure["data"][0]["x"] == [1, 2, 4]
    assert any(trace["name"].endswith("predicted") for trace in plot.figure["data"])
    (table,) = find_blocks(part, Table)
    assert [read_text(row[4]) for row in table.rows[:3]] == ["1.00x", "2.00x", "4.00x"]
    assert read_text(table.rows[0][-1]) == "+25.0%"
    assert "Scaling" not in get_parts(section([make_run_view([make_compute("none"), make_compute("split")])]))


def test_every_split_has_a_row_and_the_plot_shows_the_fastest() -> None:
    slow, fast = (
        replace(make_compute("none", 4, slice_method=how), metrics={"time": Metric(time, "s")}) for how, time in SPLITS
    )
    part = get_parts(section([make_run_view([make_compute("none", 1), fast, slow])]))["Scaling"]
    (table,) = find_blocks(part, Table)
    assert [(read_text(row[1]), read_text(row[2])) for row in table.rows] == [
        ("1", "vertical"),
        ("4", "horizontal"),
        ("4", "square"),
    ]
    (plot,) = find_blocks(part, Plot)
    measured = plot.figure["data"][0]
    assert (measured["x"], measured["y"][1]) == ([1, 4], 2e-3)
    assert "Scaling" not in get_parts(section([make_run_view([fast, slow])])), "one number of ranks shows no scaling"


def test_the_picture_shows_the_most_square_plan() -> None:
    (picture,) = find_blocks(section([make_run_view(make_all_records())]), Picture)
    assert "64x64 image over 4 workers" in picture.alt
    assert "A plan" not in get_parts(section([make_run_view([make_compute("none", 1)])]))


def test_a_failed_validation_is_highlighted() -> None:
    whole = section([make_run_view([make_validation("failed")])])
    (cards,) = find_blocks(whole, Cards)
    assert [(card.figure, card.tone) for card in cards.cards] == [("0", "bad")]
    (row,) = find_blocks(get_parts(whole)["Exactness"], Table)[0].rows
    assert read_text(row[-1]) == "failed"
    assert read_text(row[2]) == "0"


def test_records_without_metrics_are_skipped() -> None:
    broken = [
        replace(record, status="failed", reason="died", launches=(), metrics={}, predicted={})
        for record in make_all_records()
    ]
    assert list(get_parts(section([make_run_view(broken)]))) == ["A plan", "All records"]
    assert section([make_run_view([])]).title == "Halo exchange"
    older = replace(make_all_records()[0], case=replace(make_all_records()[0].case, params={"ranks": 2}))
    assert "All records" in get_parts(section([make_run_view([older])]))


def test_the_page_has_all_parts() -> None:
    shown = build_page(
        [make_run_view(make_all_records(), "before"), make_run_view(make_all_records(), "after")], {"halo": section}
    )
    assert "Traffic of the plan" in shown
    assert "the newest is shown: <code>after</code>" in shown

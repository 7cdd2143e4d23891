"""The section of the report: each part where it has something to say, none where it has not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tessera.measure.samples import Samples
from tessera.report.blocks import Cards, Cell, Picture, Plot, Section, Table
from tessera.report.page import page
from tessera.report.runs import RunView
from tessera.results.record import Metric, Record
from tessera.spatial.cases import cases
from tessera.spatial.section.section import section

CUTS = (("horizontal", 4e-3), ("square", 2e-3))
ENVIRONMENT = {"cpu": "AMD EPYC 9B14", "cores": 2, "fingerprint": "3f9ab2c41d77"}


def record(name: str, seconds: float, metrics: dict[str, float], predicted: float | None = None, **axes) -> Record:
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
        conditions={"transport": "gloo" if axes.get("transport") == "gloo" else "shared", "layout": "channels_last"},
        seconds=1.0,
    )


def exchange(size: int, transport: str = "auto", **axes) -> Record:
    moved = size * 64
    figures = {"bytes": moved, "neighbours": 1, "copy": moved / 3e10, "bandwidth": 9.0}
    cut = {"num_spatial_parts": 2, "slice_method": "vertical"} | axes
    took = 1e-5 + moved / 1e10
    return record(
        "exchange", took, figures, predicted=took, image_size=size, in_channels=16, transport=transport, **cut
    )


def compute(overlap: str, parts: int = 2, **axes) -> Record:
    took = {"none": 1.1e-2, "split": 1.08e-2, "recompute": 1.01e-2}[overlap] / parts
    figures = {"exchange": 1e-3 / parts, "convolution": 1e-2 / parts, "uncut": 1e-2 / parts, "efficiency": 0.9}
    if overlap != "none":
        figures |= {"sequential": 1.1e-2 / parts, "hidden": (1.1e-2 / parts - took) / (1e-3 / parts)}
    cut = {"num_spatial_parts": parts, "slice_method": "vertical"} | axes
    return record("compute", took, figures, predicted=0.8 * took, overlap=overlap, image_size=64, **cut)


def validation(status: str = "ok") -> Record:
    (case,) = cases(["validate"])
    errors = {f"error_{name}": Metric(1e-7) for name in ("output", "input_gradient", "weight_gradient")}
    wrong = 0 if status == "ok" else 1
    metrics = {**errors, "error_pixels": Metric(0.0), "tolerance": Metric(1e-4), "failed_ranks": Metric(wrong)}
    reason = "" if status == "ok" else "Validation failed for rank: 1: received pixels"
    return Record(case=case, status=status, reason=reason, metrics=metrics, environment=ENVIRONMENT)


def run(records, name: str = "r") -> RunView:
    return RunView(name=name, created="2026-03-01T12:00:00+00:00", command="tessera suite quick", records=records)


def everything() -> list[Record]:
    exchanges = [exchange(size, transport) for size in (64, 256, 1024) for transport in ("auto", "gloo")]
    squares = [exchange(64, num_spatial_parts=4, slice_method="square")]
    computed = [compute(overlap, parts) for parts in (1, 2, 4) for overlap in ("none", "split", "recompute")]
    return [*exchanges, *squares, *computed, validation()]


def found(block: Section, kind: type) -> list:  # type: ignore[type-arg]
    inside = [b for part in block.blocks if isinstance(part, Section) for b in found(part, kind)]
    return [part for part in block.blocks if isinstance(part, kind)] + inside


def parts(whole: Section) -> dict[str, Section]:
    return {block.title: block for block in whole.blocks if isinstance(block, Section)}


def text(cell: Cell | str) -> str:
    return cell.text if isinstance(cell, Cell) else cell


def test_every_part_has_its_place() -> None:
    whole = section([run(everything())])
    assert list(parts(whole)) == [
        "Exchange",
        "Convolution with its exchange",
        "Scaling",
        "Exactness",
        "A plan",
        "All records",
    ]
    assert len(found(parts(whole)["All records"], Table)[0].rows) == len(everything())
    (cards,) = found(whole, Cards)
    assert {card.label: card.figure for card in cards.cards}["Exact"] == "1"


def test_exchanges_stand_beside_the_limit_of_a_copy() -> None:
    part = parts(section([run(everything())]))["Exchange"]
    (plot,) = found(part, Plot)
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
    (table,) = found(part, Table)
    assert text(table.rows[0][8]).endswith("x")


def test_hidden_parts_are_bars_of_each_overlap() -> None:
    part = parts(section([run(everything())]))["Convolution with its exchange"]
    (plot,) = found(part, Plot)
    bars = {trace["name"]: trace for trace in plot.figure["data"]}
    assert set(bars) == {"split", "recompute"}
    assert bars["recompute"]["x"] == pytest.approx([90.0] * 3)
    assert bars["split"]["x"] == pytest.approx([20.0] * 3)
    assert len(set(bars["split"]["y"])) == 3


def test_scaling_needs_several_numbers_of_ranks_and_shows_the_prediction() -> None:
    part = parts(section([run(everything())]))["Scaling"]
    (plot,) = found(part, Plot)
    assert plot.figure["data"][0]["x"] == [1, 2, 4]
    assert any(trace["name"].endswith("predicted") for trace in plot.figure["data"])
    (table,) = found(part, Table)
    assert [text(row[4]) for row in table.rows[:3]] == ["1.00x", "2.00x", "4.00x"]
    assert text(table.rows[0][-1]) == "+25.0%"
    assert "Scaling" not in parts(section([run([compute("none"), compute("split")])]))


def test_every_cut_of_a_number_of_ranks_has_its_row_and_the_plot_the_fastest() -> None:
    slow, fast = (
        replace(compute("none", 4, slice_method=how), metrics={"time": Metric(time, "s")}) for how, time in CUTS
    )
    part = parts(section([run([compute("none", 1), fast, slow])]))["Scaling"]
    (table,) = found(part, Table)
    assert [(text(row[1]), text(row[2])) for row in table.rows] == [
        ("1", "vertical"),
        ("4", "horizontal"),
        ("4", "square"),
    ]
    (plot,) = found(part, Plot)
    measured = plot.figure["data"][0]
    assert (measured["x"], measured["y"][1]) == ([1, 4], 2e-3)
    assert "Scaling" not in parts(section([run([fast, slow])])), "one number of ranks shows no scaling"


def test_the_picture_is_of_the_plan_that_shows_most() -> None:
    (picture,) = found(section([run(everything())]), Picture)
    assert "64x64 image over 4 workers" in picture.alt
    assert "A plan" not in parts(section([run([compute("none", 1)])]))


def test_a_failed_validation_stands_out() -> None:
    whole = section([run([validation("failed")])])
    (cards,) = found(whole, Cards)
    assert [(card.figure, card.tone) for card in cards.cards] == [("0", "bad")]
    (row,) = found(parts(whole)["Exactness"], Table)[0].rows
    assert text(row[-1]) == "failed"
    assert text(row[2]) == "0"


def test_records_without_figures_stop_nothing() -> None:
    broken = [
        replace(record, status="failed", reason="died", launches=(), metrics={}, predicted={})
        for record in everything()
    ]
    assert list(parts(section([run(broken)]))) == ["A plan", "All records"]
    assert section([run([])]).title == "Halo exchange"
    older = replace(everything()[0], case=replace(everything()[0].case, params={"ranks": 2}))
    assert "All records" in parts(section([run([older])]))


def test_the_page_holds_it_all() -> None:
    shown = page([run(everything(), "before"), run(everything(), "after")], {"halo": section})
    assert "Who sends what to whom" in shown
    assert "the newest is shown: <code>after</code>" in shown

"""The section of the report: each part where it has something to say, none where it has not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessera.phased.section.section import section
from tessera.report.blocks import Cards, Cell, Picture, Plot, Section, Table
from tessera.report.page import page
from tessera.report.runs import RunView
from tessera.results.record import Record
from tests.phased.records import record


def view(*records: Record) -> RunView:
    return RunView(name="one", created="2026-03-01T12:00:00+00:00", command="tessera phases", records=records)


def part(found: Section, title: str) -> Section:
    (one,) = (block for block in found.blocks if isinstance(block, Section) and block.title == title)
    return one


def titles(found: Section) -> list[str]:
    return [block.title for block in found.blocks if isinstance(block, Section)]


def every_schedule() -> list[Record]:
    return [
        record(schedule=name) for name in ("sequential", "overlapped", "phased", "data-parallel", "sharded", "resident")
    ]


def test_schedules_stand_side_by_side():
    found = section([view(*every_schedule())])
    assert titles(found) == ["Schedules side by side", "Balance of I/O and compute", "A pass", "All records"]
    plot, table = part(found, "Schedules side by side").blocks
    assert isinstance(plot, Plot)
    assert isinstance(table, Table)
    assert len(plot.figure["data"]) == 6
    assert {bar["y"][0] for bar in plot.figure["data"]} == {"chain"}, "one network is one row"
    heads = [column if isinstance(column, str) else column.title for column in table.columns]
    ratio = {row[1]: row[heads.index("Of sequential")] for row in table.rows}
    assert isinstance(ratio["sequential"], Cell)
    assert ratio["sequential"].value == pytest.approx(1)
    assert ratio["overlapped"].value < 1
    assert ratio["resident"].text == "", "there is no sequential one that is in memory"


def test_the_pass_that_is_drawn_is_the_most_even_one_beside_the_sequential():
    even = [record(schedule=name, load=2.0, compute=2.0, dsize=64) for name in ("sequential", "phased")]
    uneven = [record(schedule="phased", load=9.0, compute=1.0, dsize=32)]
    pictures = part(section([view(*uneven, *even)]), "A pass").blocks
    assert all(isinstance(picture, Picture) for picture in pictures)
    assert [picture.alt.partition(",")[0] for picture in pictures] == ["phased", "sequential"]
    assert "4 phases" not in pictures[0].alt
    assert "3 phases in" in pictures[0].alt


def test_the_limits_meet_where_loading_and_computing_balance():
    plot, machines, bounds = part(
        section([view(record(), record(cold=True, load=8.0))]), "Balance of I/O and compute"
    ).blocks
    assert isinstance(plot, Plot)
    lines = [trace for trace in plot.figure["data"] if trace["mode"] == "lines"]
    assert len(lines) == 2
    for line in lines:
        (x0, x1, x2), (y0, y1, y2) = line["x"], line["y"]
        assert y0 / x0 == pytest.approx(y1 / x1)
        assert y1 == y2
        assert x0 < x1 < x2
    assert isinstance(machines, Table)
    assert any("IPU" in str(row[0]) for row in machines.rows)
    assert isinstance(bounds, Table)
    assert [row[3].text for row in bounds.rows] == ["balanced", "bound by I/O"]


def test_without_a_stream_there_is_no_balance_and_no_pass():
    found = section([view(record(schedule="resident"), record(schedule="sharded"))])
    assert titles(found) == ["Schedules side by side", "All records"]


def test_a_run_that_measured_nothing_still_has_a_section():
    broken = replace(record(), status="failed", reason="no disk", launches=(), metrics={}, conditions={})
    found = section([view(broken)])
    assert titles(found) == ["All records"]
    assert section([view()]).blocks == []


def test_key_figures_come_first():
    (cards,) = (block for block in section([view(*every_schedule())]).blocks if isinstance(block, Cards))
    assert [card.label for card in cards.cards] == [
        "Best efficiency",
        "Most hidden",
        "Fastest stream",
        "Least working memory",
    ]
    assert cards.cards[-1].figure == "25.0%"


def test_several_networks_and_runs_make_a_page():
    runs = [view(*every_schedule()), replace(view(*every_schedule(), record("resnet50")), name="two")]
    text = page(runs, {"phases": section})
    assert "Phased execution" in text
    assert "the newest is shown" in text

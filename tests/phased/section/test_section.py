"""Tests of the report section: each part is present only if records have data for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessera.phased.section.section import build_section
from tessera.report.blocks import Cards, Cell, Picture, Plot, Section, Table
from tessera.report.page import build_page
from tessera.report.runs import RunView
from tessera.results.record import Record
from tests.phased.synthetic_records import make_phases_record


def make_run_view(*records: Record) -> RunView:
    return RunView(name="one", created="2026-03-01T12:00:00+00:00", command="tessera phases", records=records)


def find_part(section: Section, title: str) -> Section:
    (part,) = (block for block in section.blocks if isinstance(block, Section) and block.title == title)
    return part


def list_titles(section: Section) -> list[str]:
    return [block.title for block in section.blocks if isinstance(block, Section)]


def build_records() -> list[Record]:
    return [
        make_phases_record(schedule=name)
        for name in ("sequential", "overlapped", "phased", "data-parallel", "sharded", "resident")
    ]


def test_schedules_are_compared_in_one_table():
    section = build_section([make_run_view(*build_records())])
    assert list_titles(section) == ["Schedules side by side", "Balance of I/O and compute", "A pass", "All records"]
    plot, table = find_part(section, "Schedules side by side").blocks
    assert isinstance(plot, Plot)
    assert isinstance(table, Table)
    assert len(plot.figure["data"]) == 6
    assert {bar["y"][0] for bar in plot.figure["data"]} == {"chain"}, "one network is one row"
    heads = [column if isinstance(column, str) else column.title for column in table.columns]
    ratio = {row[1]: row[heads.index("Relative to sequential")] for row in table.rows}
    assert isinstance(ratio["sequential"], Cell)
    assert ratio["sequential"].value == pytest.approx(1)
    assert ratio["overlapped"].value < 1
    assert ratio["resident"].text == "", "there is no sequential case in memory"


def test_the_most_balanced_pass_is_drawn_with_the_sequential_one():
    even = [make_phases_record(schedule=name, load=2.0, compute=2.0, dsize=64) for name in ("sequential", "phased")]
    uneven = [make_phases_record(schedule="phased", load=9.0, compute=1.0, dsize=32)]
    pictures = find_part(build_section([make_run_view(*uneven, *even)]), "A pass").blocks
    assert all(isinstance(picture, Picture) for picture in pictures)
    assert [picture.alt.partition(",")[0] for picture in pictures] == ["phased", "sequential"]
    assert "4 phases" not in pictures[0].alt
    assert "3 phases in" in pictures[0].alt


def test_the_roofline_limits_meet_at_the_balance():
    plot, machines, bounds = find_part(
        build_section([make_run_view(make_phases_record(), make_phases_record(cold=True, load=8.0))]),
        "Balance of I/O and compute",
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
    section = build_section(
        [make_run_view(make_phases_record(schedule="resident"), make_phases_record(schedule="sharded"))]
    )
    assert list_titles(section) == ["Schedules side by side", "All records"]


def test_a_run_that_measured_nothing_still_has_a_section():
    broken = replace(make_phases_record(), status="failed", reason="no disk", launches=(), metrics={}, details={})
    section = build_section([make_run_view(broken)])
    assert list_titles(section) == ["All records"]
    assert build_section([make_run_view()]).blocks == []


def test_key_figures_come_first():
    (cards,) = (block for block in build_section([make_run_view(*build_records())]).blocks if isinstance(block, Cards))
    assert [card.label for card in cards.cards] == [
        "Best efficiency",
        "Most hidden",
        "Fastest stream",
        "Smallest working memory",
    ]
    assert cards.cards[-1].figure == "25.0%"


def test_a_report_of_several_networks_and_runs_is_built():
    runs = [
        make_run_view(*build_records()),
        replace(make_run_view(*build_records(), make_phases_record("resnet50")), name="two"),
    ]
    text = build_page(runs, {"phases": build_section})
    assert "Phased execution" in text
    assert "the newest is shown" in text

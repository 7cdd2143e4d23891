"""The tables of halo records: what each benchmark shows, in every form."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from tessera.cli.halo_tables import halo_table, print_halo
from tessera.report.figures import format_value
from tessera.results.record import Metric
from tessera.results.run import Run
from tessera.spatial.cases import cases
from tests.spatial.section.test_section import compute, exchange, validation


def shown(records, form="markdown") -> list[list[str]]:
    stream = io.StringIO()
    halo_table(records, form, stream)
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


def test_exchanges_show_what_varies_and_stand_beside_a_copy():
    head, *rows = shown([exchange(64), exchange(1024), exchange(64, "gloo")])
    assert head == ["transport", "image size", "time", "±", "predicted", "bytes", "p99", "copy", "rate", "status"]
    assert [row[:2] for row in rows] == [["shared", "64"], ["shared", "1024"], ["gloo", "64"]]
    assert rows[0][5] == "4.00 KiB"
    assert rows[0][-2:] == ["9.00 GB/s", "ok"]


def test_neighbours_are_counted_where_there_are_several():
    several = exchange(64)
    several = replace(several, metrics={**several.metrics, "neighbours": Metric(3)})
    head, one, three = shown([exchange(1024), several])
    assert [row[head.index("neighbours")] for row in (one, three)] == ["1", "3"]


def test_a_transport_that_was_left_to_choose_is_shown_as_chosen():
    stream = io.StringIO()
    halo_table([exchange(64)], "terminal", stream)
    assert "transport shared" in stream.getvalue()
    assert "layout channels_last" in stream.getvalue()


def test_sizes_and_lists_read_as_they_are_typed():
    stream = io.StringIO()
    halo_table([replace(validation(), case=cases(["validate"], image_size=[[37, 61]])[0])], "markdown", stream)
    assert "image size 37x61" in stream.getvalue()
    assert "overlap none,split,recompute" in stream.getvalue()


def test_what_is_hidden_has_an_interval_where_there_is_one():
    known = compute("split")
    metrics = known.metrics
    bounds = {f"hidden_{end}": replace(metrics["hidden"], value=value) for end, value in (("low", 0.1), ("high", 0.3))}
    head, *rows = shown([compute("none"), compute("recompute"), replace(known, metrics={**metrics, **bounds})])
    at = head.index("hidden")
    assert [row[at] for row in rows] == ["", "90%", "20% ± 10%"]
    assert [row[head.index("efficiency")] for row in rows] == ["90%"] * 3


@pytest.mark.parametrize(("backward", "ways"), [(False, 1), (True, 2)])
def test_the_rate_of_a_neighbour_counts_what_goes_back_as_well(backward, ways, capsys):
    record = exchange(64, backward=backward)
    took = record.metrics["time"].value
    print_halo(Run(id=1, name="one"), [record], "terminal", None)
    rows = [line.split() for line in capsys.readouterr().out.partition("per neighbour")[2].splitlines()[4:]]
    # a column of 64 pixels with 16 channels
    rate = format_value(ways * 64 * 16 * 4 / took / 1e9, "GB/s")
    assert [row[-2:] for row in rows if row] == [rate.split()] * 2


@pytest.mark.parametrize("status", ["ok", "failed"])
def test_a_validation_shows_its_errors_and_no_time(status):
    head, row = shown([validation(status)])
    assert "time" not in head
    assert row[head.index("output")] == "1.0e-07"
    assert row[head.index("pixels")] == "0"
    assert row[head.index("allowed")] == "1.0e-04"
    assert row[-1] == status

"""Tests of the tables of halo records: columns of each benchmark, in every output format."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest

from tessera.report.figures import format_value
from tessera.results.metrics import Metric, make_metrics
from tessera.spatial.cases import cases
from tessera.spatial.tables import write_halo, write_halo_table
from tests.spatial.section.test_section import make_compute, make_exchange, make_validation


def read_table(records, form="markdown") -> list[list[str]]:
    """Return the cells of the table of `records` by row, header first."""
    stream = io.StringIO()
    write_halo_table(records, form, stream)
    lines = [line for line in stream.getvalue().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


def test_exchange_tables_show_varying_parameters_and_the_copy_time():
    head, *rows = read_table([make_exchange(64), make_exchange(1024), make_exchange(64, "gloo")])
    assert head == ["transport", "image size", "time", "±", "predicted", "bytes", "p99", "copy", "rate", "status"]
    assert [row[:2] for row in rows] == [["shared", "64"], ["shared", "1024"], ["gloo", "64"]]
    assert rows[0][5] == "4.00 KiB"
    assert rows[0][-2:] == ["9.00 GB/s", "ok"]


def test_neighbours_are_shown_if_a_record_has_several():
    several = make_exchange(64)
    several = replace(several, metrics={**several.metrics, "neighbours": Metric(3)})
    head, single, three = read_table([make_exchange(1024), several])
    assert [row[head.index("neighbours")] for row in (single, three)] == ["1", "3"]


def test_an_automatic_transport_is_shown_by_name():
    stream = io.StringIO()
    write_halo_table([make_exchange(64)], "terminal", stream)
    assert "transport shared" in stream.getvalue()
    assert "layout channels_last" in stream.getvalue()


def test_sizes_and_lists_are_shown_as_typed():
    stream = io.StringIO()
    write_halo_table(
        [replace(make_validation(), case=cases(["validate"], image_size=[[37, 61]])[0])], "markdown", stream
    )
    assert "image size 37x61" in stream.getvalue()
    assert "overlap none,split,recompute" in stream.getvalue()


def test_hidden_shares_are_shown_with_their_interval():
    known = make_compute("split")
    metrics = known.metrics
    bounds = {f"hidden_{end}": replace(metrics["hidden"], value=value) for end, value in (("low", 0.1), ("high", 0.3))}
    head, *rows = read_table(
        [make_compute("none"), make_compute("recompute"), replace(known, metrics={**metrics, **bounds})]
    )
    at = head.index("hidden")
    assert [row[at] for row in rows] == ["", "90%", "20% ± 10%"]
    assert [row[head.index("efficiency")] for row in rows] == ["90%"] * 3


@pytest.mark.parametrize(
    ("low", "high", "shown_as"),
    [
        (0.1, 0.3, "20% ± 10%"),
        (-0.29, 0.69, "20% ± 49%"),
        (-0.31, 0.71, "n/a (below noise)"),
        (-39.0, -32.12, "n/a (below noise)"),
    ],
)
def test_a_hidden_share_below_the_noise_is_not_applicable(low, high, shown_as):
    known = make_compute("split")
    values = {"hidden": (low + high) / 2, "hidden_low": low, "hidden_high": high}
    head, row = read_table([replace(known, metrics={**known.metrics, **make_metrics(values)})])
    assert row[head.index("hidden")] == shown_as


@pytest.mark.parametrize(("backward", "ways"), [(False, 1), (True, 2)])
def test_the_rate_per_neighbour_counts_both_directions(backward, ways, capsys):
    record = make_exchange(64, backward=backward)
    took = record.metrics["time"].value
    write_halo([record], "terminal", sys.stdout)
    rows = [line.split() for line in capsys.readouterr().out.partition("per neighbour")[2].splitlines()[4:]]
    # a column of 64 pixels with 16 channels
    rate = format_value(ways * 64 * 16 * 4 / took / 1e9, "GB/s")
    assert [row[-2:] for row in rows if row] == [rate.split()] * 2


@pytest.mark.parametrize("status", ["ok", "failed"])
def test_a_validation_shows_its_errors_and_no_time(status):
    head, row = read_table([make_validation(status)])
    assert "time" not in head
    assert row[head.index("output")] == "1.0e-07"
    assert row[head.index("pixels")] == "0"
    assert row[head.index("allowed")] == "1.0e-04"
    assert row[-1] == status

"""Tests of the operator tables: ranking keeps the backends and sizes of a case together; --metric is shown."""

from __future__ import annotations

import csv
import io
import random
import re
from dataclasses import replace

import pytest

from tessera.measure.samples import Samples
from tessera.operators.tables import print_fit, print_side_by_side, rank_records
from tessera.report.record_tables import write_records_table
from tessera.results.record import Metric, Record
from tests.operators.synthetic import make_operator_record, make_operator_records


def parse_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_top_cases_come_first_with_all_their_backends(capsys):
    seconds = {name: random.uniform(1e-6, 1e-3) for name in ("add", "exp", "sum", "sort")}
    records = [
        make_operator_record(name, seconds=value * factor, backend=backend)
        for name, value in seconds.items()
        for backend, factor in (("torch", 1.0), ("numpy", 4.0))
    ]
    print_side_by_side(rank_records(records, "time", 2, "backend"), "time", "csv", None)
    rows = parse_rows(capsys.readouterr().out)
    assert [row["operator"] for row in rows] == sorted(seconds, key=lambda name: -seconds[name])[:2]
    assert {row["numpy gains"] for row in rows} == {"0.25x"}
    assert all(row["torch"] and row["numpy"] for row in rows)


def test_a_refused_backend_is_kept_in_its_row(capsys):
    refused = Record(case=make_operator_record("add", seconds=1, backend="jax").case, status="refused", reason="no")
    records = [make_operator_record("add", seconds=1e-3, backend="torch"), refused]
    print_side_by_side(rank_records(records, "time", 5, "backend"), "time", "csv", None)
    (row,) = parse_rows(capsys.readouterr().out)
    assert (row["jax"], row["jax gains"]) == ("refused", "")


def test_top_fits_keep_all_their_sizes(capsys):
    records = make_operator_records(["add", "exp", "matmul"], passes=("forward",))
    print_fit(rank_records(records, "time", 1, "size"), "csv", None)
    (row,) = parse_rows(capsys.readouterr().out)
    assert row["sizes"] == "small, medium, large"
    slowest = max(records, key=lambda record: record.metrics["time"].value)
    assert row["operator"] == slowest.case.name


def test_times_are_ranked_by_all_calls_of_a_network_and_rates_by_one_call():
    def make_call(name: str, calls: int, seconds: float, gflops: float) -> Record:
        rate = {"gflops": Metric(gflops, "GFLOP/s", "higher")}
        return make_operator_record(name, seconds=seconds, metrics=rate, source="model", calls=calls)

    records = [make_call("often", 50, 1e-3, 10.0), make_call("once", 1, 2e-3, 20.0)]
    for metric, first in (("time", "often"), ("gflops", "once"), ("bandwidth", "often")):
        (record,) = rank_records(records, metric, 1, "backend")
        assert record.case.name == first, metric


@pytest.mark.parametrize(("metric", "columns"), [("page_faults", 1), ("time", 0), ("bandwidth", 0)])
def test_a_chosen_metric_is_shown_once(metric, columns):
    record = make_operator_record("add", seconds=1e-3, metrics={"page_faults": Metric(3.0, "1/call", "lower")})
    stream = io.StringIO()
    write_records_table([record], "csv", stream, metric=metric)
    (header, row) = stream.getvalue().splitlines()
    assert header.split(",").count(metric) == columns + (metric == "time")
    assert ("3" in row.split(",")[-2]) == bool(columns)


@pytest.mark.parametrize(
    ("noise", "factor", "expected"),
    [
        (0.001, 4.0, r"0\.250x \(0\.\d{3}x to 0\.\d{3}x\)"),
        (0.001, 1.0, "same"),
        (3.0, 1.5, "unresolved"),
    ],
)
def test_gains_of_several_launches_have_an_interval(noise, factor, expected, capsys):
    factors = (1.0, 1 + noise, 1 + noise / 2)
    records = [
        replace(
            make_operator_record("add", seconds=1e-3 * scale, backend=backend),
            launches=tuple(Samples(values=(1e-3 * scale * each,) * 5) for each in order),
        )
        for backend, scale, order in (("torch", 1.0, factors), ("numpy", factor, factors[::-1]))
    ]
    print_side_by_side(records, "time", "csv", None)
    (row,) = parse_rows(capsys.readouterr().out)
    assert re.fullmatch(expected, row["numpy gains"]), row

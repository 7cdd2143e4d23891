"""Tables of operators: what is ranked together stays together, and what is asked for is shown."""

from __future__ import annotations

import csv
import io
import random

import pytest

from tessera.cli.ops_tables import print_backends, print_fit, ranked
from tessera.cli.records_table import records_table
from tessera.results.record import Metric, Record
from tests.operators.invented import operator_record, operator_records


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_cases_with_the_most_come_first_and_keep_all_their_backends(capsys):
    seconds = {name: random.uniform(1e-6, 1e-3) for name in ("add", "exp", "sum", "sort")}
    records = [
        operator_record(name, seconds=value * factor, backend=backend)
        for name, value in seconds.items()
        for backend, factor in (("torch", 1.0), ("numpy", 4.0))
    ]
    print_backends(ranked(records, "time", 2, "backend"), "time", "csv", None)
    rows = _rows(capsys.readouterr().out)
    assert [row["operator"] for row in rows] == sorted(seconds, key=lambda name: -seconds[name])[:2]
    assert {row["numpy gains"] for row in rows} == {"0.25x"}
    assert all(row["torch"] and row["numpy"] for row in rows)


def test_a_backend_that_refused_stays_beside_the_others(capsys):
    refused = Record(case=operator_record("add", seconds=1, backend="jax").case, status="refused", reason="no")
    records = [operator_record("add", seconds=1e-3, backend="torch"), refused]
    print_backends(ranked(records, "time", 5, "backend"), "time", "csv", None)
    (row,) = _rows(capsys.readouterr().out)
    assert (row["jax"], row["jax gains"]) == ("refused", "")


def test_fits_with_the_most_keep_all_their_sizes(capsys):
    records = operator_records(["add", "exp", "matmul"], passes=("forward",))
    print_fit(ranked(records, "time", 1, "size"), "csv", None)
    (row,) = _rows(capsys.readouterr().out)
    assert row["sizes"] == "small, medium"
    slowest = max(records, key=lambda record: record.metrics["time"].value)
    assert row["operator"] == slowest.case.name


def test_calls_that_a_network_makes_often_count_as_often_but_not_their_rates():
    def call(name: str, calls: int, seconds: float, gflops: float) -> Record:
        rate = {"gflops": Metric(gflops, "GFLOP/s", "higher")}
        return operator_record(name, seconds=seconds, metrics=rate, source="model", calls=calls)

    records = [call("often", 50, 1e-3, 10.0), call("once", 1, 2e-3, 20.0)]
    for metric, first in (("time", "often"), ("gflops", "once"), ("bandwidth", "often")):
        (record,) = ranked(records, metric, 1, "backend")
        assert record.case.name == first, metric


@pytest.mark.parametrize(("metric", "columns"), [("page_faults", 1), ("time", 0), ("bandwidth", 0)])
def test_a_metric_that_is_asked_for_is_shown_once(metric, columns):
    record = operator_record("add", seconds=1e-3, metrics={"page_faults": Metric(3.0, "1/call", "lower")})
    stream = io.StringIO()
    records_table([record], "csv", stream, metric=metric)
    (plain, told) = stream.getvalue().splitlines()
    assert plain.split(",").count(metric) == columns + (metric == "time")
    assert ("3" in told.split(",")[-2]) == bool(columns)

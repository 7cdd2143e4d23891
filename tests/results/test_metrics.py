"""Tests of the metric registry: every metric is declared once, and fractions below the noise are unresolved."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import tessera
from tessera.report.cells import make_metric_cell
from tessera.report.record_tables import RecordTable, build_table, make_metric_column
from tessera.results.metrics import Metric, Share, find_spec, get_spec, make_metrics, merge_metrics, read_share
from tessera.results.record import Case, Record
from tessera.results.store import Store

SOURCE = Path(tessera.__file__).parent
# Modules that may build a metric without its declaration: the registry, and modules that read stored metrics.
EXCEPTIONS = {"results/metrics.py", "results/record.py", "results/store.py"}
OLD_STORE = Path(__file__).parent / "data" / "store-v1.sqlite"


def test_features_make_metrics_by_name_only() -> None:
    """No feature sets a direction itself; only `work` may set its unit, which depends on the operator."""
    for path in SOURCE.rglob("*.py"):
        name = path.relative_to(SOURCE).as_posix()
        if name in EXCEPTIONS:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Metric":
                assert len(node.args) < 3, f"{name}:{node.lineno} repeats a direction: use make_metrics"


def test_stored_metrics_are_as_declared(tmp_path: Path) -> None:
    """Units and directions in a store written by an older release equal the declarations."""
    path = tmp_path / "old.sqlite"
    path.write_bytes(OLD_STORE.read_bytes())
    with Store(path, create=False) as store:
        records = [record for run in store.list_runs() for record in store.read_records(run)]
    for record in records:
        for name, metric in {**record.predicted, **record.metrics}.items():
            spec = find_spec(name, record.case.feature)
            assert spec is not None, name
            expected = (metric.unit if name == "work" else spec.unit, spec.direction)
            assert (metric.unit, metric.direction) == expected, f"{record.case.key}: {name}"


def test_a_feature_may_declare_a_name_for_itself() -> None:
    assert make_metrics({"moved": 1.0}, "halo")["moved"].direction == ""
    assert make_metrics({"moved": 1.0}, "conv")["moved"].direction == "lower"


def test_undeclared_metrics_cannot_be_made_but_can_be_shown() -> None:
    with pytest.raises(AssertionError, match="not declared"):
        make_metrics({"of_my_own": 1.0})
    record = Record(case=Case(feature="f", name="n"), metrics={"of_my_own": Metric(2048, "B")})
    assert make_metric_cell(record, "of_my_own").text == "2.00 KiB"
    assert get_spec("of_my_own").title == "of my own"


def test_launches_merge_as_declared() -> None:
    launches = [make_metrics({"time": time, "floor": time / 2}) for time in (3.0, 1.0, 8.0)]
    assert {name: m.value for name, m in merge_metrics(launches).items()} == {"time": 3.0, "floor": 0.5}


@pytest.mark.parametrize(
    ("share", "resolved"),
    [
        (Share(0.2, 0.1, 0.3), True),
        (Share(-8.0, -8.2, -7.8), True),  # overlapping costs eight exchanges, with a narrow interval
        (Share(0.5, 0.0, 1.0), False),
        (Share(-35.74, -39.2, -32.3), False),
        (Share(0.9), True),
        (Share(-35.74), False),
    ],
)
def test_a_share_is_resolved_when_its_interval_is_narrower_than_the_whole(share: Share, resolved: bool) -> None:
    assert share.resolved is resolved


def test_shares_are_read_with_their_bounds() -> None:
    metrics = make_metrics({"hidden": 0.5, "hidden_low": 0.25, "hidden_high": 0.75})
    assert read_share(metrics, "hidden") == Share(0.5, 0.25, 0.75)
    assert read_share(make_metrics({"hidden": 0.5}), "hidden") == Share(0.5)
    assert read_share({}, "hidden") is None


def test_columns_without_a_value_are_left_out() -> None:
    record = Record(case=Case(feature="ops", name="add"), metrics=make_metrics({"gflops": 2.0}))
    table = build_table([record], RecordTable(columns=(make_metric_column("gflops"), make_metric_column("roofline"))))
    assert [column.title for column in table.columns if not isinstance(column, str)] == ["compute rate", "status"]

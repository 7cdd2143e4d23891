"""Tests of histories: selection of comparable records, detected changes, and alerts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

from tessera.measure.samples import Samples
from tessera.results.history import History, build_history
from tessera.results.metrics import make_time_metrics
from tessera.results.observation import Reading, read_metric
from tessera.results.record import Case, Metric, Record, merge_launches
from tessera.results.selection import matches_filters
from tessera.results.store import Store

FIRST_RUN_TIME = datetime(2026, 9, 1, tzinfo=UTC)


def format_day(number: int) -> str:
    return (FIRST_RUN_TIME + timedelta(days=number)).isoformat()


def make_reading(
    number: int, value: float | None, *, name: str = "add", direction: str = "lower", **fields: object
) -> Reading:
    metric = None if value is None else Metric(value, "s" if direction == "lower" else "images/s", direction)  # type: ignore[arg-type]
    values = {
        "case": Case(feature="ops", name=name),
        "run": f"night-{number:02}",
        "started": format_day(number),
        "suite": "nightly",
        "status": "ok",
        "version": "1",
        "fingerprint": "f",
        "metric": metric,
    }
    return Reading(**{**values, **fields})  # type: ignore[arg-type]


def make_steady_readings(
    count: int, level: float = 1.0, first: int = 0, seed: int = 0, **fields: object
) -> list[Reading]:
    rng = np.random.default_rng((seed, first))
    return [make_reading(first + n, level * float(1 + rng.normal(0, 0.01)), **fields) for n in range(count)]


def test_a_change_has_its_run_and_both_levels() -> None:
    (series,) = build_history([*make_steady_readings(20), *make_steady_readings(10, 1.2, first=20)], "time").series
    (change,) = series.changes
    assert (change.run, change.started, change.age, change.harmful) == ("night-20", format_day(20), 10, True)
    assert change.change == pytest.approx(0.2, abs=0.02)
    assert [(start, end) for start, end, _ in series.list_levels()] == [(0, 20), (20, 30)]


def test_time_decides_the_order_and_not_the_store() -> None:
    readings = [*make_steady_readings(20), *make_steady_readings(10, 1.2, first=20)]
    mixed = [readings[place] for place in np.random.default_rng(3).permutation(len(readings))]
    assert build_history(mixed, "time").series == build_history(readings, "time").series
    # Start times in another time zone must not change the order.
    east = [
        replace(r, started=datetime.fromisoformat(r.started).astimezone(timezone(timedelta(hours=9))).isoformat())
        for r in readings
    ]
    moved = build_history([*east[:15], *readings[15:]], "time").series[0]
    assert [point.run for point in moved.points] == [reading.run for reading in readings]


def test_a_series_has_only_readings_comparable_with_the_newest() -> None:
    readings = [
        *make_steady_readings(3, fingerprint="other"),
        *make_steady_readings(2, first=3, version="0"),
        make_reading(5, 1.0, status="failed"),
        make_reading(6, 1.0, status="timed_out"),
        make_reading(7, None),
        make_reading(8, float("nan")),
        make_reading(9, 1.0, metric=Metric(1.0, "ms", "lower")),
        *make_steady_readings(8, first=10),
    ]
    history = build_history(readings, "time")
    (series,) = history.series
    assert [point.run for point in series.points] == [f"night-{n}" for n in range(10, 18)]
    why = [apart.why for apart in history.excluded]
    assert why == [*["conditions"] * 3, *["version"] * 2, "failed", "timed out", "metric", "metric", "unit"]


def test_a_case_without_measurements_is_excluded() -> None:
    history = build_history([make_reading(0, None), make_reading(1, 1.0, status="refused")], "time")
    assert history.series == ()
    assert [apart.why for apart in history.excluded] == ["metric", "refused"]


def test_a_history_of_the_last_runs() -> None:
    history = build_history([*make_steady_readings(20), *make_steady_readings(4, name="mul", first=16)], "time", last=5)
    assert {series.case.name: len(series.points) for series in history.series} == {"add": 5, "mul": 4}
    assert list(history.runs) == [f"night-{n}" for n in range(15, 20)]


def list_alerts(readings: list[Reading], newest: int = 3) -> list[str]:
    return [alert.series.case.name for alert in build_history(readings, "time").find_alerts(newest)]


@pytest.mark.parametrize(
    ("direction", "ratio", "raises"),
    [("lower", 1.2, True), ("higher", 1.2, False), ("lower", 0.8, False), ("higher", 0.8, True)],
)
def test_only_a_harmful_change_raises_an_alert(direction: str, ratio: float, raises: bool) -> None:
    readings = [
        *make_steady_readings(27, direction=direction),
        *make_steady_readings(3, ratio, first=27, direction=direction),
    ]
    assert list_alerts(readings) == (["add"] if raises else [])


def test_old_and_fixed_changes_raise_no_alert() -> None:
    assert list_alerts([*make_steady_readings(20), *make_steady_readings(10, 1.2, first=20)]) == []
    assert list_alerts([*make_steady_readings(20), *make_steady_readings(10, 1.2, first=20)], newest=10) == ["add"]
    fixed = [
        *make_steady_readings(20),
        *make_steady_readings(5, 1.2, first=20),
        *make_steady_readings(5, 1.0, first=25),
    ]
    assert len(build_history(fixed, "time").series[0].changes) == 2
    assert list_alerts(fixed, newest=12) == []


def test_a_regression_raises_an_alert_in_the_run_in_which_it_is_detected() -> None:
    late = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        nights = [make_reading(n, float((1.0 if n < 12 else 1.06) * (1 + rng.normal(0, 0.02)))) for n in range(26)]
        sure = [n for n in range(13, 27) if build_history(nights[:n], "time").series[0].changes]
        if sure:
            assert list_alerts(nights[: sure[0]]) == ["add"]
            late += sure[0] > 12 + 3
    assert late


def test_cases_of_separate_commands_are_all_current() -> None:
    nights = [
        make_reading(
            4 * n + k, (1.2 if n >= 12 and name == "add" else 1.0) * (1 + 0.001 * (n % 3)), name=name, suite="ops"
        )
        for n in range(15)
        for k, name in enumerate(("add", "conv2d", "matmul", "softmax"))
    ]
    assert list_alerts(nights) == ["add"]


def test_the_most_harmful_comes_first() -> None:
    readings = [
        r
        for name, ratio in (("small", 1.1), ("large", 2.0), ("middle", 1.3), ("none", 1.0))
        for r in [*make_steady_readings(27, name=name), *make_steady_readings(3, ratio, first=27, name=name)]
    ]
    assert list_alerts(readings) == ["large", "middle", "small"]


def test_a_case_missing_from_the_latest_run_of_its_suite_raises_no_alert() -> None:
    slow = [*make_steady_readings(27), *make_steady_readings(3, 1.2, first=27)]
    other_suite = make_steady_readings(4, first=30, name="mul", suite="")
    assert list_alerts([*slow, *other_suite]) == ["add"]
    assert list_alerts([*slow, *make_steady_readings(4, first=30, name="mul")]) == []


def test_changes_of_many_cases_at_once_are_reported_as_one() -> None:
    def build(changed: int) -> History:
        names = [f"op{n}" for n in range(12)]
        return build_history(
            [
                r
                for n, name in enumerate(names)
                for r in [
                    *make_steady_readings(15, name=name),
                    *make_steady_readings(6, 1.2 if n < changed else 1.0, first=15, name=name),
                ]
            ],
            "time",
        )

    assert build(8).common_change_run == "night-15"
    assert build(3).common_change_run is None


def test_the_floor_detects_a_change_that_the_median_of_scattered_launches_hides() -> None:
    """On a shared machine, some of three launches are often 50 % slower, but rarely all three."""
    rng = np.random.default_rng()

    def make_night(number: int, level: float, metric: str) -> Reading:
        several = []
        for slowed in (1.0, *rng.choice([1.0, 1.5], 2)):
            samples = Samples(values=tuple(level * slowed * (1 + rng.exponential(0.02, 60))))
            several.append(
                Record(case=Case(feature="ops", name="add"), launches=(samples,), metrics=make_time_metrics(samples))
            )
        return read_metric(merge_launches(several), metric, run=f"night-{number:02}", started=format_day(number))

    def is_detected(metric: str) -> bool:
        nights = [make_night(number, 1.0 if number < 20 else 1.06, metric) for number in range(30)]
        return len(build_history(nights, metric).series[0].changes) == 1

    assert all(is_detected("floor") for _ in range(5))
    assert sum(is_detected("time") for _ in range(5)) <= 2


def test_launches_are_read_only_for_possible_changes() -> None:
    reads = []

    def read_launches() -> tuple[float, ...]:
        reads.append(1)
        return (0.5, 1.0, 2.0)

    readings = [*make_steady_readings(12), *make_steady_readings(8, 1.1, first=12)]
    assert len(build_history(readings, "time").series[0].changes) == 1
    assert build_history([replace(r, launches=read_launches) for r in readings], "time").series[0].changes == ()
    assert len(reads) == 20
    build_history([replace(r, launches=read_launches) for r in make_steady_readings(20)], "time")
    assert len(reads) == 20


def test_values_of_zero_are_shown_but_not_judged() -> None:
    (series,) = build_history([make_reading(n, 0.0) for n in range(10)], "time").series
    assert not series.judged
    assert series.changes == ()
    assert len(series.points) == 10


def test_filters_compare_values_as_they_are_written() -> None:
    case = Case(feature="ops", name="add", params={"size": "small", "n": 8, "pinned": True})
    assert matches_filters(case, {"size": ["large", "small"], "n": ["8"], "pinned": ["true"]})
    assert not matches_filters(case, {"size": ["large"]})
    assert not matches_filters(case, {"absent": ["x"]})


def make_record(name: str, value: float, **params: object) -> Record:
    return Record(
        case=Case(feature="ops", name=name, params=params),
        launches=tuple(Samples(values=(value * (1 + 0.01 * n), value)) for n in range(3)),
        metrics={"time": Metric(value, "s", "lower"), 'odd "name': Metric(1.0)},
        environment={"fingerprint": "f"},
    )


def test_a_store_gives_the_readings_of_its_records(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    with Store(tmp_path / "s.sqlite") as store:
        expected = []
        for number in range(4):
            run = store.start_run(f"night-{number}", suite="nightly", started=format_day(number))
            for name in ("add", "mul"):
                record = make_record(name, float(rng.random()), size="small", odd={"$float": "x"})
                store.add(run, record)
                expected.append(read_metric(record, "time", run=run.name, started=run.started, suite="nightly"))
        assert store.list_cases() == [("ops", "add"), ("ops", "mul")]
        readings = list(store.read_history("time", store.list_cases()))
        assert readings == expected
        assert [r.launches() for r in readings] == [r.launches() for r in expected]
        assert [r.case.name for r in store.read_history("time", [("ops", "mul"), ("halo", "add")])] == ["mul"] * 4
        assert all(r.metric is None for r in store.read_history("absent", store.list_cases()))
        assert all(r.metric is not None for r in store.read_history('odd "name', store.list_cases()))


@pytest.mark.slow
def test_a_thousand_cases_over_fifty_runs_are_read_and_judged_in_seconds(tmp_path: Path) -> None:
    import time

    rng = np.random.default_rng(2)
    with Store(tmp_path / "s.sqlite") as store:
        for number in range(50):
            run = store.start_run(f"night-{number}", started=format_day(number))
            store.add_all(run, (make_record(f"op{n}", 1e-3 * float(1 + rng.normal(0, 0.02))) for n in range(1000)))
        began = time.perf_counter()
        history = build_history(store.read_history("time", store.list_cases()), "time")
        assert time.perf_counter() - began < 10
    assert len(history.series) == 1000
    assert len(history.find_alerts(3)) <= 5


def test_every_machine_has_its_own_series_and_changes(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    with Store(tmp_path / "s.sqlite") as store:
        for number in range(24):
            for machine, level in (("old", 3.0), ("new", 1.0 if number < 12 else 1.3)):
                run = store.start_run(f"{machine}-{number}", started=format_day(number))
                value = level * float(np.exp(rng.normal(0, 0.005)))
                record = make_record("add", value)
                environment = {"fingerprint": f"{machine}-print", "cpu": f"{machine} cpu"}
                store.add(run, replace(record, environment=environment))
        readings = list(store.read_history("time", store.list_cases()))
        together = build_history(readings, "time")
        apart = build_history(readings, "time", by_machine=True)
    assert [len(series.points) for series in together.series] == [24]
    assert len(together.excluded) == 24
    assert apart.excluded == ()
    changes = {str(series.case.params["host"]): len(series.changes) for series in apart.series}
    assert changes == {"old cpu #old-pr": 0, "new cpu #new-pr": 1}

"""Histories: which records form a line, where it changed, and what raises an alert."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest

from tessera.errors import TesseraError
from tessera.measure.samples import Samples
from tessera.results.figures import time_metrics
from tessera.results.history import History, history, matches
from tessera.results.reading import Reading, read
from tessera.results.record import Case, Metric, Record, merge_launches
from tessera.results.store import Store

FIRST = datetime(2026, 9, 1, tzinfo=UTC)


def day(number: int) -> str:
    return (FIRST + timedelta(days=number)).isoformat()


def reading(
    number: int, value: float | None, *, name: str = "add", direction: str = "lower", **others: object
) -> Reading:
    metric = None if value is None else Metric(value, "s" if direction == "lower" else "images/s", direction)  # type: ignore[arg-type]
    given = {
        "case": Case(feature="ops", name=name),
        "run": f"night-{number:02}",
        "started": day(number),
        "suite": "nightly",
        "status": "ok",
        "version": "1",
        "fingerprint": "f",
        "metric": metric,
    }
    return Reading(**{**given, **others})  # type: ignore[arg-type]


def steady(count: int, level: float = 1.0, first: int = 0, seed: int = 0, **others: object) -> list[Reading]:
    rng = np.random.default_rng((seed, first))
    return [reading(first + n, level * float(1 + rng.normal(0, 0.01)), **others) for n in range(count)]


def test_a_change_says_when_from_what_to_what() -> None:
    (series,) = history([*steady(20), *steady(10, 1.2, first=20)], "time").series
    (change,) = series.changes
    assert (change.run, change.started, change.age, change.harmful) == ("night-20", day(20), 10, True)
    assert change.change == pytest.approx(0.2, abs=0.02)
    assert [(start, end) for start, end, _ in series.levels()] == [(0, 20), (20, 30)]


def test_time_decides_the_order_and_not_the_store() -> None:
    readings = [*steady(20), *steady(10, 1.2, first=20)]
    mixed = [readings[place] for place in np.random.default_rng(3).permutation(len(readings))]
    assert history(mixed, "time").series == history(readings, "time").series
    # The same moment on two clocks.
    east = [
        replace(r, started=datetime.fromisoformat(r.started).astimezone(timezone(timedelta(hours=9))).isoformat())
        for r in readings
    ]
    moved = history([*east[:15], *readings[15:]], "time").series[0]
    assert [point.run for point in moved.points] == [reading.run for reading in readings]


def test_only_what_may_be_compared_with_the_newest_forms_a_line() -> None:
    readings = [
        *steady(3, fingerprint="other"),
        *steady(2, first=3, version="0"),
        reading(5, 1.0, status="failed"),
        reading(6, 1.0, status="timed_out"),
        reading(7, None),
        reading(8, float("nan")),
        reading(9, 1.0, metric=Metric(1.0, "ms", "lower")),
        *steady(8, first=10),
    ]
    found = history(readings, "time")
    (series,) = found.series
    assert [point.run for point in series.points] == [f"night-{n}" for n in range(10, 18)]
    why = [apart.why for apart in found.apart]
    assert why == [*["conditions"] * 3, *["version"] * 2, "failed", "timed out", "metric", "metric", "unit"]


def test_a_case_without_any_figure_is_apart_and_in_no_line() -> None:
    found = history([reading(0, None), reading(1, 1.0, status="refused")], "time")
    assert found.series == ()
    assert [apart.why for apart in found.apart] == ["metric", "refused"]


def test_the_last_runs_alone() -> None:
    found = history([*steady(20), *steady(4, name="mul", first=16)], "time", last=5)
    assert {series.case.name: len(series.points) for series in found.series} == {"add": 5, "mul": 4}
    assert list(found.runs) == [f"night-{n}" for n in range(15, 20)]


def alerted(readings: list[Reading], newest: int = 3) -> list[str]:
    return [alert.series.case.name for alert in history(readings, "time").alerts(newest)]


@pytest.mark.parametrize(
    ("direction", "ratio", "raises"),
    [("lower", 1.2, True), ("higher", 1.2, False), ("lower", 0.8, False), ("higher", 0.8, True)],
)
def test_only_a_harmful_change_raises_an_alert(direction: str, ratio: float, raises: bool) -> None:
    readings = [*steady(27, direction=direction), *steady(3, ratio, first=27, direction=direction)]
    assert alerted(readings) == (["add"] if raises else [])


def test_an_old_change_and_a_mended_one_raise_none() -> None:
    assert alerted([*steady(20), *steady(10, 1.2, first=20)]) == []
    assert alerted([*steady(20), *steady(10, 1.2, first=20)], newest=10) == ["add"]
    mended = [*steady(20), *steady(5, 1.2, first=20), *steady(5, 1.0, first=25)]
    assert len(history(mended, "time").series[0].changes) == 2
    assert alerted(mended, newest=12) == []


def test_a_regression_is_alerted_on_the_night_it_becomes_sure_however_many_it_took() -> None:
    late = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        nights = [reading(n, float((1.0 if n < 12 else 1.06) * (1 + rng.normal(0, 0.02)))) for n in range(26)]
        sure = [n for n in range(13, 27) if history(nights[:n], "time").series[0].changes]
        if sure:
            assert alerted(nights[: sure[0]]) == ["add"]
            late += sure[0] > 12 + 3
    assert late


def test_cases_of_commands_of_their_own_are_all_current() -> None:
    nights = [
        reading(4 * n + k, (1.2 if n >= 12 and name == "add" else 1.0) * (1 + 0.001 * (n % 3)), name=name, suite="ops")
        for n in range(15)
        for k, name in enumerate(("add", "conv2d", "matmul", "softmax"))
    ]
    assert alerted(nights) == ["add"]


def test_the_most_harmful_comes_first() -> None:
    readings = [
        r
        for name, ratio in (("small", 1.1), ("large", 2.0), ("middle", 1.3), ("none", 1.0))
        for r in [*steady(27, name=name), *steady(3, ratio, first=27, name=name)]
    ]
    assert alerted(readings) == ["large", "middle", "small"]


def test_a_case_that_its_suite_left_out_raises_none_and_runs_of_other_suites_do_not_count() -> None:
    slow = [*steady(27), *steady(3, 1.2, first=27)]
    others = steady(4, first=30, name="mul", suite="")
    assert alerted([*slow, *others]) == ["add"]
    assert alerted([*slow, *steady(4, first=30, name="mul")]) == []


def test_cases_that_change_together_point_at_the_machine() -> None:
    def found(changed: int) -> History:
        names = [f"op{n}" for n in range(12)]
        return history(
            [
                r
                for n, name in enumerate(names)
                for r in [*steady(15, name=name), *steady(6, 1.2 if n < changed else 1.0, first=15, name=name)]
            ],
            "time",
        )

    assert found(8).moved_together == "night-15"
    assert found(3).moved_together is None


def test_the_floor_shows_a_change_that_scattered_launches_hide_from_the_median() -> None:
    """Nights on a machine with neighbours: of three launches any number may be slowed by half, seldom all of them."""
    rng = np.random.default_rng()

    def night(number: int, level: float, metric: str) -> Reading:
        several = []
        for slowed in (1.0, *rng.choice([1.0, 1.5], 2)):
            samples = Samples(values=tuple(level * slowed * (1 + rng.exponential(0.02, 60))))
            several.append(
                Record(case=Case(feature="ops", name="add"), launches=(samples,), metrics=time_metrics(samples))
            )
        return read(merge_launches(several), metric, run=f"night-{number:02}", started=day(number))

    def found(metric: str) -> bool:
        nights = [night(number, 1.0 if number < 20 else 1.06, metric) for number in range(30)]
        return len(history(nights, metric).series[0].changes) == 1

    assert all(found("floor") for _ in range(5))
    assert sum(found("time") for _ in range(5)) <= 2


def test_launches_are_asked_for_only_where_there_may_be_a_change() -> None:
    asked = []

    def scattered() -> tuple[float, ...]:
        asked.append(1)
        return (0.5, 1.0, 2.0)

    readings = [*steady(12), *steady(8, 1.1, first=12)]
    assert len(history(readings, "time").series[0].changes) == 1
    assert history([replace(r, launches=scattered) for r in readings], "time").series[0].changes == ()
    assert len(asked) == 20
    history([replace(r, launches=scattered) for r in steady(20)], "time")
    assert len(asked) == 20


def test_figures_of_zero_are_drawn_but_not_judged() -> None:
    (series,) = history([reading(n, 0.0) for n in range(10)], "time").series
    assert not series.judged
    assert series.changes == ()
    assert len(series.points) == 10


def test_filters_compare_values_as_they_are_written() -> None:
    case = Case(feature="ops", name="add", params={"size": "small", "n": 8, "pinned": True})
    assert matches(case, {"size": ["large", "small"], "n": ["8"], "pinned": ["true"]})
    assert not matches(case, {"size": ["large"]})
    assert not matches(case, {"absent": ["x"]})


def stored(name: str, value: float, **params: object) -> Record:
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
            run = store.start_run(f"night-{number}", suite="nightly", started=day(number))
            for name in ("add", "mul"):
                record = stored(name, float(rng.random()), size="small", odd={"$float": "x"})
                store.add(run, record)
                expected.append(read(record, "time", run=run.name, started=run.started, suite="nightly"))
        assert store.cases() == [("ops", "add"), ("ops", "mul")]
        found = list(store.readings("time", store.cases()))
        assert found == expected
        assert [r.launches() for r in found] == [r.launches() for r in expected]
        assert [r.case.name for r in store.readings("time", [("ops", "mul"), ("halo", "add")])] == ["mul"] * 4
        assert all(r.metric is None for r in store.readings("absent", store.cases()))
        with pytest.raises(TesseraError, match="not a name of a metric"):
            list(store.readings('odd "name', store.cases()))


@pytest.mark.slow
def test_a_thousand_cases_over_fifty_runs_are_read_and_judged_in_seconds(tmp_path: Path) -> None:
    import time

    rng = np.random.default_rng(2)
    with Store(tmp_path / "s.sqlite") as store:
        for number in range(50):
            run = store.start_run(f"night-{number}", started=day(number))
            store.add_all(run, (stored(f"op{n}", 1e-3 * float(1 + rng.normal(0, 0.02))) for n in range(1000)))
        began = time.perf_counter()
        found = history(store.readings("time", store.cases()), "time")
        assert time.perf_counter() - began < 10
    assert len(found.series) == 1000
    assert len(found.alerts(3)) <= 5

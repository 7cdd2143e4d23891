"""Tests of records: round trips, case keys, schema checks, and merging of launches."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tessera.errors import TesseraError
from tessera.measure.samples import Samples
from tessera.results.metrics import make_time_metrics
from tessera.results.record import RECORD_SCHEMA, Case, Metric, Record, merge_launches
from tests.results.synthetic import NO_DEADLINE, any_text, records, to_exact_form


@NO_DEADLINE
@given(records())
def test_a_record_round_trips_through_plain_values(record: Record) -> None:
    assert to_exact_form(Record.from_json(record.to_json())) == to_exact_form(record)


@given(st.dictionaries(any_text, st.integers() | any_text), st.dictionaries(any_text, st.integers() | any_text))
def test_different_values_of_a_parameter_are_different_cases(a: dict, b: dict) -> None:
    keys = {Case(feature="f", name="n", params={"p": value}).key for value in (*a.values(), *b.values())}
    assert len(keys) == len({(type(value), value) for value in (*a.values(), *b.values())})


@pytest.mark.parametrize("pair", [("1", 1), ("true", True), ("null", None), ("NaN", float("nan")), ("[1]", [1])])
def test_text_that_looks_like_a_value_has_another_key(pair: tuple) -> None:
    a, b = (Case(feature="f", name="n", params={"p": value}).key for value in pair)
    assert a != b


def test_a_newer_schema_is_refused_and_a_new_field_is_left_out() -> None:
    data = Record(case=Case(feature="f", name="n")).to_json()
    with pytest.raises(TesseraError, match="newer schema"):
        Record.from_json(data | {"schema": RECORD_SCHEMA + 1})
    assert Record.from_json(data | {"colour": "blue"}) == Record.from_json(data)


def test_a_record_that_is_not_ok_needs_a_reason() -> None:
    with pytest.raises(TesseraError, match="requires a reason"):
        Record(case=Case(feature="f", name="n"), status="failed")


def test_merging_keeps_every_launch_and_the_median_metric() -> None:
    case = Case(feature="f", name="n")
    several = [
        Record(
            case=case,
            launches=(Samples(values=(float(i),)),),
            metrics={"rate": Metric(float(i))} if i else {"rate": Metric(9.0), "once": Metric(1.0)},
            notes=("warm",),
            seconds=1.0,
        )
        for i in range(3)
    ]
    merged = merge_launches(several)
    assert merged.values == (0.0, 1.0, 2.0)
    assert merged.metrics == {"rate": Metric(2.0), "once": Metric(1.0)}
    assert (merged.notes, merged.seconds) == (("warm",), 3.0)
    failed = Record(case=case, status="failed", reason="died")
    assert merge_launches([several[0], failed]) == replace(failed, launches=several[0].launches)


def test_the_floor_of_several_launches_is_the_lowest_floor() -> None:
    """Launches that are slow throughout change the median of three launches, but not the floor."""
    rng = np.random.default_rng()
    quiet, busy = 1 + rng.exponential(0.1, 400), 1.5 + rng.exponential(0.1, 400)

    def merge_metrics(*launches: NDArray[np.float64]) -> Mapping[str, Metric]:
        several = [Samples(values=tuple(values)) for values in launches]
        return merge_launches(
            Record(case=Case(feature="f", name="n"), launches=(samples,), metrics=make_time_metrics(samples))
            for samples in several
        ).metrics

    alone, among = merge_metrics(quiet), merge_metrics(busy, quiet, busy)
    assert alone["floor"].value == among["floor"].value == np.quantile(quiet, 0.05)
    assert 1 <= alone["floor"].value < alone["p25"].value < alone["time"].value < among["time"].value


def test_launches_of_different_machines_or_versions_are_not_merged() -> None:
    case = Case(feature="f", name="n")
    record = Record(case=case, environment={"fingerprint": "a"})
    for incompatible in (replace(record, environment={"fingerprint": "b"}), replace(record, version="2")):
        with pytest.raises(TesseraError, match="different fingerprints or benchmark versions"):
            merge_launches([record, incompatible])

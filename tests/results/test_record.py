from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tessera.errors import TesseraError
from tessera.measure.samples import Samples
from tessera.results.figures import time_metrics
from tessera.results.record import SCHEMA, Case, Metric, Record, merge_launches
from tests.results.synthetic import any_text, exactly, records


@given(records())
def test_a_record_comes_back_from_its_plain_values(record: Record) -> None:
    assert exactly(Record.from_json(record.to_json())) == exactly(record)


@given(st.dictionaries(any_text, st.integers() | any_text), st.dictionaries(any_text, st.integers() | any_text))
def test_different_values_of_a_parameter_are_different_cases(a: dict, b: dict) -> None:
    keys = {Case(feature="f", name="n", params={"p": value}).key for value in (*a.values(), *b.values())}
    assert len(keys) == len({(type(value), value) for value in (*a.values(), *b.values())})


@pytest.mark.parametrize("pair", [("1", 1), ("true", True), ("null", None), ("NaN", float("nan")), ("[1]", [1])])
def test_text_that_looks_like_a_value_is_another_case(pair: tuple) -> None:
    a, b = (Case(feature="f", name="n", params={"p": value}).key for value in pair)
    assert a != b


def test_a_newer_schema_is_refused_and_a_new_field_is_left_out() -> None:
    data = Record(case=Case(feature="f", name="n")).to_json()
    with pytest.raises(TesseraError, match="newer schema"):
        Record.from_json(data | {"schema": SCHEMA + 1})
    assert Record.from_json(data | {"colour": "blue"}) == Record.from_json(data)


def test_a_record_that_is_not_ok_needs_a_reason() -> None:
    with pytest.raises(TesseraError, match="needs a reason"):
        Record(case=Case(feature="f", name="n"), status="failed")


def test_merging_keeps_every_launch_and_the_middle_metric() -> None:
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


def test_the_floor_of_several_launches_is_that_of_the_quietest() -> None:
    """What slows a launch down as a whole moves the median of three, and leaves the floor where it is."""
    rng = np.random.default_rng()
    quiet, busy = 1 + rng.exponential(0.1, 400), 1.5 + rng.exponential(0.1, 400)

    def merged(*launches: NDArray[np.float64]) -> Mapping[str, Metric]:
        several = [Samples(values=tuple(values)) for values in launches]
        return merge_launches(
            Record(case=Case(feature="f", name="n"), launches=(one,), metrics=time_metrics(one)) for one in several
        ).metrics

    alone, among = merged(quiet), merged(busy, quiet, busy)
    assert alone["floor"].value == among["floor"].value == np.quantile(quiet, 0.05)
    assert 1 <= alone["floor"].value < alone["p25"].value < alone["time"].value < among["time"].value


def test_launches_that_were_measured_in_different_ways_are_not_merged() -> None:
    case = Case(feature="f", name="n")
    one = Record(case=case, environment={"fingerprint": "a"})
    for other in (replace(one, environment={"fingerprint": "b"}), replace(one, version="2")):
        with pytest.raises(TesseraError, match="measured in different ways"):
            merge_launches([one, other])

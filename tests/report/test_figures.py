"""Tests of number formatting: three significant digits, any float, and unit prefixes that keep values below 1000."""

import math
import re

from hypothesis import given
from hypothesis import strategies as st

from tessera.report.figures import format_bytes, format_rate, format_seconds, format_value

SCALES = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


@given(st.floats(1e-9, 119.0) | st.floats(-119.0, -1e-9))
def test_a_time_keeps_three_digits(seconds: float) -> None:
    number, unit = format_seconds(seconds).split()
    assert math.isclose(float(number) * SCALES[unit], seconds, rel_tol=0.0051)
    assert len(re.sub(r"\D", "", number)) == 3
    assert abs(float(number)) < 1000 or unit == "s"


@given(st.floats(), st.sampled_from(["s", "B", "FLOP/s", "images/s", ""]))
def test_every_float_has_a_text(value: float, unit: str) -> None:
    assert format_value(value, unit).strip()


def test_values_are_below_1000_of_their_unit() -> None:
    assert format_seconds(999.6e-6) == "1.00 ms"
    assert format_bytes(1023.6) == "1.00 KiB"
    assert format_rate(999.7e6, "FLOP/s") == "1.00 GFLOP/s"

"""Tests of axes: values, sweeps, validation and keys; and axes declared as fields of a dataclass."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tessera.axes import (
    Axes,
    Axis,
    Option,
    check_applicable,
    check_fields,
    collect_axes,
    collect_params,
    declare_axis,
    parse_int,
    parse_size,
)
from tessera.errors import TesseraError

AXES = Axes(
    "demo",
    (
        Axis(name="size", parse=parse_int, default=8, minimum=1, defaults={"large": 64}),
        Axis(name="mode", choices=("fast", "slow"), default=("fast", "slow"), several=True),
        Axis(name="place", option="--weight-place", default="disk", applies_to=("small",), in_key="unless_default"),
        Axis(name="pad", parse_list=lambda text: [text], ignored_elsewhere=True, applies_to=("small",)),
        Axis(name="width", parse=parse_int, default=1, in_key="never"),
    ),
)


def test_values_come_from_options_and_sweeps():
    arguments = {"size": 4, "weight_place": "host", "mode": None}
    values = AXES.read_values(arguments, ["mode=fast", "pad=0,1;2", "--width=3, 5"])
    assert values == {"size": [4], "place": ["host"], "mode": ["fast"], "pad": ["0,1", "2"], "width": [3, 5]}
    assert AXES.read_values({}, ["pad=0,1"]) == {"pad": ["0,1"]}


@pytest.mark.parametrize(
    ("arguments", "sweep", "message"),
    [
        ({"size": 4}, "size=1,2", "--size is given twice"),
        ({}, "sise=1", "did you mean size?"),
        ({}, "size", "allowed: OPTION=A,B"),
        ({}, "size=,", "--sweep has no values"),
        ({}, "size=big", "not a whole number: got 'big'"),
        ({}, "place=disk", "allowed: OPTION=A,B"),
    ],
)
def test_wrong_sweeps(arguments, sweep, message):
    with pytest.raises(TesseraError) as caught:
        AXES.read_values(arguments, [sweep])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"sise": [1]}, "unknown axis of demo: got 'sise'; allowed: size, mode, place, pad, width; did you mean size?"),
        ({"size": []}, "--size has no values"),
        ({"size": 3}, "size must be a list of values: got 3"),
        ({"mode": "fast"}, "mode must be a list of values: got 'fast'"),
        ({"size": [0]}, "--size: got 0; allowed: 1 or more"),
        ({"size": [True]}, "--size: got True; allowed: 1 or more"),
        ({"size": ["4"]}, "--size: got '4'"),
        ({"mode": ["fst"]}, "unknown mode: got 'fst'; allowed: fast, slow; did you mean fast?"),
    ],
)
def test_wrong_values(values, message):
    with pytest.raises(TesseraError) as caught:
        AXES.check_values(values)
    assert str(caught.value).startswith(message)


def test_every_combination_is_expanded_in_the_order_of_the_axes():
    small = AXES.select("small")
    assert list(small.expand({"size": [1, 2]})) == [
        {"size": size, "mode": mode, "place": "disk", "width": 1} for size in (1, 2) for mode in ("fast", "slow")
    ]
    assert [params["size"] for params in AXES.select("large").expand({"mode": ["fast"]})] == [64]


def test_defaults_are_left_out_of_keys_where_the_axis_says_so():
    params = {"size": 8, "mode": "fast", "place": "disk", "width": 5}
    assert AXES.omit_defaults(params) == {"size": 8, "mode": "fast"}
    assert AXES.omit_defaults(params | {"place": "host"}) == {"size": 8, "mode": "fast", "place": "host"}


def test_an_axis_that_does_not_apply_is_refused_or_ignored_with_a_note():
    with pytest.raises(TesseraError, match="--weight-place applies only to small: got 'large'"):
        AXES.check_applicable(["place"], ["large"])
    AXES.check_applicable(["place"], ["large", "small"])
    values = {"pad": ["1"], "size": [2]}
    assert AXES.drop_ignored(values, "large") == ["--pad has no effect on large"]
    assert values == {"size": [2]}
    assert [axis.name for axis in AXES.get_options("large")] == ["size", "mode", "pad", "width"]
    check_applicable([Option(name="free")], ["anything"])


def test_help_lines():
    assert AXES["mode"].help_line == ": fast, slow (default: fast,slow)"
    assert AXES["mode"].value_name == "NAME,…"
    assert Axis(name="kernel", parse=parse_size).value_name == "N|HxW"
    assert Axis(name="bias", default=True, action="on_off", help="bias").help_line == "bias (default: on)"
    assert Option(name="fast", default=False, action="flag", help="fast").help_line == "fast"


@dataclass(frozen=True, kw_only=True)
class Settings:
    name: str = declare_axis("a", in_key="always", choices=("a", "b"), help="name")
    count: int = declare_axis(1, minimum=1, help="count")
    share: float = declare_axis(0.5, help="share")
    exact: bool = declare_axis(False, help="exact")

    def __post_init__(self) -> None:
        check_fields(self)


def test_the_fields_of_a_dataclass_are_axes():
    axes = Axes("settings", collect_axes(Settings))
    assert [axis.name for axis in axes] == ["name", "count", "share", "exact"]
    assert axes.parse_sweep("exact=true,false")[1] == [True, False]
    assert axes.parse_sweep("count=1,2")[1] == [1, 2]
    assert collect_params(Settings(share=1)) == {"name": "a", "share": 1}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"count": "8"}, "wrong type for --count: got '8'; allowed: a whole number"),
        ({"count": True}, "a whole number"),
        ({"count": 0}, "1 or more"),
        ({"share": "half"}, "a number"),
        ({"exact": 1}, "true or false"),
        ({"name": "c"}, "unknown name: got 'c'; allowed: a, b"),
    ],
)
def test_fields_are_checked(values, message):
    with pytest.raises(TesseraError) as caught:
        Settings(**values)
    assert message in str(caught.value)

"""Tests of machine files: reading, validation and writing."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine import DTYPES, LINKS, Link, Machine, load_machine, load_machines
from tessera.machine.catalogue import find_shipped_files
from tessera.machine.toml import format_toml, read_toml, write_toml

rates = st.floats(min_value=1e-3, max_value=1e18)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def random_machines(draw: st.DrawFn) -> Machine:
    mesh = Mesh(draw(st.integers(1, 3)), draw(st.integers(1, 4)))

    def draw_table() -> tuple[float, ...]:
        length = draw(st.sampled_from([1, mesh.size]))
        return tuple(draw(st.lists(rates, min_size=length, max_size=length)))

    flops = {dtype: draw_table() for dtype in draw(st.sets(st.sampled_from(DTYPES), min_size=1))}
    links = {
        kind: Link(bandwidth=draw_table(), latency=draw(st.floats(0, 1)))
        for kind in draw(st.sets(st.sampled_from(sorted(LINKS))))
    }
    return Machine(
        name=draw(texts.filter(bool)),
        title=draw(texts),
        worker=draw(texts),
        workers=mesh,
        local_memory=draw(st.integers(1, 2**40)),
        global_memory=draw(st.integers(1, 2**45)),
        flops=flops,
        fidelity=draw(st.dictionaries(texts.filter(lambda t: t and "." not in t), rates, max_size=2)),
        links=links,
        sources={f"flops.{dtype}": draw(texts) for dtype in flops} | {"memory": draw(texts)},
        spread={f"links.{kind}": (draw(st.floats(0, 1)),) for kind in links},
        notes=tuple(draw(st.lists(texts, max_size=2))),
    )


@given(random_machines())
def test_a_machine_round_trips_through_toml(machine: Machine) -> None:
    assert Machine.from_dict(tomllib.loads(format_toml(machine.to_dict()))) == machine


values = st.one_of(texts, st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False))
tables = st.recursive(
    st.dictionaries(texts, st.one_of(values, st.lists(values, max_size=3)), max_size=3),
    lambda inner: st.dictionaries(texts, st.one_of(values, inner), max_size=3),
    max_leaves=8,
)


@given(tables)
def test_toml_round_trip(data: dict[str, Any]) -> None:
    assert tomllib.loads(format_toml(data)) == data


def test_the_old_file_is_kept_if_writing_fails(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    write_toml(path, {"n": 1})
    with pytest.raises(TesseraError, match="cannot write"):
        write_toml(path / "below_a_file.toml", {"n": 2})
    with pytest.raises(AttributeError):
        write_toml(path, {1: 2})  # type: ignore[dict-item]  # fails in the middle of writing
    assert read_toml(path) == {"n": 1}
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", sorted(find_shipped_files()))
def test_every_shipped_figure_has_a_source(name: str) -> None:
    machine = load_machine(name)
    assert machine.name == name
    assert machine.get_source("grid")
    for figure in machine.list_figures():
        assert machine.get_source(figure), f"{name}: {figure}"


def test_shipped_machines_agree_with_their_cards() -> None:
    """Totals computed from per-core figures equal the published totals of the cards."""
    grayskull, wormhole = load_machine("grayskull-e150"), load_machine("wormhole-n150")
    blackhole, ipu = load_machine("blackhole-p150"), load_machine("ipu-m2000")
    assert grayskull.flops["float8"][0] * 120 == pytest.approx(332e12, rel=1e-3)
    assert wormhole.flops["bfloat16"][0] * 72 == pytest.approx(74e12, rel=0.01)
    assert wormhole.flops["bfloat8_b"][0] * 72 == pytest.approx(148e12, rel=0.01)
    assert blackhole.fidelity["LoFi"] * 120 == pytest.approx(664e12, rel=0.01)
    assert blackhole.fidelity["LoFi"] * 140 == pytest.approx(774e12, rel=0.01)
    assert ipu.get_rate("float16", workers=4) == 1e15
    assert ipu.local_memory == pytest.approx(900 * 2**20, rel=0.01)
    for card in (wormhole, blackhole):
        passes = {"LoFi": 1, "HiFi2": 2, "HiFi3": 3, "HiFi4": 4}
        for name, rate in card.fidelity.items():
            assert rate * passes[name] == pytest.approx(card.fidelity["LoFi"], rel=1e-5)


def test_rates_and_bandwidths_by_number_of_workers() -> None:
    host = Machine(
        name="h",
        title="",
        worker="core",
        workers=Mesh(1, 3),
        local_memory=1,
        global_memory=1,
        flops={"float32": (10.0, 18.0, 21.0), "float64": (5.0,)},
        fidelity={"LoFi": 7.0},
        links={"global": Link(bandwidth=(4.0, 6.0)), "local": Link(bandwidth=(3.0,))},
    )
    assert [host.get_rate("float32", workers=n) for n in (1, 2, 3, 9)] == [10, 18, 21, 21]
    assert [host.get_rate("float64", workers=n) for n in (1, 2, 9)] == [5, 10, 15]
    assert host.get_rate("float64", workers=2, fidelity="LoFi") == 14
    assert [host.get_bandwidth("global", workers=n) for n in (1, 2, 3)] == [4, 6, 6]
    assert [host.get_bandwidth("local", workers=n) for n in (1, 2, 9)] == [3, 6, 9]
    for call, word in (
        (lambda: host.get_rate("int8"), "float32, float64"),
        (lambda: host.get_rate("float32", workers=0), "1 or more"),
        (lambda: host.get_rate("float32", fidelity="HiFi4"), "LoFi"),
        (lambda: host.get_bandwidth("network"), "global, local"),
    ):
        with pytest.raises(TesseraError, match=word):
            call()


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"flops": {"float33": [1.0]}}, "unknown dtype.*float33"),
        ({"flops": {}}, "no FLOP/s"),
        ({"flops": {"float32": [-1.0]}}, "flops.float32 must be positive"),
        ({"flops": {"float32": [float("nan")]}}, "flops.float32 must be positive"),
        ({"flops": {"float32": [1.0, 2.0, 3.0]}}, "1 or 64"),
        ({"flops": {"float32": []}}, "1 or 64"),
        ({"flops": "fast"}, "field flops"),
        ({"grid": "8"}, "field grid.*ROWSxCOLS"),
        ({"grid": 8}, "field grid"),
        ({"memory": {"local": 1}}, "field memory.*missing 'global'"),
        ({"memory": {"local": 0, "global": 1}}, "memory.local must be positive"),
        ({"memory": {"local": 1.5, "global": 1}}, "whole numbers"),
        ({"links": {"wire": {"bandwidth": 1.0}}}, "unknown link.*wire"),
        ({"links": {"link": {"bandwidth": 1.0, "latency": -1}}}, "invalid latency"),
        ({"links": {"link": {"latency": 1}}}, "field links.*missing 'bandwidth'"),
        ({"links": {"link": {"bandwidth": 1.0, "delay": 1}}}, "unknown field delay"),
        ({"sources": {"flops.float64": "x"}}, "`sources` names an unknown value"),
        ({"spread": {"flops.int8": [0.1]}}, "`spread` names an unknown value"),
        ({"name": ""}, "requires a name"),
        ({"speed": 3}, "unknown field.*speed"),
    ],
)
def test_an_invalid_machine_is_a_one_line_error(change: dict[str, Any], word: str) -> None:
    good = load_machine("wormhole-n150").to_dict() | {"sources": {}}
    Machine.from_dict(good)
    with pytest.raises(TesseraError, match=word) as caught:
        Machine.from_dict(good | change, "file.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", ["name", "title", "worker", "grid", "memory", "flops"])
def test_a_missing_field_is_named(field: str) -> None:
    data = load_machine("ipu-m2000").to_dict()
    del data[field]
    with pytest.raises(TesseraError, match=f"missing field: got '{field}'"):
        Machine.from_dict(data)


def test_machines_load_by_name_and_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path))
    assert sorted(load_machines("nowhere")) == sorted(find_shipped_files())
    custom = dataclasses.replace(load_machine("blackhole-p150"), name="mine", workers=Mesh(10, 12))
    custom.write_file(tmp_path / "mine.toml")
    assert load_machine(str(tmp_path / "mine.toml")) == custom
    with pytest.raises(TesseraError, match="did you mean wormhole-n150"):
        load_machine("wormhole-n15")
    with pytest.raises(TesseraError, match="file not found"):
        load_machine(str(tmp_path / "absent.toml"))
    (tmp_path / "bad.toml").write_bytes(b"name = \xff")
    with pytest.raises(TesseraError, match="not a TOML file"):
        load_machine(str(tmp_path / "bad.toml"))
    with pytest.raises(TesseraError, match="cannot read"):
        load_machine(str(tmp_path))
    with pytest.raises(TesseraError, match="doctor --calibrate"):
        load_machine("host", "fingerprint")

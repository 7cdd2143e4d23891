"""Tests of programs made from records of other people: no value of a record can become code."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tessera.errors import TesseraError
from tessera.operators import draws
from tessera.operators.cases import cases
from tessera.operators.draws import is_plain_draw
from tessera.operators.repro import write_program
from tessera.operators.sources import model
from tessera.results.record import Metric, Record

MARK = "planted_call"
ATTACKS = [
    f"0)\n{MARK}()\n(0",
    f'"""\n{MARK}()\n"""',
    f"x\\\n{MARK}()",
    f"__import__('{MARK}')",
    f"{{{MARK}()}}",
    f"a={MARK}()",
    f"x\r{MARK}()",
    f"float32\n{MARK}()",
]


def make_record(**fields: Any) -> Record:
    (case, *_) = cases(["conv2d"], size=["small"], passes=["forward"], inputs={"stride": 2})
    environment = {"threads": 1, "libraries": {"torch": "2.13.0", "numpy": "2.0"}}
    record = Record(case=case, metrics={"time": Metric(1e-3, "s")}, environment=environment)
    return replace(record, **fields)


def make_call_record() -> Record:
    (case, *_) = model.cases("mobilenet_v3_large", image_size=32, passes=["forward"])
    return make_record(case=case)


def with_param(record: Record, name: str, value: Any) -> Record:
    return replace(record, case=replace(record.case, params={**record.case.params, name: value}))


def list_places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values inside a plain value, and the paths of its keys (`key`, name)."""
    if isinstance(value, Mapping):
        return [
            place for key, item in value.items() for place in ((*path, ("key", key)), *list_places(item, (*path, key)))
        ]
    if isinstance(value, list | tuple):
        return [place for number, item in enumerate(value) for place in list_places(item, (*path, number))]
    return [path]


def plant(value: Any, path: tuple[Any, ...], attack: str) -> Any:
    if not path:
        return attack
    first, *rest = path
    if isinstance(first, tuple):
        return {attack if key == first[1] else key: item for key, item in value.items()}
    if isinstance(value, Mapping):
        return {key: plant(item, tuple(rest), attack) if key == first else item for key, item in value.items()}
    return [plant(item, tuple(rest), attack) if number == first else item for number, item in enumerate(value)]


def check_only_literals_differ(text: str) -> None:
    """Parse a program; the planted text may be part of literals, but of nothing else."""
    for node in ast.walk(ast.parse(text)):
        names = [getattr(node, field, None) for field in ("id", "attr", "arg", "name")]
        assert not any(isinstance(name, str) and MARK in name for name in names), ast.dump(node)


@pytest.mark.parametrize("make", [make_record, make_call_record])
def test_no_value_of_a_record_becomes_code(make: Callable[[], Record]) -> None:
    record = make()
    written = 0
    plain = record.to_json()
    for path in list_places({name: plain[name] for name in ("case", "environment")}):
        for attack in ATTACKS:
            data = {**plain, **plant({name: plain[name] for name in ("case", "environment")}, path, attack)}
            try:
                text = write_program(Record.from_json(data))
            except TesseraError:
                continue
            written += 1
            check_only_literals_differ(text)
    assert written > 10, "some of the attacks change only texts, which are written as literals"


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_initializer_that_is_code_needs_the_users_consent(attack: str) -> None:
    hostile = with_param(make_record(), "initializer", f"rng.random(shape) + {attack}")
    if attack.startswith('"""'):
        check_only_literals_differ(write_program(hostile))
    else:
        with pytest.raises(TesseraError, match="may do more than draw numbers"):
            write_program(hostile)
    assert "rng.uniform(0.5, 2.0, shape)" in write_program(
        with_param(make_record(), "initializer", "rng.uniform(0.5, 2.0, shape)")
    )
    wanted = with_param(make_record(), "initializer", "np.load('x.npy')")
    assert "np.load" in write_program(wanted, allow_initializer=True)


def test_the_tree_of_a_program_does_not_depend_on_the_text_of_its_record() -> None:
    def parse(record: Record) -> str:
        tree = ast.parse(write_program(record))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                node.value = ""
        return ast.dump(tree)

    record = make_record()
    expected = parse(record)
    for attack in ATTACKS:
        libraries = {"torch": attack, "numpy": attack}
        assert parse(replace(record, environment={"threads": 1, "libraries": libraries})) == expected
        assert parse(with_param(record, "remark", attack)) == expected


@pytest.mark.parametrize(
    "expression",
    [
        "(lambda eval: 0)(0) + eval('1')",
        "(lambda x=eval('1'): x)()",
        "(lambda *, x=eval('1'): x)()",
        "(lambda m: (lambda eval: 0)(0))(eval('1'))",
        "rng.bit_generator",
        "[eval for eval in (1,)]",
    ],
)
def test_draws_that_are_not_plain(expression: str) -> None:
    assert not is_plain_draw(expression)


def test_nested_lambdas_are_plain() -> None:
    assert is_plain_draw("(lambda m: (lambda k: k + m)(2))(rng.standard_normal(shape))")


def test_all_draws_of_the_catalogue_are_plain() -> None:
    expressions = {value.expression for value in vars(draws).values() if isinstance(value, draws.Draw)}
    assert expressions
    assert all(map(is_plain_draw, expressions))

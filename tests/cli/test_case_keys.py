"""Tests that case keys stay byte-identical, because stored runs are matched by case key.

The golden file maps suites, command lines and arguments of `operators.cases` to the expected case keys. Operator cases
of the larger suites are omitted, so that adding an operator does not change the golden file.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tessera.cli.main import main
from tessera.operators.cases import cases
from tessera.suites.suite import load_suite

GOLDEN: dict[str, list[str]] = json.loads((Path(__file__).parent / "golden" / "case_keys.json").read_text())


def list_case_keys(line: str, capsys) -> list[str]:
    command, _, arguments = line.partition(" ")
    if command == "suite":
        return [case.key for case in load_suite(arguments).cases if case.feature != "ops" or arguments == "quick"]
    if command == "ops":
        return [case.key for case in cases(**json.loads(arguments))]
    assert main([*line.split(), "--list", "--json"]) == 0
    return [row["case"] for row in json.loads(capsys.readouterr().out)]


@pytest.mark.parametrize("line", GOLDEN)
def test_keys_are_unchanged(line, capsys):
    assert list_case_keys(line, capsys) == GOLDEN[line]

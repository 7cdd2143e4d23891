"""Tests of suite files: allowed fields, durations, and expansion to cases."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tessera.errors import TesseraError
from tessera.suites.suite import list_suites, load_suite, parse_duration, parse_suite

GUIDE = Path(__file__).parents[2] / "docs" / "suites.md"
CASE = {"feature": "ops", "names": ["add"], "size": ["small"]}


@pytest.mark.parametrize("name", list_suites())
def test_the_shipped_suites_load(name):
    suite = load_suite(name)
    assert suite.cases
    assert len({case.key for case in suite.cases}) == len(suite.cases)
    if name == "quick":
        assert suite.budget <= 4.5 * 60


def test_a_user_defined_suite(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('budget = "30s"\nlaunches = 2\n[[cases]]\nfeature = "ops"\nnames = ["matmul"]\nsize = ["small"]\n')
    suite = load_suite(str(path))
    assert (suite.name, suite.budget, suite.launches) == ("mine", 30.0, 2)
    assert [case.name for case in suite.cases] == ["matmul", "matmul"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"cases": []}, "has no cases"),
        ({"cases": [CASE], "bugdet": "1 min"}, "unknown field"),
        ({"cases": [{"feature": "opps"}]}, "unknown feature"),
        ({"cases": [CASE | {"colour": ["red"]}]}, "colour"),
        ({"cases": [CASE], "launches": 0}, "launches"),
        ({"cases": [CASE], "budget": "soon"}, "not a duration"),
        ({"cases": [CASE], "sampling": {"goal": 1}}, "goal"),
        ({"cases": [CASE], "sampling": {"target": 2}}, "fraction"),
        ({"cases": [CASE | {"names": ["nope"]}]}, "unknown operator"),
    ],
)
def test_an_invalid_suite_is_a_one_line_error(data, words):
    with pytest.raises(TesseraError, match=words) as caught:
        parse_suite(data, "mine")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["nope", ".", "pyproject.toml.missing"])
def test_no_such_suite(name):
    with pytest.raises(TesseraError, match="unknown suite"):
        load_suite(name)


def test_a_file_that_is_not_toml(tmp_path):
    path = tmp_path / "truncated.toml"
    path.write_text("[[cases")
    with pytest.raises(TesseraError, match="not a suite file"):
        load_suite(str(path))


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5 min", 90), ("2h", 7200), (3, 3)])
def test_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "x", "-1s", "0", "3 days", "1e9"])
def test_invalid_durations(text):
    with pytest.raises(TesseraError, match="not a duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", re.findall(r"```toml\n(.*?)```", GUIDE.read_text(), re.DOTALL))
def test_the_suites_of_the_guide_load(text):
    suite = parse_suite(tomllib.loads(text), "guide")
    features = {block["feature"] for block in tomllib.loads(text)["cases"]}
    assert {case.feature for case in suite.cases} == features

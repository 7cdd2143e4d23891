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
        ({"cases": [CASE], "sampling": 5}, "sampling"),
        ({"cases": [CASE], "sampling": {"target": "x"}}, "sampling"),
        ({"cases": [CASE], "launches": True}, "launches"),
        ({"cases": [CASE], "launches": 10**12}, "launches"),
        ({"cases": [CASE], "title": ["a"]}, "title"),
        ({"cases": [CASE], "budget": ["1 min"]}, "not a duration"),
        ({"cases": [{"feature": ["ops"]}]}, "feature"),
        ({"cases": [CASE | {"seed": [2**70]}]}, "64-bit"),
        ({"cases": [CASE | {"size": [[]]}]}, "size"),
        (
            {"cases": [{"feature": "halo", "image_size": list(range(1, 1100)), "kernel": list(range(1, 1100))}]},
            "too many",
        ),
        ({"cases": [{"feature": "conv", "table": ["os:getcwd"]}]}, "names code to run.*--allow-code"),
        ({"cases": [{"feature": "function", "file": "mine.py"}]}, "names code to run"),
        ({"cases": [{"feature": "infer", "model": ["/tmp/mine.py:make"]}]}, "names code to run"),
        ({"cases": [{"feature": "infer", "model": ["package.module:Class.build"]}]}, "names code to run"),
        ({"cases": [{"feature": "infer", "model": ["timm:create_model"]}]}, "names code to run"),
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


def test_a_suite_that_names_code_runs_it_only_with_the_users_consent(tmp_path, monkeypatch, capsys):
    from tessera.cli.main import main

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "planted.py").write_text("open('ran', 'w').close()\n")
    (tmp_path / "mine.toml").write_text('[[cases]]\nfeature = "conv"\ntable = ["planted:model"]\n')
    assert main(["suite", "mine.toml", "--dry-run"]) == 2
    assert "add --allow-code" in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()
    assert main(["suite", "mine.toml", "--dry-run", "--allow-code"]) == 2  # the module has no `model`
    assert (tmp_path / "ran").exists()


def test_a_deeply_nested_file_is_refused(tmp_path):
    path = tmp_path / "deep.toml"
    path.write_text("a = " + "[" * 5000 + "]" * 5000)
    with pytest.raises(TesseraError, match="nested too deeply"):
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


@pytest.mark.parametrize("name", list_suites())
def test_shipped_suites_load_without_allow_code(name: str) -> None:
    assert load_suite(name).cases

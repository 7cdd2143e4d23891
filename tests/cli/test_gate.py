"""Tests of `tessera gate`: exit codes, output files of every format, revisions, interpreters, and bad input."""

from __future__ import annotations

import json
import os
import sys
from xml.etree import ElementTree

import pytest

from tessera.ab.gate_formats import GATE_FORMATS
from tessera.cli.main import main
from tessera.results.store import Store
from tests.ab.packages import make_repository, slow_down

SLOW_IF_ASKED = """\
import hashlib, os, tessera

@tessera.benchmark(size=[100_000])
def digest(size):
    data = bytes(size * (2 if os.environ.get("SLOW") else 1))
    return lambda: hashlib.blake2b(data).digest()

@tessera.benchmark
def only_in_head():
    if not os.environ.get("SLOW"):
        raise RuntimeError("not yet written")
    return lambda: None
"""


@pytest.mark.timeout(300)
def test_a_slower_revision_gives_exit_code_1_and_all_output_files(work_directory, monkeypatch, capsys):
    monkeypatch.chdir(make_repository(work_directory / "repository"))
    slow_down(work_directory / "repository")
    files = {name: work_directory / f"out-{name}" for name in GATE_FORMATS}
    writes = [word for name, path in files.items() for word in ("--write", f"{name}={path}")]
    code = main(["gate", "--base", "main", "--benchmarks", "benchmarks/speed.py", "--quick", "--total", "8s", *writes])
    output = capsys.readouterr()
    assert code == 1, output
    assert "slower" in output.out
    texts = {name: path.read_text() for name, path in files.items()}
    assert "## Performance gate: slower" in texts["markdown"]
    suite = ElementTree.fromstring(texts["junit"])[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    (result,) = json.loads(texts["sarif"])["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == os.path.join("benchmarks", "speed.py")
    assert place["region"]["startLine"] == 3
    assert texts["github-annotations"].startswith("::error file=benchmarks/speed.py,line=3,title=function/digest[size")
    by_case = {case["case"]: case for case in json.loads(texts["json"])["cases"]}
    slower = by_case["function/digest[size=100000]"]
    assert slower["verdict"] == "slower"
    assert slower["stage"] == "confirmation"
    assert 1.6 < slower["ratio"] < 2.4
    assert by_case["function/join"]["verdict"] in ("same", "unresolved")
    database = json.loads(texts["pytorch"])
    assert {record["model"]["name"] for record in database} == set(by_case)
    assert all(record["metric"]["benchmark_values"] for record in database)
    action = json.loads(texts["github-action-benchmark"])
    assert {(entry["name"], entry["unit"]) for entry in action} == {(name, "us") for name in by_case}
    for latency in (metrics["latency"] for metrics in json.loads(texts["bencher"]).values()):
        assert latency["lower_value"] <= latency["value"] <= latency["upper_value"]
    with Store() as store:
        records = {record.case.name: record for record in store.read_records(store.get_run("latest"))}
    assert records["digest"].verdict == "slower"
    assert records["digest"].case.params["base"].startswith("main (")
    assert main(["report", "latest", "-o", "page.html"]) == 0
    assert main(["repro", "digest"]) == 2


@pytest.mark.timeout(300)
def test_two_environments_and_a_case_that_is_new_in_the_head(work_directory, capsys):
    (work_directory / "speed.py").write_text(SLOW_IF_ASKED)
    words = ["gate", "--benchmarks", "speed.py", "--env-head", "SLOW=1", "--quick", "--total", "5s", "--markdown"]
    assert main(words) == 1
    output = capsys.readouterr().out
    assert "**slower**" in output
    assert "the base cannot run the case" in output
    assert main(["gate", "--benchmarks", "speed.py", "--env-base", "SLOW=1", "--quick", "--total", "5s"]) == 4
    assert "the head cannot run the case" in capsys.readouterr().out


@pytest.mark.timeout(300)
def test_cases_of_features_without_a_callable_are_measured_as_a_whole(work_directory, capsys):
    (work_directory / "grid.toml").write_text(
        '[[cases]]\nfeature = "conv"\nimage_size = [8]\nin_channels = [4]\nout_channels = [4]\n'
    )
    words = ["--base-python", sys.executable, "--env-head", "X=1", "--quick", "--total", "2s", "--json"]
    assert main(["gate", "--suite", "grid.toml", *words[:-1], "--list"]) == 0
    assert "conv/conv2d" in capsys.readouterr().out
    assert main(["gate", "--suite", "grid.toml", *words]) in (0, 1)
    (record,) = json.loads(capsys.readouterr().out)["records"]
    assert (record["status"], record["details"]["gated_feature"]) == ("ok", "conv")


@pytest.mark.timeout(120)
def test_a_package_beside_the_benchmark_file_is_detected(work_directory, monkeypatch, capsys):
    repository = make_repository(work_directory / "repository")
    (repository / "src" / "speed.py").write_text((repository / "benchmarks" / "speed.py").read_text())
    monkeypatch.chdir(repository)
    assert main(["gate", "--base", "main", "--benchmarks", "src/speed.py", "--quick", "--total", "1s"]) == 3
    assert "the package hashed_package is not imported from the build of its revision" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--base", "main"], "no case is given"),
        (["add"], "nothing to compare with"),
        (["add", "--base", "main", "--head-python", "python3"], "revisions and interpreters cannot be combined"),
        (["add", "--base", "main", "--write", "yaml=x"], "invalid value of --write: got 'yaml=x'"),
        (["add", "--base", "main", "--write", "junit=nowhere/x.xml"], "the folder of the output file does not exist"),
        (["add", "--env-head", "X=1", "--false-alarms", "100%"], "--false-alarms: not a fraction: got '100%'"),
        (["add", "--env-head", "X"], "--env-head: got 'X'; allowed: NAME=VALUE"),
        (["add", "--base", "main"], "not a Git repository"),
        (["--env-head", "X=1", "--benchmarks", "nowhere.py"], "the benchmark file does not exist"),
        (["add", "--base", "main", "--repository", "nowhere"], "the folder does not exist"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(words, message, capsys):
    code = main(["gate", *words])
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert code == 2
    assert message in error

"""Tests of the CI templates: the shell steps of action.yml and of the GitLab template are run as they are written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from tests.ab.packages import make_repository, run_git, slow_down

ROOT = Path(__file__).parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
GITLAB = yaml.safe_load((ROOT / "ci" / "gitlab-gate.yml").read_text())[".tessera-gate"]
INPUT_PATTERN = re.compile(r"\$\{\{\s*inputs\.([\w-]+)\s*\}\}")


def make_environment(folder: Path, **variables: str) -> dict[str, str]:
    """Return an environment in which `tessera` and `python` are those of the tests."""
    tools = folder / "tools"
    tools.mkdir()
    for name, words in (("tessera", "-m tessera "), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words}"$@"\n')
        (tools / name).chmod(0o755)
    return os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"} | variables


def make_slow_repository(folder: Path) -> Path:
    """Return a clone whose HEAD is slower than the branch main of its origin."""
    origin = make_repository(folder / "origin")
    run_git(folder, "clone", "-q", str(origin), "clone")
    slow_down(folder / "clone")
    run_git(folder / "clone", "commit", "-q", "-a", "-m", "slower")
    return folder / "clone"


def run_action(repository: Path, env: dict[str, str], **inputs: str) -> list[subprocess.CompletedProcess[str]]:
    """Run the steps of action.yml until one fails, as a composite action does."""
    values = {name: entry.get("default", "") for name, entry in ACTION["inputs"].items()} | inputs
    results = []
    for step in ACTION["runs"]["steps"]:
        variables = {
            name: INPUT_PATTERN.sub(lambda match: values[match[1]], text) for name, text in step["env"].items()
        }
        assert not any("${{" in text for text in variables.values()), variables
        command = [step["shell"], "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        results.append(
            subprocess.run(command, cwd=repository, env=env | variables, capture_output=True, text=True, timeout=250)
        )
        if results[-1].returncode:
            break
    return results


@pytest.mark.timeout(300)
def test_the_steps_of_the_action_fail_for_a_slower_commit(work_directory):
    repository = make_slow_repository(work_directory)
    files = {name: str(work_directory / name) for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    results = run_action(
        repository,
        make_environment(work_directory, **files),
        base="origin/main",
        benchmarks="benchmarks/speed.py",
        total="8s",
        arguments="--quick",
        tessera="",
    )
    assert [result.returncode for result in results] == [0, 0, 1], results[-1].stderr
    assert (work_directory / "GITHUB_OUTPUT").read_text() == "exit-code=1\n"
    assert "## Performance gate: slower" in (work_directory / "GITHUB_STEP_SUMMARY").read_text()
    assert "::error file=benchmarks/speed.py,line=3" in results[-1].stdout
    assert ElementTree.parse(repository / "tessera-gate" / "junit.xml").getroot()[0].get("failures") == "1"


def test_the_action_without_a_base_is_a_clear_error(work_directory):
    repository = make_repository(work_directory / "origin")
    results = run_action(repository, make_environment(work_directory), base="", tessera="")
    assert [result.returncode for result in results] == [0, 2]
    assert "::error::The input base is empty" in results[-1].stdout


@pytest.mark.timeout(300)
def test_the_script_of_the_gitlab_template_fails_for_a_slower_commit(work_directory):
    repository = make_slow_repository(work_directory)
    variables: dict[str, Any] = {name: str(value) for name, value in GITLAB["variables"].items()}
    variables |= {"TESSERA": "", "TESSERA_BASE": "origin/main", "TESSERA_BENCHMARKS_FILE": "benchmarks/speed.py"}
    variables |= {"TESSERA_TOTAL": "15s"}
    script = "\n".join(GITLAB["script"]) + " --quick"
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=repository,
        env=make_environment(work_directory, **variables),
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 1, done.stderr
    for path in [*GITLAB["artifacts"]["paths"], GITLAB["artifacts"]["reports"]["junit"]]:
        assert (repository / path).is_file()


def test_every_step_of_the_action_names_its_shell_and_every_used_input_exists():
    assert ACTION["runs"]["using"] == "composite"
    for step in ACTION["runs"]["steps"]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"]  # values go through the environment, so that no input is run as code
    used = set(INPUT_PATTERN.findall((ROOT / "action.yml").read_text()))
    assert used == set(ACTION["inputs"])

"""The tools that judge a pull request: `tessera gate`, and the rules of others on the times of pytest-benchmark."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from asv._stats import is_different
from asv_runner.statistics import compute_stats

from tessera.ab.revisions import RevisionBuilder

THRESHOLD = 0.03  # the smallest relevant change, for the tools that have such a setting
OURS = "tessera gate"


def run_gate(repository: Path, branch: str, total: float) -> tuple[set[str], dict[str, Any]]:
    """Run `tessera gate` on a branch; return the operators that it reports as slower, and its results."""
    with TemporaryDirectory() as folder:
        output = Path(folder, "gate.json")
        words = ["gate", "--base", "main", "--head", branch, "--repository", str(repository)]
        words += ["--benchmarks", str(repository / "speed" / "gate_file.py"), "--total", f"{total}s"]
        words += [
            "--threshold",
            str(THRESHOLD),
            "--store",
            str(Path(folder, "store.sqlite")),
            "--write",
            f"json={output}",
        ]
        done = subprocess.run([sys.executable, "-m", "tessera", *words], capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise RuntimeError(done.stderr + done.stdout)
        cases = {_get_operator(case["case"]): case for case in json.loads(output.read_text())["cases"]}
    slower = {name for name, case in cases.items() if case["verdict"] == "slower"}
    kept = ("verdict", "ratio", "low", "high", "smallest", "stage", "launches")
    return slower, {name: {key: case.get(key) for key in kept} for name, case in cases.items()}


def _get_operator(key: str) -> str:
    return key.partition("operator=")[2].rstrip("]").strip('"')


def run_pytest_benchmark(repository: Path, branch: str, seconds_per_case: float) -> list[dict[str, Sequence[float]]]:
    """Run the suite of pytest-benchmark on main, then on the branch; return the times of each operator's rounds."""
    sides = []
    with TemporaryDirectory() as folder:
        builder = RevisionBuilder(repository=repository, folder=Path(folder))
        for name, revision in (("base", "main"), ("head", branch)):
            python, output = builder.build(name, revision).python, Path(folder, f"{name}.json")
            words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", str(repository / "speed" / "test_speed.py")]
            words += [f"--benchmark-max-time={seconds_per_case}", f"--benchmark-json={output}", "--benchmark-save-data"]
            done = subprocess.run([python, *words, "--rootdir", folder], cwd=folder, capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(done.stdout + done.stderr)
            benchmarks = json.loads(output.read_text())["benchmarks"]
            sides.append({entry["params"]["operator"]: entry["stats"]["data"] for entry in benchmarks})
    return sides


def judge_times(base: Mapping[str, Sequence[float]], head: Mapping[str, Sequence[float]]) -> dict[str, set[str]]:
    """Return, for each rule, the operators that it reports as slower."""
    slower: dict[str, set[str]] = {name: set() for name in RULES}
    for operator, times in base.items():
        for name, rule in RULES.items():
            if rule(times, head[operator]):
                slower[name].add(operator)
    return slower


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _judge_by_asv(base: Sequence[float], head: Sequence[float], factor: float) -> bool:
    """Apply asv's rule: a significant difference, and a ratio of the medians beyond the factor."""
    (before, stats_before), (after, stats_after) = compute_stats(base, 1), compute_stats(head, 1)
    return bool(is_different(base, head, stats_before, stats_after)) and after / before > factor


RULES = {
    "pytest-benchmark min:3%": lambda base, head: min(head) / min(base) > 1 + THRESHOLD,
    "pytest-benchmark mean:3%": lambda base, head: _mean(head) / _mean(base) > 1 + THRESHOLD,
    "asv, factor 1.03": lambda base, head: _judge_by_asv(base, head, 1 + THRESHOLD),
    "asv, factor 1.1": lambda base, head: _judge_by_asv(base, head, 1.1),
    "github-action-benchmark 150%": lambda base, head: _mean(head) / _mean(base) > 1.5,
    "torch 50%": lambda base, head: sorted(head)[len(head) // 2] / sorted(base)[len(base) // 2] > 1.5,
}


def judge_pull_request(repository: Path, branch: str, total: float, operators: int, peers: bool) -> dict[str, Any]:
    """Let all tools judge a branch. The other tools get the same time for measuring."""
    began = time.monotonic()
    ours, cases = run_gate(repository, branch, total)
    result: dict[str, Any] = {"slower": {OURS: sorted(ours)}, "seconds": time.monotonic() - began, "cases": cases}
    if peers:
        base, head = run_pytest_benchmark(repository, branch, total / operators / 2)
        result["slower"] |= {name: sorted(found) for name, found in judge_times(base, head).items()}
    return result

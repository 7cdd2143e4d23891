"""Tests of A/B comparisons of interpreters: interval coverage, a known change, an interpreter without Tessera."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from tessera.ab.runner import INTERPRETER_SPREAD, INTERPRETERS_PER_SIDE, ABRunner, estimate_log_ratio
from tessera.errors import TesseraError
from tessera.launch import LaunchConfig
from tessera.measure.statistics import judge_ratio

HERE = "tests.ab.test_runner"


def build_hashing(blocks: int) -> Callable[[], object]:
    data = bytes(10_000 * blocks)
    return lambda: hashlib.blake2b(data).digest()


def raise_error() -> Callable[[], object]:
    raise TesseraError("cannot be made", got="nothing")


def test_intervals_cover_the_true_ratio_despite_interpreter_spread_and_noise():
    rng = np.random.default_rng()
    hits = 0
    for _ in range(400):
        by_interpreter = np.repeat(rng.normal(0.02, INTERPRETER_SPREAD, INTERPRETERS_PER_SIDE), 9)
        values = (
            by_interpreter
            + rng.normal(0, 0.015, len(by_interpreter))
            + rng.choice([0, 0, 0, 0, -0.3, 0.3], len(by_interpreter))
        )
        estimate = estimate_log_ratio(values)
        hits += estimate.low <= 0.02 <= estimate.high
    assert hits / 400 > 0.88


def test_many_launches_do_not_narrow_the_interval_of_few_interpreters():
    estimate = estimate_log_ratio([0.0] * 10_000)
    assert 0.003 < estimate.high - estimate.low < 0.02


@pytest.mark.timeout(100)
def test_a_known_change_is_detected_and_no_process_is_left():
    existing = set(psutil.Process().children(recursive=True))
    with ABRunner(LaunchConfig(), LaunchConfig(), seed=1, interpreters=4) as sides:
        slower = sides.compare(f"{HERE}:build_hashing", (10,), (15,), budget=2.0)
        faster = sides.compare(f"{HERE}:build_hashing", (15,), (10,), budget=2.0)
        with pytest.raises(TesseraError, match="cannot be made"):
            sides.compare(f"{HERE}:raise_error", budget=1.0)
        again = sides.compare(f"{HERE}:build_hashing", (10,), (15,), budget=1.0)
    assert judge_ratio(slower.ratio(), 0.01) == "slower"
    assert judge_ratio(faster.ratio(), 0.01) == "faster"
    assert 1.2 < slower.ratio().value < 1.9
    assert again.ratio().value > 1.1
    assert len(slower.a) == len(slower.b) == len(slower.log_ratios)
    assert not set(psutil.Process().children(recursive=True)) - existing


@pytest.mark.timeout(100)
def test_the_other_interpreter_needs_numpy_but_not_tessera(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "other")], check=True, timeout=60)
    (packages,) = (tmp_path / "other").glob("lib/python3*/site-packages")
    for part in Path(np.__file__).parents[1].glob("numpy*"):
        os.symlink(part, packages / part.name)
    python = str(tmp_path / "other" / "bin" / "python")
    with ABRunner(LaunchConfig(), LaunchConfig(python=python), interpreters=2) as sides:
        series = sides.compare("tessera.ab.self_test:build_work", budget=1.0)
    assert 0.3 < series.ratio().value < 3

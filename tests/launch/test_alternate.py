"""A/B between interpreters: intervals that cover, a planted change found, another interpreter without Tessera."""

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

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig
from tessera.launch.alternate import APART, INTERPRETERS, Alternator, launches_interval
from tessera.measure.verdict import verdict_of

HERE = "tests.launch.test_alternate"


def hashing(blocks: int) -> Callable[[], object]:
    data = bytes(10_000 * blocks)
    return lambda: hashlib.blake2b(data).digest()


def broken() -> Callable[[], object]:
    raise TesseraError("cannot be made", got="nothing")


def test_the_interval_covers_interpreters_that_lie_apart_and_launches_that_were_hit():
    rng = np.random.default_rng()
    hits = 0
    for _ in range(400):
        apart = np.repeat(rng.normal(0.02, APART, INTERPRETERS), 9)
        values = apart + rng.normal(0, 0.015, len(apart)) + rng.choice([0, 0, 0, 0, -0.3, 0.3], len(apart))
        found = launches_interval(values)
        hits += found.low <= 0.02 <= found.high
    assert hits / 400 > 0.88


def test_many_launches_do_not_make_few_interpreters_certain():
    found = launches_interval([0.0] * 10_000)
    assert 0.003 < found.high - found.low < 0.02


@pytest.mark.timeout(100)
def test_a_planted_change_is_found_and_nothing_is_left_behind():
    others = set(psutil.Process().children(recursive=True))
    with Alternator(LaunchConfig(), LaunchConfig(), seed=1, interpreters=4) as sides:
        slower = sides.compare(f"{HERE}:hashing", (10,), (15,), budget=2.0)
        faster = sides.compare(f"{HERE}:hashing", (15,), (10,), budget=2.0)
        with pytest.raises(TesseraError, match="cannot be made"):
            sides.compare(f"{HERE}:broken", budget=1.0)
        again = sides.compare(f"{HERE}:hashing", (10,), (15,), budget=1.0)
    assert verdict_of(slower.ratio(), 0.01) == "slower"
    assert verdict_of(faster.ratio(), 0.01) == "faster"
    assert 1.2 < slower.ratio().value < 1.9
    assert again.ratio().value > 1.1
    assert len(slower.a) == len(slower.b) == len(slower.log_ratios)
    assert not set(psutil.Process().children(recursive=True)) - others


@pytest.mark.timeout(100)
def test_another_interpreter_needs_numpy_and_not_tessera(tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "other")], check=True, timeout=60)
    (packages,) = (tmp_path / "other").glob("lib/python3*/site-packages")
    for part in Path(np.__file__).parents[1].glob("numpy*"):
        os.symlink(part, packages / part.name)
    other = str(tmp_path / "other" / "bin" / "python")
    with Alternator(LaunchConfig(), LaunchConfig(python=other), interpreters=2) as sides:
        found = sides.compare("tessera.launch.selftest:make_work", budget=1.0)
    assert 0.3 < found.ratio().value < 3

"""Tests of the examples: every example runs and prints the expected text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
EXPECTED = {
    "time_an_operator.py": "95 % interval",
    "which_is_faster.py": "channels last takes",
    "run_on_workers.py": "hello from rank 1 of 2",
    "compare_two_runs.py": "ops/add[",
    "benchmark_an_operator.py": "NP_Add_Forward_Time - ",
    "own_operators.py": "ops/swiglu[",
    "own_benchmarks.py": "sort_list of 100000",
    "spatial_training.py": "on two ranks",
    "volume_training.py": "on two replicas of two ranks",
    "generate_text.py": "32 tokens with",
    "tiled_decode.py": "from 4 tiles",
    "vae_decode.py": "largest difference between unsplit and two ranks",
    "core_grid.py": "core grid: PCC 0.9",
    "larger_than_memory.py": "correct output, with weights of 4 times the memory limit",
    "images_per_second.py": "images/s",
}


def test_every_example_has_an_expected_text():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
@pytest.mark.timeout(120)
def test_the_example_runs(name, tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert EXPECTED[name] in done.stdout

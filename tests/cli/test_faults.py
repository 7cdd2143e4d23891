"""A sample of benchmarks/faults.py: damaged and made-up inputs of every reader never end in a traceback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "faults.py"


def run_fuzz(count: int, seconds: int) -> None:
    words = [sys.executable, str(SCRIPT), "--only", "fuzz", "--count", str(count)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, env=os.environ, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(rf"{count} inputs, 0 failures", done.stdout)) == 5


@pytest.mark.timeout(200)
def test_a_sample_of_damaged_inputs() -> None:
    run_fuzz(40, 180)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_damaged_inputs() -> None:
    run_fuzz(3000, 3500)

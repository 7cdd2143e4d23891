"""Tests of a system without processor affinity: nothing is pinned, and commands run."""

from __future__ import annotations

import os
import subprocess
import sys

from tessera.affinity import get_affinity

BENCHMARK = "import tessera\n\n@tessera.benchmark\ndef count():\n    return lambda: sum(range(1000))\n"


def test_commands_run_without_the_affinity_calls_of_linux(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import os\ndel os.sched_getaffinity, os.sched_setaffinity\n")
    (tmp_path / "speed.py").write_text(BENCHMARK)
    path = os.pathsep.join([str(tmp_path / "site"), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-m", "tessera", "run", "speed.py", "--quick"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert "count" in done.stdout


def test_the_affinity_of_this_process_is_that_of_the_system():
    assert get_affinity() == os.sched_getaffinity(0)

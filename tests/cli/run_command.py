"""Run the `tessera` command in a new process, alone or on ranks of torchrun."""

from __future__ import annotations

import os
import subprocess
import sys


def run_tessera(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run `tessera` with the given arguments in a new process."""
    return subprocess.run(
        [sys.executable, "-m", "tessera", *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        **options,
    )


def run_tessera_in_job(*words: str) -> subprocess.CompletedProcess[str]:
    """Run `tessera` with the given arguments on two ranks that torchrun starts."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tessera")
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *launcher, *words], capture_output=True, text=True, timeout=100, check=False, env=env
    )

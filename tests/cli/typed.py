"""Commands as a user types them: processes of their own, alone or started by torchrun."""

from __future__ import annotations

import os
import subprocess
import sys


def tessera(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tessera", *words],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        **options,
    )


def in_a_job(*words: str) -> subprocess.CompletedProcess[str]:
    """The command on two ranks that torchrun itself has started."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "tessera")
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *launcher, *words], capture_output=True, text=True, timeout=100, check=False, env=env
    )

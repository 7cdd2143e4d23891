"""One worker in the calling process."""

from __future__ import annotations

import os
import time

import pytest
import torch

from tessera.errors import BenchmarkFailed, Refused, TimedOut
from tessera.launch import LaunchConfig, Workers

CHORES = "tests.launch.chores"


def test_runs_here_and_leaves_things_as_they_were() -> None:
    before, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    with Workers(LaunchConfig(spawn="inline", threads=before + 1)) as workers:
        assert workers.is_root
        assert workers.run(f"{CHORES}:times", 3) == [(0, 1, os.getpid())]
        assert workers.run(f"{CHORES}:torch_threads") == [before + 1]
    assert (torch.get_num_threads(), os.sched_getaffinity(0)) == (before, cores)


def test_errors() -> None:
    with Workers(LaunchConfig(spawn="inline")) as workers:
        with pytest.raises(Refused, match="not this one: got 0; allowed: another"):
            workers.run(f"{CHORES}:refuse")
        with pytest.raises(BenchmarkFailed, match=r"rank 0 of 1 raised ZeroDivisionError: nothing left \(chores.py:"):
            workers.run(f"{CHORES}:stumble", 0)


@pytest.mark.timeout(20)
def test_time_limit() -> None:
    began = time.monotonic()
    with Workers(LaunchConfig(spawn="inline")) as workers, pytest.raises(TimedOut, match=r"0\.3 s"):
        workers.run(f"{CHORES}:pause", 10.0, time_limit=0.3)
    assert time.monotonic() - began < 5

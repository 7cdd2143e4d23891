"""Tests of the inline launcher: one worker in the calling process."""

from __future__ import annotations

import os
import time

import pytest
import torch

from tessera.errors import BenchmarkFailed, Refused, TimedOut
from tessera.launch import LaunchConfig, Workers

FUNCTIONS = "tests.launch.worker_functions"


def test_inline_call_runs_in_this_process_and_restores_its_settings() -> None:
    before, cores = torch.get_num_threads(), os.sched_getaffinity(0)
    with Workers(LaunchConfig(spawn="inline", threads=before + 1)) as workers:
        assert workers.is_root
        assert workers.run(f"{FUNCTIONS}:multiply_rank", 3) == [(0, 1, os.getpid())]
        assert workers.run(f"{FUNCTIONS}:get_torch_threads") == [before + 1]
    assert (torch.get_num_threads(), os.sched_getaffinity(0)) == (before, cores)


def test_inline_errors_are_raised_unchanged_or_as_benchmark_failed() -> None:
    with Workers(LaunchConfig(spawn="inline")) as workers:
        with pytest.raises(Refused, match="not this one: got 0; allowed: another"):
            workers.run(f"{FUNCTIONS}:refuse")
        message = r"rank 0 of 1 raised ZeroDivisionError: nothing left \(worker_functions.py:"
        with pytest.raises(BenchmarkFailed, match=message):
            workers.run(f"{FUNCTIONS}:raise_on_rank", 0)


@pytest.mark.timeout(20)
def test_inline_call_ends_at_the_time_limit() -> None:
    began = time.monotonic()
    with Workers(LaunchConfig(spawn="inline")) as workers, pytest.raises(TimedOut, match=r"0\.3 s"):
        workers.run(f"{FUNCTIONS}:pause", 10.0, time_limit=0.3)
    assert time.monotonic() - began < 5

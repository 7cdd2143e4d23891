"""Tests of invalid launch configurations, which are refused with a one-line message."""

from __future__ import annotations

from typing import Any

import pytest

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Workers


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"spawn": "threads"},
            "unknown launcher: got 'threads'; allowed: inline, processes, torchrun, mpiexec",
        ),
        ({"workers": 0}, "invalid number of workers: got 0; allowed: 1 or more"),
        ({"threads": 0}, "invalid number of threads per worker: got 0; allowed: 1 or more"),
        (
            {"spawn": "inline", "workers": 2},
            "the launcher inline supports only one worker: got 2; allowed: 1; use the launcher processes",
        ),
        ({"time_limit": 0.0}, "invalid time limit: got 0.0; allowed: seconds above 0"),
        ({"allocator": "jemalloc"}, "unknown allocator setting: got 'jemalloc'; allowed: steady, system"),
    ],
)
def test_invalid_configurations_are_errors(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(TesseraError) as caught:
        LaunchConfig(**wrong)
    assert str(caught.value) == message


@pytest.mark.parametrize("target", ["no_colon", ":function", "module:", ""])
def test_invalid_function_names_are_errors(target: str) -> None:
    with (
        Workers(LaunchConfig(spawn="inline")) as workers,
        pytest.raises(TesseraError, match=r"package\.module:function"),
    ):
        workers.run(target)


def test_workers_require_a_with_block() -> None:
    with pytest.raises(TesseraError, match="use `with Workers"):
        Workers(LaunchConfig(spawn="inline")).run("tests.launch.worker_functions:count")


def test_a_missing_interpreter_is_an_error() -> None:
    with pytest.raises(TesseraError, match=r"cannot start a worker: No such file or directory: got '/no/python'"):
        Workers(LaunchConfig(python="/no/python")).__enter__()

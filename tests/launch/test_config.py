"""A launch that cannot work is refused in one line that says what would."""

from __future__ import annotations

from typing import Any

import pytest

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Workers


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"spawn": "threads"},
            "unknown way to launch: got 'threads'; allowed: inline, processes, torchrun, mpiexec",
        ),
        ({"workers": 0}, "a launch needs workers: got 0; allowed: 1 or more"),
        ({"threads": 0}, "a worker needs threads: got 0; allowed: 1 or more"),
        (
            {"spawn": "inline", "workers": 2},
            "inline is one worker: got 2; allowed: 1; use processes or torchrun",
        ),
        ({"time_limit": 0.0}, "a time limit is positive: got 0.0; allowed: seconds above 0"),
        ({"allocator": "jemalloc"}, "unknown allocator setting: got 'jemalloc'; allowed: steady, system"),
    ],
)
def test_bad_configs(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(TesseraError) as caught:
        LaunchConfig(**wrong)
    assert str(caught.value) == said


@pytest.mark.parametrize("target", ["no_colon", ":function", "module:", ""])
def test_bad_targets(target: str) -> None:
    with (
        Workers(LaunchConfig(spawn="inline")) as workers,
        pytest.raises(TesseraError, match=r"package\.module:function"),
    ):
        workers.run(target)


def test_workers_need_a_with_block() -> None:
    with pytest.raises(TesseraError, match="`with` block"):
        Workers(LaunchConfig(spawn="inline")).run("tests.launch.chores:count")


def test_a_python_that_is_not_there() -> None:
    with pytest.raises(TesseraError, match=r"does not start: got '/no/python'"):
        Workers(LaunchConfig(python="/no/python")).__enter__()

"""The configuration of a launch: launcher, number of workers, threads, pinning, allocator, time limit."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tessera.errors import TesseraError
from tessera.measure.allocator import DEFAULT_ALLOCATOR, get_allocator_env

SpawnMethod = Literal["inline", "processes", "torchrun", "mpiexec"]
SPAWN_METHODS: tuple[SpawnMethod, ...] = ("inline", "processes", "torchrun", "mpiexec")

# Longer limits count as this one: the operating system cannot wait longer than 24 days at once.
MAX_TIME_LIMIT = 20 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """The configuration of a launch: `workers` processes with `threads` threads each, pinned to cores if `pin` is set.

    `time_limit` is in seconds per call, at most `MAX_TIME_LIMIT`. `env` is added to the environment of the workers.
    """

    spawn: SpawnMethod = "processes"
    workers: int = 1
    threads: int = 1
    pin: bool = True
    allocator: str = DEFAULT_ALLOCATOR
    time_limit: float | None = None
    tag_output: bool = False
    python: str = sys.executable
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.spawn not in SPAWN_METHODS:
            raise TesseraError("unknown launcher", got=self.spawn, allowed=SPAWN_METHODS)
        if self.workers < 1:
            raise TesseraError("invalid number of workers", got=self.workers, allowed="1 or more")
        if self.threads < 1:
            raise TesseraError("invalid number of threads per worker", got=self.threads, allowed="1 or more")
        if self.spawn == "inline" and self.workers > 1:
            raise TesseraError(
                "the launcher inline supports only one worker",
                got=self.workers,
                allowed="1",
                do="use the launcher processes",
            )
        if self.time_limit is not None and self.time_limit <= 0:
            raise TesseraError("invalid time limit", got=self.time_limit, allowed="seconds above 0")
        get_allocator_env(self.allocator)

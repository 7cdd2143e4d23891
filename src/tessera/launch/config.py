"""What to launch: how many workers of which kind, where they are pinned, how long they may take."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tessera.errors import TesseraError
from tessera.measure.allocator import DEFAULT, allocator_env

Spawn = Literal["inline", "processes", "torchrun", "mpiexec"]
SPAWNS: tuple[Spawn, ...] = ("inline", "processes", "torchrun", "mpiexec")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """`workers` processes of one kind, each with `threads` threads, pinned to cores of their own."""

    spawn: Spawn = "processes"
    workers: int = 1
    threads: int = 1
    pin: bool = True
    allocator: str = DEFAULT
    time_limit: float | None = None
    tag_output: bool = False
    python: str = sys.executable
    env: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.spawn not in SPAWNS:
            raise TesseraError("unknown way to launch", got=self.spawn, allowed=SPAWNS)
        if self.workers < 1:
            raise TesseraError("a launch needs workers", got=self.workers, allowed="1 or more")
        if self.threads < 1:
            raise TesseraError("a worker needs threads", got=self.threads, allowed="1 or more")
        if self.spawn == "inline" and self.workers > 1:
            raise TesseraError("inline is one worker", got=self.workers, allowed="1", do="use processes or torchrun")
        if self.time_limit is not None and self.time_limit <= 0:
            raise TesseraError("a time limit is positive", got=self.time_limit, allowed="seconds above 0")
        allocator_env(self.allocator)

"""Where workers meet the process that launched them, and what they have to know before anything else."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from tessera.launch.config import Spawn

LONGEST_SOCKET = 100  # bytes in the path of a Unix socket


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The launch as its workers see it; `cpus` has one entry per rank, empty ones where nothing is pinned."""

    spawn: Spawn
    size: int
    threads: int
    cpus: tuple[tuple[int, ...], ...]

    def write(self, directory: Path) -> None:
        (directory / "plan.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, directory: Path) -> Plan:
        data = json.loads((directory / "plan.json").read_text())
        return cls(**data | {"cpus": tuple(map(tuple, data["cpus"]))})


def private_directory() -> Path:
    """A new directory that only this user may enter, with a path short enough for sockets."""
    made = Path(tempfile.mkdtemp(prefix="tessera-"))
    if len(os.fsencode(lifeline_socket(made))) <= LONGEST_SOCKET:
        return made
    made.rmdir()
    return Path(tempfile.mkdtemp(prefix="tessera-", dir="/tmp"))


def control_socket(directory: Path) -> str:
    return str(directory / "control")


def output_socket(directory: Path) -> str:
    return str(directory / "output")


def lifeline_socket(directory: Path) -> str:
    return str(directory / "lifeline")

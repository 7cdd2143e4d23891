"""What a worker process has to know before it does anything else, as a file it reads at its start."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tessera.launch.config import Spawn


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


def control_socket(directory: Path) -> str:
    return str(directory / "control")


def output_socket(directory: Path) -> str:
    return str(directory / "output")


def lifeline_socket(directory: Path) -> str:
    return str(directory / "lifeline")

"""The directory with which workers connect to the launching process: settings of the launch, and socket paths."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from tessera.launch.config import SpawnMethod

MAX_SOCKET_PATH_BYTES = 100  # the kernel's limit is 108


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBootstrap:
    """The settings that a worker reads when it starts. `cpus` has one entry per rank, empty without pinning."""

    spawn: SpawnMethod
    size: int
    threads: int
    cpus: tuple[tuple[int, ...], ...]

    def write(self, directory: Path) -> None:
        """Write the settings into the directory of the launch."""
        (directory / "bootstrap.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, directory: Path) -> WorkerBootstrap:
        """Read the settings from the directory of the launch."""
        data = json.loads((directory / "bootstrap.json").read_text())
        return cls(**data | {"cpus": tuple(map(tuple, data["cpus"]))})


def make_private_directory() -> Path:
    """Create a directory that only this user can open, with a path short enough for Unix sockets."""
    directory = Path(tempfile.mkdtemp(prefix="tessera-"))
    if len(os.fsencode(get_lifeline_socket_path(directory))) <= MAX_SOCKET_PATH_BYTES:
        return directory
    directory.rmdir()
    return Path(tempfile.mkdtemp(prefix="tessera-", dir="/tmp"))


def get_control_socket_path(directory: Path) -> str:
    """Return the path of the socket for calls and replies."""
    return str(directory / "control")


def get_output_socket_path(directory: Path) -> str:
    """Return the path of the socket for standard output and error."""
    return str(directory / "output")


def get_lifeline_socket_path(directory: Path) -> str:
    """Return the path of the socket that ends the workers (see `lifeline`)."""
    return str(directory / "lifeline")

"""Streaming memory: where the weights lie while they are not computed with.

Each kind is a safetensors file to those who read it: one on disk, one without a name that goes with the process, or one
in host memory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tessera.errors import TesseraError
from tessera.phased.store.weights_file import WeightsFile
from tessera.phased.store.weights_writer import Entry, Values, write_file, write_to

CHUNK = 1 << 24


class Store:
    """An open file of weights; `fd` is that of a file without a name, which lives as long as it is open."""

    def __init__(self, kind: str, path: Path, fd: int = -1) -> None:
        self.kind, self._fd = kind, fd
        try:
            self.file = WeightsFile(path)
        except BaseException:
            self._let_go()
            raise

    def drop_cache(self) -> None:
        """Make the next read cold: forget what the system has cached of the file."""
        if self.kind == "host":
            raise TesseraError("host memory is never cold", do="use the store disk")
        os.fsync(self.file.fd)  # what is not written yet cannot be forgotten
        os.posix_fadvise(self.file.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        self.file.close()
        self._let_go()

    def _let_go(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def write_store(
    kind: str,
    groups: Sequence[Sequence[Entry]],
    values: Values,
    *,
    path: Path | None,
    directory: Path | None,
    checksums: bool,
) -> Store:
    """A new store with these tensors, group by group; one without a path goes with this process, however it ends."""
    if path is not None:
        write_file(path, groups, values, checksums=checksums)
        return open_store(kind, path)
    fd = _nameless(kind, directory)
    try:
        write_to(fd, groups, values, checksums=checksums)
        if kind != "host":
            os.fsync(fd)
    except BaseException as error:
        os.close(fd)
        if isinstance(error, OSError):
            raise TesseraError(
                f"cannot write weights: {error.strerror}", got=str(directory or tempfile.gettempdir())
            ) from None
        raise
    return Store(kind, _path_of(fd), fd)


def open_store(kind: str, path: Path) -> Store:
    """The store of a file that is there; for host memory, a copy of it."""
    if kind != "host":
        return Store(kind, path)
    source = WeightsFile(path)
    fd = _nameless(kind, None)
    try:
        at = 0
        while at < source.size and (data := os.pread(source.fd, CHUNK, at)):
            at += os.pwrite(fd, data, at)
        source.check_unchanged()
    except BaseException as error:
        os.close(fd)
        if isinstance(error, OSError):
            raise TesseraError(f"cannot keep weights in host memory: {error.strerror}", got=str(path)) from None
        raise
    finally:
        source.close()
    return Store(kind, _path_of(fd), fd)


def _nameless(kind: str, directory: Path | None) -> int:
    if kind == "host":
        return os.memfd_create("tessera-weights", os.MFD_CLOEXEC)
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            return os.dup(file.fileno())
    except OSError as error:
        raise TesseraError(
            f"cannot write weights: {error.strerror}", got=str(directory or tempfile.gettempdir())
        ) from None


def _path_of(fd: int) -> Path:
    """A path by which a file without a name can be opened, from other processes as well."""
    return Path(f"/proc/{os.getpid()}/fd/{fd}")

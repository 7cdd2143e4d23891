"""Weight stores: storage of weights that are not in working memory.

A store is always read as a safetensors file: a named file, an unnamed file that is removed with the process, or an
unnamed file in host memory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tessera.errors import TesseraError
from tessera.phased.store.weights_file import CombinedFile, WeightsFile
from tessera.phased.store.weights_writer import ValueSource, WeightEntry, write_tensors, write_weights_file

COPY_CHUNK_BYTES = 1 << 24


class WeightStore:
    """An open file of weights; `fd` is the descriptor of an unnamed file, which exists as long as it is open."""

    def __init__(self, path: Path, fd: int = -1, *, in_memory: bool = False, file: WeightsFile | None = None) -> None:
        self._fd, self._in_memory = fd, in_memory
        self._others: list[WeightStore] = []
        try:
            self.file = file or WeightsFile(path)
        except BaseException:
            self._close_unnamed_file()
            raise

    def drop_cache(self) -> None:
        """Drop the weights file from the page cache, so that the next read is cold."""
        if self._in_memory:
            raise TesseraError("weights in host memory cannot be read cold", do="use store='disk'")
        for _, file in self.file.list_parts():
            os.fsync(file.fd)  # dirty pages cannot be dropped
            os.posix_fadvise(file.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def combine(self, other: WeightStore) -> None:
        """Add the tensors of another store, which is closed with this one."""
        self.file = CombinedFile([*(file for _, file in self.file.list_parts()), other.file])
        self._others.append(other)

    def close(self) -> None:
        self.file.close()
        self._close_unnamed_file()
        for other in self._others:
            other.close()

    def _close_unnamed_file(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def write_store(
    groups: Sequence[Sequence[WeightEntry]],
    values: ValueSource,
    *,
    path: Path | None,
    directory: Path | None,
    checksums: bool,
    in_memory: bool = False,
) -> WeightStore:
    """Write a new store with these tensors, group by group; without `path` it is removed with this process."""
    if path is not None:
        write_weights_file(path, groups, values, checksums=checksums)
        return open_store(path, in_memory=in_memory)
    fd = _create_unnamed_file(directory, in_memory=in_memory)
    try:
        write_tensors(fd, groups, values, checksums=checksums)
        if not in_memory:
            os.fsync(fd)
    except BaseException as error:
        os.close(fd)
        if isinstance(error, OSError):
            raise TesseraError(
                f"cannot write weights: {error.strerror}", got=str(directory or tempfile.gettempdir())
            ) from None
        raise
    return WeightStore(_get_fd_path(fd), fd, in_memory=in_memory)


def open_store(path: Path, *, in_memory: bool = False) -> WeightStore:
    """Open the store of an existing file; with `in_memory`, copy the file to host memory first."""
    if not in_memory:
        return WeightStore(path)
    source = WeightsFile(path)
    fd = _create_unnamed_file(None, in_memory=True)
    try:
        at = 0
        while at < source.size and (data := os.pread(source.fd, COPY_CHUNK_BYTES, at)):
            at += os.pwrite(fd, data, at)
        source.check_unchanged()
    except BaseException as error:
        os.close(fd)
        if isinstance(error, OSError):
            raise TesseraError(f"cannot copy weights to host memory: {error.strerror}", got=str(path)) from None
        raise
    finally:
        source.close()
    return WeightStore(_get_fd_path(fd), fd, in_memory=True)


def _create_unnamed_file(directory: Path | None, *, in_memory: bool) -> int:
    if in_memory:
        return os.memfd_create("tessera-weights", os.MFD_CLOEXEC)
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            return os.dup(file.fileno())
    except OSError as error:
        raise TesseraError(
            f"cannot write weights: {error.strerror}", got=str(directory or tempfile.gettempdir())
        ) from None


def _get_fd_path(fd: int) -> Path:
    """Return a path by which any process can open an unnamed file."""
    return Path(f"/proc/{os.getpid()}/fd/{fd}")

"""Memory of a process that others on its host can map: no name in any file system, gone with the last who holds it."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

import torch
from torch import Tensor

from tessera.errors import TesseraError


@dataclass(frozen=True, slots=True)
class Address:
    """Where another process finds a piece of memory: its descriptor there, and what it must turn out to be."""

    path: str
    identity: tuple[int, int]
    size: int


class Memory:
    """A piece of this process's memory, with an address for others; the descriptor stays open until it is closed."""

    def __init__(self, size: int) -> None:
        self._handle = os.memfd_create("tessera", os.MFD_CLOEXEC)
        os.ftruncate(self._handle, size)
        self._map = mmap.mmap(self._handle, size)
        path = f"/proc/{os.getpid()}/fd/{self._handle}"
        self.address = Address(path, _identity(self._handle), size)
        self.start = torch.frombuffer(self._map, dtype=torch.uint8).data_ptr()

    def tensor(self, offset: int, count: int, dtype: torch.dtype) -> Tensor:
        """Numbers in it, from a byte on; they keep the memory mapped."""
        return torch.frombuffer(self._map, dtype=dtype, offset=offset, count=count)

    def close(self) -> None:
        """Nobody maps it any more; it is freed when those who did let go."""
        os.close(self._handle)


def mapped(address: Address) -> mmap.mmap:
    """The memory of another process on this host."""
    try:
        handle = os.open(address.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if _identity(handle) != address.identity:  # its process has another number where this one looks
                raise OSError("it belongs to another process")
            return mmap.mmap(handle, address.size)
        finally:
            os.close(handle)
    except OSError as error:
        raise TesseraError(
            "a rank cannot map its neighbour's memory", got=str(error), do="use --transport mpi"
        ) from None


def _identity(handle: int) -> tuple[int, int]:
    found = os.fstat(handle)
    return found.st_dev, found.st_ino

"""Anonymous shared memory that other processes on the host can map; the system frees it after the last mapping."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass

import torch
from torch import Tensor

from tessera.errors import TesseraError


@dataclass(frozen=True, slots=True)
class SharedMemoryAddress:
    """The address of shared memory: the path of its file descriptor for other processes, its identity, and its size."""

    path: str
    identity: tuple[int, int]
    size: int


class SharedMemory:
    """Memory of this process that other processes can map. The file descriptor stays open until `close`."""

    def __init__(self, size: int) -> None:
        self._handle = os.memfd_create("tessera", os.MFD_CLOEXEC)
        os.ftruncate(self._handle, size)
        self._map = mmap.mmap(self._handle, size)
        path = f"/proc/{os.getpid()}/fd/{self._handle}"
        self.address = SharedMemoryAddress(path, _get_identity(self._handle), size)
        self.start = torch.frombuffer(self._map, dtype=torch.uint8).data_ptr()

    def view_tensor(self, offset: int, count: int, dtype: torch.dtype) -> Tensor:
        """View `count` values, starting at a byte offset, as a tensor. The tensor keeps the memory mapped."""
        return torch.frombuffer(self._map, dtype=dtype, offset=offset, count=count)

    def close(self) -> None:
        """Close the file descriptor: no further process can map the memory. The last unmapping frees the memory."""
        os.close(self._handle)


def map_shared_memory(address: SharedMemoryAddress) -> mmap.mmap:
    """Map the memory of another process on this host."""
    try:
        handle = os.open(address.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            # In another PID namespace, the path may belong to another process.
            if _get_identity(handle) != address.identity:
                raise OSError("it belongs to another process")
            return mmap.mmap(handle, address.size)
        finally:
            os.close(handle)
    except OSError as error:
        raise TesseraError(
            "a rank cannot map the memory of its neighbour", got=str(error), do="use --transport mpi or gloo"
        ) from None


def _get_identity(handle: int) -> tuple[int, int]:
    status = os.fstat(handle)
    return status.st_dev, status.st_ino

"""Activations between phases: in memory up to a limit, and in a scratch file beyond it.

With many mini-batches in a step, the activations between two phases can be larger than the weights. The scratch file
has no name, so the system removes it however the process ends.
"""

from __future__ import annotations

import os
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tessera.errors import TesseraError
from tessera.models.structure import collect_members
from tessera.phased.store.weights_writer import write_all_bytes

Values = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ScratchTensor:
    """A tensor in the scratch file: its offset, and the shape, strides and dtype to restore."""

    at: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int


class ScratchSpace:
    """Limit of activations in memory, in bytes (None: no limit), and the directory of the scratch file."""

    def __init__(self, limit: int | None = None, directory: Path | None = None) -> None:
        self.limit, self.directory = limit, directory
        self.streamed_bytes = 0
        self._lock = threading.Lock()

    def add_streamed_bytes(self, nbytes: int) -> None:
        with self._lock:
            self.streamed_bytes += nbytes


class Activations:
    """The values of every mini-batch of a step, by name; the memory limit is divided among `shares` devices."""

    def __init__(self, scratch: ScratchSpace, shares: int = 1) -> None:
        self._scratch = scratch
        self._limit = None if scratch.limit is None else scratch.limit // shares
        self._values: list[Values] = []
        self._kept: list[int] = []  # bytes in memory, per mini-batch
        self._file: Any = None
        self._places: dict[int, tuple[int, int]] = {}  # offset and capacity of each mini-batch in the scratch file
        self._end = 0
        self._lock = threading.Lock()  # devices may store values of different mini-batches at the same time

    def begin_step(self, batches: list[Values]) -> None:
        """Start a step. The inputs belong to the caller and do not count towards the limit."""
        self._values = batches
        self._kept = [0] * len(batches)

    def take(self, batch: int) -> Values:
        """Remove the values of a mini-batch and return them; values in the scratch file are read back."""
        values, self._values[batch], self._kept[batch] = self._values[batch], {}, 0
        return {name: self._read_scratch(v) if isinstance(v, _ScratchTensor) else v for name, v in values.items()}

    def put(self, batch: int, values: Values) -> None:
        """Store the values of a mini-batch for the next phase."""
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        nbytes = sum(tensor.nbytes for tensor in tensors.values())
        if self._limit is not None and sum(self._kept) + nbytes > self._limit and _has_no_aliases(values):
            values = values | self._write_scratch(batch, tensors, nbytes)
            nbytes = 0
        self._values[batch], self._kept[batch] = values, nbytes

    @property
    def nbytes(self) -> int:
        """Bytes of activations in memory between two phases, without the caller's inputs."""
        return sum(self._kept)

    def end(self) -> list[Values]:
        """Return the outputs of the last phase, read back from the scratch file if necessary, and close that file."""
        values = [self.take(batch) for batch in range(len(self._values))]
        self.drop()
        return values

    def drop(self) -> None:
        """Discard the values of a step."""
        self._values, self._kept = [], []
        if self._file is not None:
            self._file.close()
            self._file, self._places, self._end = None, {}, 0

    def _write_scratch(self, batch: int, tensors: dict[str, Tensor], nbytes: int) -> Values:
        at, capacity = self._places.get(batch, (0, -1))
        streamed: Values = {}
        try:
            with self._lock:
                if self._file is None:
                    self._file = tempfile.TemporaryFile(dir=self._scratch.directory, buffering=0)  # noqa: SIM115
                if capacity < nbytes:
                    at, self._end = self._end, self._end + nbytes
                    self._places[batch] = at, nbytes
            self._scratch.add_streamed_bytes(nbytes)
            for name, tensor in tensors.items():
                tensor = tensor if is_dense(tensor) else tensor.contiguous()
                streamed[name] = _ScratchTensor(
                    at=at,
                    dtype=tensor.dtype,
                    shape=tuple(tensor.shape),
                    strides=tensor.stride(),
                    nbytes=tensor.nbytes,
                )
                write_all_bytes(self._file.fileno(), _get_memory(tensor), at)
                at += tensor.nbytes
        except OSError as error:
            raise TesseraError(
                f"cannot write activations to a scratch file: {error.strerror}",
                got=self._scratch.directory,
                do="raise `activations`, or use a larger disk",
            ) from None
        return streamed

    def _read_scratch(self, stored: _ScratchTensor) -> Tensor:
        tensor = torch.empty_strided(stored.shape, stored.strides, dtype=stored.dtype)
        data, done = _get_memory(tensor), 0
        while done < stored.nbytes:
            count = os.preadv(self._file.fileno(), [data[done:]], stored.at + done)
            if count == 0:
                raise TesseraError("the scratch file of activations is truncated")
            done += count
        return tensor


def _get_memory(tensor: Tensor) -> memoryview:
    """Return the memory of a dense tensor, whose dims may be permuted."""
    if tensor.numel() == 0:
        return memoryview(b"")
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))
    return memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]


def is_dense(tensor: Tensor) -> bool:
    """Return whether a tensor fills its memory without gaps or repeats; its dims may be permuted."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def _has_no_aliases(values: Values) -> bool:
    """Return whether no two tensors share memory; such tensors stay in memory, so that writes affect both."""
    starts = [tensor.untyped_storage().data_ptr() for tensor in collect_members(values, Tensor) if tensor.numel()]
    return len(set(starts)) == len(starts)

"""What crosses from one phase to the next: kept in memory, or streamed through a scratch file beyond a limit.

With many mini-batches in a step the activations between two phases can be larger than the weights. The scratch file
has no name: however the process ends, the system frees it.
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
from tessera.models.structure import members
from tessera.phased.store.weights_writer import write_all

Values = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Streamed:
    """Where a tensor lies in the scratch file, and what it has to become again."""

    at: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    nbytes: int


class Scratch:
    """Up to how many bytes activations stay in memory (None: all of them), and where they go beyond that."""

    def __init__(self, limit: int | None = None, directory: Path | None = None) -> None:
        self.limit, self.directory = limit, directory
        self.streamed_bytes = 0
        self._lock = threading.Lock()

    def count(self, nbytes: int) -> None:
        with self._lock:
            self.streamed_bytes += nbytes


class Activations:
    """The values of every mini-batch of a step, by name; of `shares` devices each may keep its share."""

    def __init__(self, scratch: Scratch, shares: int = 1) -> None:
        self._scratch = scratch
        self._limit = None if scratch.limit is None else scratch.limit // shares
        self._values: list[Values] = []
        self._kept: list[int] = []  # bytes in memory, of each mini-batch
        self._file: Any = None
        self._places: dict[int, tuple[int, int]] = {}  # of each mini-batch in the scratch file: where, how much room
        self._end = 0
        self._lock = threading.Lock()  # devices may keep values of different mini-batches at the same time

    def begin(self, batches: list[Values]) -> None:
        """Start a step. What was given belongs to the caller and stays in memory."""
        self._values = batches
        self._kept = [0] * len(batches)

    def take(self, batch: int) -> Values:
        """The values of a mini-batch, all of them in memory."""
        values, self._values[batch], self._kept[batch] = self._values[batch], {}, 0
        return {name: self._fetch(v) if isinstance(v, _Streamed) else v for name, v in values.items()}

    def put(self, batch: int, values: Values) -> None:
        """Keep the values of a mini-batch for the next phase."""
        tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
        nbytes = sum(tensor.nbytes for tensor in tensors.values())
        if self._limit is not None and sum(self._kept) + nbytes > self._limit and _apart(values):
            values = values | self._stream(batch, tensors, nbytes)
            nbytes = 0
        self._values[batch], self._kept[batch] = values, nbytes

    @property
    def nbytes(self) -> int:
        """Bytes that are in memory between two phases, what the caller gave not counted."""
        return sum(self._kept)

    def end(self) -> list[Values]:
        """The values after the last phase, all of them in memory; the scratch file is gone."""
        found = [self.take(batch) for batch in range(len(self._values))]
        self.drop()
        return found

    def drop(self) -> None:
        """Forget a step."""
        self._values, self._kept = [], []
        if self._file is not None:
            self._file.close()
            self._file, self._places, self._end = None, {}, 0

    def _stream(self, batch: int, tensors: dict[str, Tensor], nbytes: int) -> Values:
        at, room = self._places.get(batch, (0, -1))
        found: Values = {}
        try:
            with self._lock:
                if self._file is None:
                    self._file = tempfile.TemporaryFile(dir=self._scratch.directory, buffering=0)  # noqa: SIM115
                if room < nbytes:
                    at, self._end = self._end, self._end + nbytes
                    self._places[batch] = at, nbytes
            self._scratch.count(nbytes)
            for name, tensor in tensors.items():
                tensor = tensor if is_dense(tensor) else tensor.contiguous()
                found[name] = _Streamed(
                    at=at,
                    dtype=tensor.dtype,
                    shape=tuple(tensor.shape),
                    strides=tensor.stride(),
                    nbytes=tensor.nbytes,
                )
                write_all(self._file.fileno(), _bytes_of(tensor), at)
                at += tensor.nbytes
        except OSError as error:
            raise TesseraError(
                f"cannot stream activations: {error.strerror}",
                got=self._scratch.directory,
                do="raise the limit of activations",
            ) from None
        return found

    def _fetch(self, stored: _Streamed) -> Tensor:
        tensor = torch.empty_strided(stored.shape, stored.strides, dtype=stored.dtype)
        data, done = _bytes_of(tensor), 0
        while done < stored.nbytes:
            found = os.preadv(self._file.fileno(), [data[done:]], stored.at + done)
            if found == 0:
                raise TesseraError("the scratch file of activations ended early")
            done += found
        return tensor


def _bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a dense tensor, whatever the order of its dims."""
    if tensor.numel() == 0:
        return memoryview(b"")
    flat = tensor.detach().as_strided((tensor.numel(),), (1,))
    return memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]


def is_dense(tensor: Tensor) -> bool:
    """Whether a tensor fills its memory without gaps or repeats, in any order of its dims."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != expected:
            return False
        expected *= size
    return True


def _apart(values: Values) -> bool:
    """Whether no two tensors share memory: those that do stay, because a write to one is seen in the other."""
    starts = [tensor.untyped_storage().data_ptr() for tensor in members(values, Tensor) if tensor.numel()]
    return len(set(starts)) == len(starts)

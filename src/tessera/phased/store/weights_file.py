"""A safetensors file: its header read and checked, its data never read as a whole.

The file is untrusted: every offset, size and shape is checked before anything is read, a file that is shorter than it
says is an error at once, and one that changes while it is in use is an error at the next read.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

from tessera.errors import TesseraError
from tessera.models.weights import PADDING

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}
LENGTH = 8  # bytes before the header: its length, little-endian
LONGEST_HEADER = 100_000_000  # as the format's own readers have it
CHECKSUMS = "tessera.crc32"
PAGE = 4096  # bytes: what reads past the page cache are aligned to


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One tensor of a file; `start` and `stop` count bytes from the beginning of the file."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


class WeightsFile:
    """An open safetensors file. It belongs to whoever made it, who closes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # of a pipe it would wait for a writer
        except FileNotFoundError:
            raise TesseraError("no such file of weights", got=str(path)) from None
        except OSError as error:
            raise TesseraError(f"cannot read weights: {error.strerror}", got=str(path)) from None
        try:
            status = os.fstat(self.fd)
            if not stat.S_ISREG(status.st_mode):
                self._wrong("it is no regular file")
            self._stamp, self.size = _stamp(status), status.st_size
            self.tensors, self.metadata = self._read_header()
        except BaseException:
            os.close(self.fd)
            raise

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def open_again(self) -> int:
        """Another descriptor of the same file, for who reads in another way; it belongs to the caller."""
        try:
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise self.changed() from None

    def check_unchanged(self) -> None:
        """Raise if the file is no longer the one that was opened: replaced, rewritten, cut off or removed."""
        try:
            same = _stamp(os.fstat(self.fd)) == self._stamp == _stamp(os.stat(self.path))
        except OSError:
            same = False
        if not same:
            raise self.changed()

    def changed(self) -> TesseraError:
        """The error of a file that is no longer what it was."""
        return TesseraError("the file of weights changed under the run", got=str(self.path), do="run again")

    def checksums(self) -> Mapping[str, int]:
        """CRC-32 of every tensor, as its writer noted them in the header."""
        try:
            noted = json.loads(self.metadata[CHECKSUMS])
            return {str(name): int(code, 16) for name, code in noted.items()}
        except KeyError:
            raise TesseraError(
                "this file of weights has no checksums", got=str(self.path), do="write it with checksums=True"
            ) from None
        except (ValueError, TypeError, AttributeError):
            self._wrong("its checksums are not readable")

    def _read_header(self) -> tuple[dict[str, StoredTensor], dict[str, str]]:
        head = os.pread(self.fd, LENGTH, 0)
        length = int.from_bytes(head, "little")
        if len(head) < LENGTH or length > LONGEST_HEADER or LENGTH + length > self.size:
            self._wrong("its header is cut off, or it is no safetensors file")
        try:
            header = json.loads(os.pread(self.fd, length, LENGTH), object_pairs_hook=self._unique)
        except (ValueError, RecursionError):
            self._wrong("its header is not JSON")
        if not isinstance(header, dict):
            self._wrong("its header is not an object")
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            self._wrong("its metadata are not texts")
        found = {name: self._tensor(name, entry, LENGTH + length) for name, entry in header.items()}
        self._check_order(found, LENGTH + length)
        return {name: t for name, t in found.items() if not name.startswith(PADDING)}, metadata

    def _tensor(self, name: str, entry: Any, base: int) -> StoredTensor:
        try:
            code, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
        except (KeyError, TypeError, ValueError):
            self._wrong(f"the entry of {name} is not complete")
        if code not in DTYPES:
            raise TesseraError(f"{self.path}: {name} has a dtype that cannot be streamed", got=code, allowed=DTYPES)
        if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in (*shape, start, stop)):
            self._wrong(f"the shape or the place of {name} is not made of whole numbers")
        if stop - start != math.prod(shape) * DTYPES[code].itemsize:
            self._wrong(f"{name} has {stop - start} bytes, which do not make {shape} of {code}")
        return StoredTensor(name=name, dtype=DTYPES[code], shape=tuple(shape), start=base + start, stop=base + stop)

    def _check_order(self, found: Mapping[str, StoredTensor], base: int) -> None:
        """Tensors follow one another without gaps or overlaps, from the header to the end of the file."""
        end = base
        for tensor in sorted(found.values(), key=lambda t: (t.start, t.stop)):
            if tensor.start != end:
                self._wrong(f"{tensor.name} does not begin where the tensor before it ends")
            end = tensor.stop
        if end > self.size:
            self._wrong(f"it is cut off: {end} bytes by its header, {self.size} in the file")
        if end < self.size:
            self._wrong(f"it is longer than its header says: {self.size} bytes instead of {end}")

    def _unique(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            self._wrong("a name stands twice in its header")
        return found

    def _wrong(self, what: str) -> NoReturn:
        raise TesseraError(f"{self.path} cannot be used: {what}", do="write or fetch it again")


def tensors_of(path: Path) -> dict[str, StoredTensor]:
    """The tensors of a file by name; of their values nothing is read."""
    with closing(WeightsFile(path)) as file:
        return file.tensors


def _stamp(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

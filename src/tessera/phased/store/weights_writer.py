"""Writes weights in the order of their phases, so that a phase is one read; still a plain safetensors file.

Tensors begin at multiples of 64 bytes, phases at multiples of a page, and large ones of a huge page: the page cache
then keeps them in huge pages, which are mapped in a moment. The format allows no gaps, so that they are filled by byte
tensors named `__padding__.N`, which nobody has to look at and which take no room on the disk. Values are asked for one
at a time: a network can be written that does not fit into memory.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from tessera.errors import TesseraError
from tessera.models.weights import PADDING
from tessera.phased.store.layout import page_up
from tessera.phased.store.weights_file import CHECKSUMS, CODES, LENGTH, PAGE, StoredTensor

ALIGNMENT = 64  # bytes of a cache line
HUGE_PAGE = 2 << 20
LARGE = 8 * HUGE_PAGE  # a phase that is worth a gap before it
LARGEST_WRITE = 1 << 30  # bytes; the kernel takes no more than 2 GB at once
Values = Callable[[str], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A tensor to be written: its name, dtype and shape."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize * torch.Size(self.shape).numel()


def write_file(path: Path, groups: Sequence[Sequence[Entry]], values: Values, *, checksums: bool) -> None:
    """Write groups of tensors, each group one read, to a file of a name that is free."""
    if path.exists():
        raise TesseraError(
            "this file of weights is there already",
            got=str(path),
            do="choose another name, or give the model on the meta device to use the file as it is",
        )
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb", buffering=0) as file:
            write_to(file.fileno(), groups, values, checksums=checksums)
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.link(temporary, path)  # unlike a renaming it never replaces
    except OSError as error:
        raise TesseraError(f"cannot write weights: {error.strerror}", got=str(path)) from None
    finally:
        if temporary is not None:
            os.unlink(temporary)


def planned(groups: Sequence[Sequence[Entry]]) -> dict[str, StoredTensor]:
    """Where the tensors would come to lie, without writing anything."""
    groups = _once_each(groups)
    header, offsets, _ = _header(groups, {})
    found = {}
    for entry in (entry for group in groups for entry in group):
        start = len(header) + offsets[entry.name]
        found[entry.name] = StoredTensor(
            name=entry.name, dtype=entry.dtype, shape=entry.shape, start=start, stop=start + entry.nbytes
        )
    return found


def write_to(fd: int, groups: Sequence[Sequence[Entry]], values: Values, *, checksums: bool) -> None:
    """Write groups of tensors to an open, empty file."""
    groups = _once_each(groups)
    entries = [entry for group in groups for entry in group]
    codes = dict.fromkeys((entry.name for entry in entries), 0) if checksums else {}
    header, offsets, size = _header(groups, codes)
    os.ftruncate(fd, len(header) + size)  # what is not written below is padding: zeros that take no room
    for entry in entries:
        data = _bytes_of(entry, values(entry.name))
        if checksums:
            codes[entry.name] = zlib.crc32(data)
        write_all(fd, data, len(header) + offsets[entry.name])
    # Checksums have a fixed width: the header is as long as before.
    write_all(fd, memoryview(_header(groups, codes)[0]), 0)


def _once_each(groups: Sequence[Sequence[Entry]]) -> list[list[Entry]]:
    """Every tensor in the first group that uses it; whole cache lines first, so that little is to be filled."""
    seen: set[str] = set()
    found = []
    for group in groups:
        new = list({entry.name: entry for entry in group if entry.name not in seen}.values())
        seen |= {entry.name for entry in new}
        found.append(sorted(new, key=lambda entry: entry.nbytes % ALIGNMENT > 0))
    return found


def _header(groups: Sequence[Sequence[Entry]], codes: dict[str, int]) -> tuple[bytes, dict[str, int], int]:
    """The header with its length, where each tensor begins in the data, and how long the data are."""
    length, needed = 0, PAGE
    while needed > length:  # where tensors lie depends on how long the header is, and the other way round
        length = needed
        text, offsets, size = _placed_after(length, groups, codes)
        needed = page_up(LENGTH + len(text))
    text += b" " * (length - LENGTH - len(text))  # the data begin at a page
    return len(text).to_bytes(LENGTH, "little") + text, offsets, size


def _placed_after(
    length: int, groups: Sequence[Sequence[Entry]], codes: dict[str, int]
) -> tuple[bytes, dict[str, int], int]:
    """The same for a header of some length."""
    metadata = {"format": "pt"}
    if codes:
        metadata[CHECKSUMS] = json.dumps({name: f"{code:08x}" for name, code in codes.items()})
    header: dict[str, object] = {"__metadata__": metadata}
    offsets: dict[str, int] = {}
    at = fillings = 0
    for group in groups:
        multiple = HUGE_PAGE if sum(entry.nbytes for entry in group) >= LARGE else PAGE
        for entry in group:
            if filling := -(length + at) % multiple:
                header[f"{PADDING}.{fillings}"] = _placed("U8", (filling,), at, at + filling)
                at, fillings = at + filling, fillings + 1
            header[entry.name] = _placed(CODES[entry.dtype], entry.shape, at, at + entry.nbytes)
            offsets[entry.name] = at
            at += entry.nbytes
            multiple = ALIGNMENT
    return json.dumps(header, separators=(",", ":")).encode(), offsets, at


def _placed(code: str, shape: tuple[int, ...], start: int, stop: int) -> dict[str, object]:
    return {"dtype": code, "shape": list(shape), "data_offsets": [start, stop]}


def _bytes_of(entry: Entry, value: Tensor) -> memoryview:
    if tuple(value.shape) != entry.shape:
        raise TesseraError(f"{entry.name} has another shape", got=tuple(value.shape), allowed=str(entry.shape))
    if value.is_meta:
        raise TesseraError(f"{entry.name} has no values", do="give `values`, or a model that is not on the meta device")
    dense = value.detach().to(entry.dtype).contiguous().reshape(-1)
    return memoryview(dense.view(torch.uint8).numpy())  # type: ignore[arg-type]


def write_all(fd: int, data: memoryview, at: int) -> None:
    """Write bytes at a place in a file, however many calls that takes."""
    written = 0
    while written < len(data):
        written += os.pwrite(fd, data[written : written + LARGEST_WRITE], at + written)

"""Writer of weights: a safetensors file in the order of the phases, so that each phase is contiguous.

Tensors begin at multiples of 64 bytes, phases at multiples of a page, and large phases at multiples of a huge page:
the page cache then holds them in huge pages, which are fast to map. The format allows no gaps, so byte tensors named
`__padding__.N` fill them; they are holes in the file and take no disk space. Values are requested one tensor at a time,
so a network that does not fit into memory can be written.
"""

from __future__ import annotations

import json
import os
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor

from tessera.errors import TesseraError
from tessera.models.weights import PADDING_PREFIX
from tessera.phased.store.encoding import compute_encoded_bytes, encode
from tessera.phased.store.layout import round_up_to_page
from tessera.phased.store.weights_file import (
    CHECKSUMS_KEY,
    DTYPE_CODES,
    ENCODINGS_KEY,
    HEADER_LENGTH_BYTES,
    PAGE_BYTES,
    StoredTensor,
)

ALIGNMENT_BYTES = 64  # a cache line
HUGE_PAGE_BYTES = 2 << 20
LARGE_PHASE_BYTES = 8 * HUGE_PAGE_BYTES  # phases of at least this size begin at a huge page
MAX_WRITE_BYTES = 1 << 30  # the kernel writes at most 2 GiB in one call
ValueSource = Callable[[str], Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightEntry:
    """A tensor to write: its name, dtype, shape, and encoding if it is encoded."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    encoding: str = ""

    @property
    def nbytes(self) -> int:
        if self.encoding:
            return compute_encoded_bytes(self.encoding, self.shape)
        return self.dtype.itemsize * torch.Size(self.shape).numel()


def write_weights_file(
    path: Path, groups: Sequence[Sequence[WeightEntry]], values: ValueSource, *, checksums: bool
) -> None:
    """Write groups of tensors to a new file; the tensors of a group are contiguous."""
    if path.exists():
        raise TesseraError(
            "the weights file already exists",
            got=str(path),
            do="choose another name, or pass the model on the meta device to use the existing file",
        )
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb", buffering=0) as file:
            write_tensors(file.fileno(), groups, values, checksums=checksums)
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.link(temporary, path)  # unlike a rename, a link never replaces an existing file
    except OSError as error:
        raise TesseraError(f"cannot write weights: {error.strerror}", got=str(path)) from None
    finally:
        if temporary is not None:
            os.unlink(temporary)


def plan_file(groups: Sequence[Sequence[WeightEntry]]) -> dict[str, StoredTensor]:
    """Return the tensors with their offsets in a file, without writing the file."""
    groups = _deduplicate_entries(groups)
    header, offsets, _ = _build_header(groups, {})
    tensors = {}
    for entry in (entry for group in groups for entry in group):
        start = len(header) + offsets[entry.name]
        tensors[entry.name] = StoredTensor(
            name=entry.name,
            dtype=entry.dtype,
            shape=entry.shape,
            start=start,
            stop=start + entry.nbytes,
            encoding=entry.encoding,
        )
    return tensors


def write_tensors(fd: int, groups: Sequence[Sequence[WeightEntry]], values: ValueSource, *, checksums: bool) -> None:
    """Write groups of tensors to an open, empty file."""
    groups = _deduplicate_entries(groups)
    entries = [entry for group in groups for entry in group]
    codes = dict.fromkeys((entry.name for entry in entries), 0) if checksums else {}
    errors: dict[str, float] = {}
    header, offsets, size = _build_header(groups, codes)
    os.ftruncate(fd, len(header) + size)  # bytes that are not written below are padding, stored as holes of the file
    for entry in entries:
        data, errors[entry.name] = _convert_to_bytes(entry, values(entry.name))
        if checksums:
            codes[entry.name] = zlib.crc32(data)
        write_all_bytes(fd, data, len(header) + offsets[entry.name])
    # Checksums and errors have a fixed width, so the length of the header does not change.
    write_all_bytes(fd, memoryview(_build_header(groups, codes, errors)[0]), 0)


def _deduplicate_entries(groups: Sequence[Sequence[WeightEntry]]) -> list[list[WeightEntry]]:
    """Keep each tensor in its first group only; tensors of whole cache lines come first, to reduce padding."""
    seen: set[str] = set()
    deduplicated = []
    for group in groups:
        new = list({entry.name: entry for entry in group if entry.name not in seen}.values())
        seen |= {entry.name for entry in new}
        deduplicated.append(sorted(new, key=lambda entry: entry.nbytes % ALIGNMENT_BYTES > 0))
    return deduplicated


def _build_header(
    groups: Sequence[Sequence[WeightEntry]], codes: dict[str, int], errors: Mapping[str, float] = MappingProxyType({})
) -> tuple[bytes, dict[str, int], int]:
    """Return the header with its length prefix, the offset of each tensor in the data, and the size of the data."""
    length, needed = 0, PAGE_BYTES
    while needed > length:  # offsets depend on the length of the header, and the length depends on the offsets
        length = needed
        text, offsets, size = _lay_out_data(length, groups, codes, errors)
        needed = round_up_to_page(HEADER_LENGTH_BYTES + len(text))
    text += b" " * (length - HEADER_LENGTH_BYTES - len(text))  # the data begin at a page boundary
    return len(text).to_bytes(HEADER_LENGTH_BYTES, "little") + text, offsets, size


def _lay_out_data(
    length: int, groups: Sequence[Sequence[WeightEntry]], codes: dict[str, int], errors: Mapping[str, float]
) -> tuple[bytes, dict[str, int], int]:
    """Return the header text, offsets and size of the data for a given length of the header."""
    metadata = {"format": "pt"}
    if codes:
        metadata[CHECKSUMS_KEY] = json.dumps({name: f"{code:08x}" for name, code in codes.items()})
    encodings = {
        entry.name: [entry.encoding, DTYPE_CODES[entry.dtype], entry.shape, f"{errors.get(entry.name, 0.0):.3e}"]
        for group in groups
        for entry in group
        if entry.encoding
    }
    if encodings:
        metadata[ENCODINGS_KEY] = json.dumps(encodings)
    header: dict[str, object] = {"__metadata__": metadata}
    offsets: dict[str, int] = {}
    at = paddings = 0
    for group in groups:
        multiple = HUGE_PAGE_BYTES if sum(entry.nbytes for entry in group) >= LARGE_PHASE_BYTES else PAGE_BYTES
        for entry in group:
            if padding := -(length + at) % multiple:
                header[f"{PADDING_PREFIX}.{paddings}"] = _build_tensor_header("U8", (padding,), at, at + padding)
                at, paddings = at + padding, paddings + 1
            code, shape = ("U8", (entry.nbytes,)) if entry.encoding else (DTYPE_CODES[entry.dtype], entry.shape)
            header[entry.name] = _build_tensor_header(code, shape, at, at + entry.nbytes)
            offsets[entry.name] = at
            at += entry.nbytes
            multiple = ALIGNMENT_BYTES
    return json.dumps(header, separators=(",", ":")).encode(), offsets, at


def _build_tensor_header(code: str, shape: tuple[int, ...], start: int, stop: int) -> dict[str, object]:
    return {"dtype": code, "shape": list(shape), "data_offsets": [start, stop]}


def _convert_to_bytes(entry: WeightEntry, value: Tensor) -> tuple[memoryview, float]:
    """Return the bytes of a tensor, and the error of its encoding."""
    if tuple(value.shape) != entry.shape:
        raise TesseraError(
            f"the value of {entry.name} does not have the shape of the weight",
            got=tuple(value.shape),
            allowed=str(entry.shape),
        )
    if value.is_meta:
        raise TesseraError(
            f"the weight {entry.name} has no values", do="pass `values`, or a model that is not on the meta device"
        )
    if entry.encoding:
        content, error = encode(value, entry.encoding)
        return memoryview(content), error  # type: ignore[arg-type]
    dense = value.detach().to(entry.dtype).contiguous().reshape(-1)
    return memoryview(dense.view(torch.uint8).numpy()), 0.0  # type: ignore[arg-type]


def write_all_bytes(fd: int, data: memoryview, at: int) -> None:
    """Write all bytes at an offset of a file, in several calls if necessary."""
    written = 0
    while written < len(data):
        written += os.pwrite(fd, data[written : written + MAX_WRITE_BYTES], at + written)

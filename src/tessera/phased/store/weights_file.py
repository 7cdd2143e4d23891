"""A safetensors file: reading and checking of its header, and detection of changes to the file.

The file is untrusted: every offset, size and shape is checked before weights are read. A truncated file is refused when
it is opened; a file that changes while it is in use is an error at the next read.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import torch

from tessera.errors import TesseraError, get_first_line
from tessera.models.weights import PADDING_PREFIX
from tessera.phased.store.encoding import ENCODINGS, compute_encoded_bytes

SAFETENSORS_DTYPES = {
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
    "U16": torch.uint16,
    "U32": torch.uint32,
    "U64": torch.uint64,
    "C64": torch.complex64,
    "C128": torch.complex128,  # not in the format; only in files that this process removes
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
DTYPE_CODES = {dtype: code for code, dtype in SAFETENSORS_DTYPES.items()}
HEADER_LENGTH_BYTES = 8  # the length of the header, little-endian, precedes the header
MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors library
CHECKSUMS_KEY = "tessera.crc32"  # in the metadata of a file
ENCODINGS_KEY = "tessera.encodings"
PAGE_BYTES = 4096  # the alignment of direct reads


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """One tensor of a file; `start` and `stop` are offsets in bytes from the beginning of the file.

    An encoded tensor has the dtype and shape of its values, and the relative `error` of the encoding.
    """

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    stop: int
    encoding: str = ""
    error: float = 0.0

    @property
    def nbytes(self) -> int:
        return self.stop - self.start


class WeightsFile:
    """An open safetensors file; the code that opens it must close it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unsupported: dict[str, str] = {}  # tensors of a dtype that torch does not have, with its code
        try:
            # without O_NONBLOCK, opening a pipe would wait for a writer
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except FileNotFoundError:
            raise TesseraError("the weights file does not exist", got=str(path)) from None
        except OSError as error:
            raise TesseraError(f"cannot read weights: {error.strerror}", got=str(path)) from None
        try:
            status = os.fstat(self.fd)
            if not stat.S_ISREG(status.st_mode):
                self._raise_invalid("it is not a regular file")
            self._stamp, self.size = _get_stamp(status), status.st_size
            self.tensors, self.metadata = self._read_header()
        except BaseException:
            os.close(self.fd)
            raise

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def open_descriptor(self) -> int:
        """Return a new descriptor of the same file, which the caller closes."""
        try:
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            raise self.build_changed_error() from None

    def list_parts(self) -> list[tuple[int, WeightsFile]]:
        """Return the files that hold the tensors, each with the offset at which it begins: this file only."""
        return [(0, self)]

    def check_unchanged(self) -> None:
        """Raise an error if the file was replaced, rewritten, truncated or removed since it was opened."""
        try:
            same = _get_stamp(os.fstat(self.fd)) == self._stamp == _get_stamp(os.stat(self.path))
        except OSError:
            same = False
        if not same:
            raise self.build_changed_error()

    def build_changed_error(self) -> TesseraError:
        """Return the error that reports a changed file."""
        return TesseraError("the weights file changed while it was in use", got=str(self.path), do="run again")

    def read_checksums(self) -> Mapping[str, int]:
        """Return the CRC-32 of every tensor from the header."""
        try:
            codes = json.loads(self.metadata[CHECKSUMS_KEY])
            return {str(name): int(code, 16) for name, code in codes.items()}
        except KeyError:
            raise TesseraError(
                "the weights file has no checksums", got=str(self.path), do="write it with checksums=True"
            ) from None
        except (ValueError, TypeError, AttributeError):
            self._raise_invalid("its checksums cannot be read")

    def _read_header(self) -> tuple[dict[str, StoredTensor], dict[str, str]]:
        head = os.pread(self.fd, HEADER_LENGTH_BYTES, 0)
        length = int.from_bytes(head, "little")
        if len(head) < HEADER_LENGTH_BYTES or length > MAX_HEADER_BYTES or HEADER_LENGTH_BYTES + length > self.size:
            self._raise_invalid("its header is truncated, or it is not a safetensors file")
        try:
            header = json.loads(
                os.pread(self.fd, length, HEADER_LENGTH_BYTES), object_pairs_hook=self._check_unique_names
            )
        except (ValueError, RecursionError):
            self._raise_invalid("its header is not JSON")
        if not isinstance(header, dict):
            self._raise_invalid("its header is not a JSON object")
        metadata = header.pop("__metadata__", {})
        if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
            self._raise_invalid("its metadata values are not strings")
        tensors = {
            name: self._parse_tensor(name, entry, HEADER_LENGTH_BYTES + length) for name, entry in header.items()
        }
        self._check_offsets(tensors, HEADER_LENGTH_BYTES + length)
        usable = {
            name: tensor
            for name, tensor in tensors.items()
            if not name.startswith(PADDING_PREFIX) and name not in self.unsupported
        }
        return usable | self._parse_encodings(usable, metadata), metadata

    def _parse_encodings(
        self, tensors: Mapping[str, StoredTensor], metadata: Mapping[str, str]
    ) -> dict[str, StoredTensor]:
        """Return the encoded tensors, with dtype and shape of their values."""
        encoded: dict[str, StoredTensor] = {}
        try:
            for name, (encoding, code, shape, error) in json.loads(metadata.get(ENCODINGS_KEY, "{}")).items():
                tensor, dtype = tensors[name], SAFETENSORS_DTYPES[code]
                valid = encoding in ENCODINGS and all(type(size) is int and size > 0 for size in shape)
                if not valid or len(shape) < 2 or compute_encoded_bytes(encoding, shape) != tensor.nbytes:
                    self._raise_invalid(f"the encoding of {name} does not match its size")
                values = {"dtype": dtype, "shape": tuple(shape), "encoding": encoding, "error": float(error)}
                encoded[name] = replace(tensor, **values)
        except (ValueError, TypeError, KeyError, AttributeError):
            self._raise_invalid("its encodings cannot be read")
        return encoded

    def _parse_tensor(self, name: str, entry: Any, base: int) -> StoredTensor:
        try:
            code, shape, (start, stop) = entry["dtype"], entry["shape"], entry["data_offsets"]
        except (KeyError, TypeError, ValueError):
            self._raise_invalid(f"the header entry of {name} is incomplete")
        if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in (*shape, start, stop)):
            self._raise_invalid(f"the shape or the offsets of {name} are not non-negative integers")
        dtype = SAFETENSORS_DTYPES.get(code) if isinstance(code, str) else None
        if dtype is None:  # a weight of the model with another dtype is an error when the weights are matched
            self.unsupported[name] = str(code)
            if stop < start:
                self._raise_invalid(f"{name} ends before it begins")
        elif stop - start != math.prod(shape) * dtype.itemsize:
            self._raise_invalid(f"{name} has {stop - start} bytes, which do not match shape {shape} of {code}")
        return StoredTensor(
            name=name, dtype=dtype or torch.uint8, shape=tuple(shape), start=base + start, stop=base + stop
        )

    def _check_offsets(self, tensors: Mapping[str, StoredTensor], base: int) -> None:
        """Check that the tensors fill the file from the header to its end, without gaps or overlaps."""
        end = base
        for tensor in sorted(tensors.values(), key=lambda t: (t.start, t.stop)):
            if tensor.start != end:
                self._raise_invalid(f"{tensor.name} does not begin at the end of the previous tensor")
            end = tensor.stop
        if end > self.size:
            self._raise_invalid(f"it is truncated: {end} bytes by its header, {self.size} in the file")
        if end < self.size:
            self._raise_invalid(f"it is longer than its header states: {self.size} bytes instead of {end}")

    def _check_unique_names(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        unique = dict(pairs)
        if len(unique) < len(pairs):
            self._raise_invalid("a name appears twice in its header")
        return unique

    def _raise_invalid(self, reason: str) -> NoReturn:
        raise TesseraError(f"{self.path} is not a valid weights file: {reason}", do="write or download it again")


class CombinedFile(WeightsFile):
    """Several files of weights as one: the offsets of a file begin where the file before it ends.

    A later file does not replace a tensor of an earlier file. Closing it closes all files.
    """

    def __init__(self, files: Sequence[WeightsFile]) -> None:
        self._parts: list[tuple[int, WeightsFile]] = []
        self.tensors, self.metadata, self.unsupported = {}, {}, {}
        self.path, self.fd = files[0].path, files[0].fd
        base = 0
        for file in files:
            self._parts.append((base, file))
            for name, tensor in file.tensors.items():
                moved = replace(tensor, start=base + tensor.start, stop=base + tensor.stop)
                self.tensors.setdefault(name, moved)
            self.unsupported |= file.unsupported
            base += file.size + -file.size % PAGE_BYTES + PAGE_BYTES  # a page apart, so that no read spans two files
        self.size = base

    def close(self) -> None:
        for _, file in self._parts:
            file.close()

    def check_unchanged(self) -> None:
        for _, file in self._parts:
            file.check_unchanged()

    def read_checksums(self) -> Mapping[str, int]:
        return {name: code for _, file in self._parts for name, code in file.read_checksums().items()}

    def list_parts(self) -> list[tuple[int, WeightsFile]]:
        return self._parts


class TorchFile(WeightsFile):
    """A file of torch.save (a zip archive), read with `weights_only=True`; its tensors are not compressed.

    A nested dict of weights (`state_dict`, `model`) is found by its name.
    """

    def _read_header(self) -> tuple[dict[str, StoredTensor], dict[str, str]]:
        try:
            content = torch.load(self.path, map_location="cpu", mmap=True, weights_only=True)
        except Exception as error:  # torch raises errors of many kinds for damaged files
            self._raise_invalid(f"torch cannot load it: {get_first_line(error)}")
        for key in ("state_dict", "model", "module"):
            if isinstance(content, dict) and isinstance(content.get(key), dict):
                content = content[key]
        if not isinstance(content, dict):
            self._raise_invalid("it holds no dict of tensors")
        maps = _list_mappings(self.path)
        tensors = {}
        for name, value in content.items():
            if isinstance(value, torch.Tensor) and value.is_contiguous() and value.layout == torch.strided:
                start = _find_offset(maps, value.data_ptr())
                if start is not None and start + value.nbytes <= self.size:
                    tensors[str(name)] = StoredTensor(
                        name=str(name),
                        dtype=value.dtype,
                        shape=tuple(value.shape),
                        start=start,
                        stop=start + value.nbytes,
                    )
            elif isinstance(value, torch.Tensor):
                self.unsupported[str(name)] = f"{value.layout} with strides {tuple(value.stride())}"
        return tensors, {}


def _list_mappings(path: Path) -> list[tuple[int, int, int]]:
    """Return first address, last address and file offset of every mapping of a file in this process."""
    status = os.stat(path)
    mappings = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        words = line.split(maxsplit=5)
        if len(words) == 6 and int(words[4]) == status.st_ino:
            start, stop = (int(word, 16) for word in words[0].split("-"))
            mappings.append((start, stop, int(words[2], 16)))
    return mappings


def _find_offset(mappings: Sequence[tuple[int, int, int]], address: int) -> int | None:
    for start, stop, offset in mappings:
        if start <= address < stop:
            return offset + address - start
    return None


def read_tensor_table(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of a file by name, without reading their values."""
    with closing(WeightsFile(path)) as file:
        return file.tensors


def _get_stamp(status: os.stat_result) -> tuple[int, ...]:
    """Return the values by which a change of a file is detected: device, inode, size and modification time."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns

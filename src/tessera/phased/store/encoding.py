"""Encodings of stored weights with fewer bits: 8 bits per weight and channel, or 4 bits per weight and group.

A weight is seen as rows (its first dim) of values. Codes are multiplied by a float32 scale: one per row (int8), or one
per group of 64 values of a row (int4). Scales precede the codes. NumPy decodes, without the interpreter lock and on
one core, so that a loading thread can decode while the network computes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tessera.errors import TesseraError

GROUP = 64  # values of a row with a common scale (int4)
MIN_ENCODED_VALUES = 1024  # smaller weights, and weights of one dim, stay as they are
CHUNK_VALUES = 1 << 18  # values decoded at a time
ENCODINGS = ("int8", "int4")


def is_encodable(dtype: torch.dtype, shape: Sequence[int]) -> bool:
    """Return whether a weight is encoded: floating point, two dims or more, and not small."""
    return dtype.is_floating_point and len(shape) > 1 and math.prod(shape) >= MIN_ENCODED_VALUES


def compute_encoded_bytes(encoding: str, shape: Sequence[int]) -> int:
    """Return the size of an encoded weight.

    >>> compute_encoded_bytes("int8", (16, 100)), compute_encoded_bytes("int4", (16, 100))
    (1664, 1152)
    """
    rows, columns = shape[0], math.prod(shape[1:])
    if encoding == "int8":
        return 4 * rows + rows * columns
    groups = rows * -(-columns // GROUP)
    return 4 * groups + groups * GROUP // 2


def encode(value: Tensor, encoding: str) -> tuple[NDArray[np.uint8], float]:
    """Return the bytes of an encoded weight, and its error: the RMS of the differences over the RMS of the values."""
    rows = value.shape[0]
    exact = value.detach().to(torch.float32).contiguous().numpy().reshape(rows, -1)
    if encoding == "int8":
        scales = np.abs(exact).max(axis=1, keepdims=True) / np.float32(127)
        codes = _divide(exact, scales, 127)
        parts = [scales, codes]
        decoded = codes * scales
    else:
        grouped = _group(exact)
        scales = np.abs(grouped).max(axis=2, keepdims=True) / np.float32(7)
        codes = _divide(grouped, scales, 7)
        shifted = (codes + 8).astype(np.uint8)
        parts = [scales, shifted[:, :, : GROUP // 2] | (shifted[:, :, GROUP // 2 :] << 4)]
        decoded = (codes * scales).reshape(rows, -1)[:, : exact.shape[1]]
    content = np.concatenate([np.ascontiguousarray(part).reshape(-1).view(np.uint8) for part in parts])
    norm = float(np.linalg.norm(exact))
    if not math.isfinite(norm):
        raise TesseraError(f"weights with infinite or undefined values cannot be stored as {encoding}")
    return content, float(np.linalg.norm(exact - decoded)) / norm if norm else 0.0


def decode_into(content: NDArray[np.uint8], encoding: str, out: Tensor) -> None:
    """Write the values of an encoded weight into a contiguous tensor, converted to its dtype."""
    rows = out.shape[0]
    target = out.view(rows, -1)
    columns = target.shape[1]
    groups = 1 if encoding == "int8" else -(-columns // GROUP)
    scales = content[: 4 * rows * groups].view(np.float32).reshape(rows, groups, 1)
    codes = content[4 * rows * groups :].reshape(rows, -1)
    step = max(1, CHUNK_VALUES // columns)
    for start in range(0, rows, step):
        stop = min(rows, start + step)
        if encoding == "int8":
            values = codes[start:stop].view(np.int8) * scales[start:stop, 0]
        else:
            packed = codes[start:stop].reshape(stop - start, groups, GROUP // 2)
            wide = np.empty((stop - start, groups, GROUP), dtype=np.float32)
            for half, nibbles in enumerate((packed & 15, packed >> 4)):
                place = wide[:, :, half * GROUP // 2 : (half + 1) * GROUP // 2]
                np.multiply(nibbles.view(np.int8) - np.int8(8), scales[start:stop], out=place)
            values = wide.reshape(stop - start, -1)[:, :columns]
        if out.dtype == torch.bfloat16:  # NumPy has no bfloat16
            target[start:stop] = torch.from_numpy(np.ascontiguousarray(values))
        else:
            target[start:stop].numpy()[:] = values


def _group(exact: NDArray[np.float32]) -> NDArray[np.float32]:
    rows, columns = exact.shape
    padded = np.pad(exact, ((0, 0), (0, -columns % GROUP)))
    return padded.reshape(rows, -1, GROUP)


def _divide(exact: NDArray[np.float32], scales: NDArray[np.float32], most: int) -> NDArray[np.int8]:
    """Return the codes: values over their scale, rounded."""
    with np.errstate(divide="ignore", invalid="ignore"):
        quotients = np.where(scales > 0, exact / scales, 0)
    codes: NDArray[np.int8] = np.clip(np.rint(quotients), -most, most).astype(np.int8)
    return codes

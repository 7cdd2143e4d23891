"""What the inference runtimes share: forward passes on contiguous arrays, and 16-bit floats as they store them."""

from __future__ import annotations

import numpy as np

from tessera.errors import Refused
from tessera.operators.arrays import Array
from tessera.operators.backends.backend import Request


def refuse_what_needs_more(request: Request, title: str) -> None:
    """Refuse passes and layouts that a runtime made for inference does not have."""
    if request.which != "forward":
        raise Refused(f"{title} does not differentiate", got=request.which, allowed="forward")
    for name, array in request.arrays.items():
        if not array.flags.c_contiguous:
            raise Refused(f"{title} copies strided arrays before it computes", got=name, allowed="contiguous arrays")


def stored(array: Array, kind: str, dtype: str) -> Array:
    """An input as a runtime holds it in memory.

    bfloat16, which NumPy lacks, comes as its bits; a complex number is a pair of floats in a last dim of its own.

    >>> hex(stored(np.array([1.0], np.float32), "float", "bfloat16")[0])
    '0x3f80'
    >>> stored(np.array([1 + 2j]), "complex", "float64")
    array([[1., 2.]])
    """
    if kind == "complex":
        return np.stack([array.real, array.imag], axis=-1)
    if kind == "float" and dtype == "bfloat16":
        return (array.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return array.astype(dtype, copy=False) if kind == "float" else array


def widened_bits(bits: Array) -> Array:
    """The values of bfloat16 bits, in float32.

    >>> widened_bits(np.array([0x3F80], np.uint16))
    array([1.], dtype=float32)
    """
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def as_complex(pairs: Array) -> Array:
    """Pairs of floats in the last dim as complex numbers.

    >>> as_complex(np.array([[1.0, 2.0]]))
    array([1.+2.j])
    """
    return np.ascontiguousarray(pairs).view(np.result_type(pairs.dtype, np.complex64))[..., 0]

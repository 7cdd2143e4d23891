"""Code shared by the backends for inference runtimes: checks of requests, and storage of 16-bit and complex arrays."""

from __future__ import annotations

import numpy as np

from tessera.errors import Refused
from tessera.operators.arrays import Array
from tessera.operators.backends.backend import OperatorRequest


def refuse_unsupported(request: OperatorRequest, title: str) -> None:
    """Raise `Refused` for a pass or layout that an inference runtime does not support."""
    if request.pass_name != "forward":
        raise Refused(f"{title} has no backward pass", got=request.pass_name, allowed="forward")
    for name, array in request.arrays.items():
        if not array.flags.c_contiguous:
            raise Refused(
                f"{title} would copy non-contiguous inputs in every call", got=name, allowed="contiguous arrays"
            )


def store_array(array: Array, kind: str, dtype: str) -> Array:
    """Convert an input array to the format in which an inference runtime stores it.

    bfloat16, which NumPy lacks, is stored as its bits in uint16. A complex number becomes a pair of floats in an
    additional last dim.

    >>> hex(store_array(np.array([1.0], np.float32), "float", "bfloat16")[0])
    '0x3f80'
    >>> store_array(np.array([1 + 2j]), "complex", "float64")
    array([[1., 2.]])
    """
    if kind == "complex":
        return np.stack([array.real, array.imag], axis=-1)
    if kind == "float" and dtype == "bfloat16":
        return (array.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return array.astype(dtype, copy=False) if kind == "float" else array


def widen_bfloat16(bits: Array) -> Array:
    """Convert bfloat16 values, given as uint16 bits, to float32.

    >>> widen_bfloat16(np.array([0x3F80], np.uint16))
    array([1.], dtype=float32)
    """
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def pairs_to_complex(pairs: Array) -> Array:
    """Convert (real, imaginary) pairs in the last dim to complex numbers.

    >>> pairs_to_complex(np.array([[1.0, 2.0]]))
    array([1.+2.j])
    """
    return np.ascontiguousarray(pairs).view(np.result_type(pairs.dtype, np.complex64))[..., 0]

"""Weights of a model as tensors of a file: the entries to write, and the tensors of an existing file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from tessera.errors import TesseraError, suggest_similar
from tessera.phased.network.skeleton import Skeleton
from tessera.phased.store.weights_file import DTYPE_CODES, StoredTensor, get_compute_dtype
from tessera.phased.store.weights_writer import WeightEntry
from tessera.phased.traits import WEIGHT_DTYPES


def build_entry(skeleton: Skeleton, name: str, dtype: str | None) -> WeightEntry:
    """Return the entry of a weight in a new file; `dtype` applies to floating-point weights only."""
    if dtype is not None and dtype not in WEIGHT_DTYPES:
        raise TesseraError("unknown dtype for stored weights", got=dtype, allowed=WEIGHT_DTYPES)
    tensor = skeleton.get_tensor(name)
    stored = getattr(torch, dtype) if dtype is not None and tensor.is_floating_point() else tensor.dtype
    if stored not in DTYPE_CODES:
        raise TesseraError(f"{name} has a dtype that cannot be stored", got=str(stored), allowed=map(str, DTYPE_CODES))
    return WeightEntry(name=name, dtype=stored, shape=tuple(tensor.shape))


def find_stored_tensors(
    skeleton: Skeleton, tensors: Mapping[str, StoredTensor], names: Sequence[str], dtype: str | None
) -> list[StoredTensor]:
    """Return the tensors of a file that hold these weights, or raise an error if they do not match the model."""
    aliases = {group[0]: group for group in skeleton.names}
    matches = []
    for name in names:
        tensor = next((tensors[alias] for alias in aliases[name] if alias in tensors), None)
        if tensor is None:
            raise TesseraError(
                f"the file does not match the model: {name} is missing", do=suggest_similar(name, tensors)
            )
        wanted = skeleton.get_tensor(name)
        if tensor.shape != tuple(wanted.shape):
            raise TesseraError(
                f"the file does not match the model: the shape of {name} differs",
                got=tensor.shape,
                allowed=str(tuple(wanted.shape)),
            )
        expected = wanted.dtype if dtype is None or not wanted.is_floating_point() else getattr(torch, dtype, None)
        same_arithmetic = get_compute_dtype(tensor.dtype) == get_compute_dtype(wanted.dtype)
        if not (tensor.dtype == expected if dtype else same_arithmetic):
            raise TesseraError(
                f"the file does not match the model: the dtype of {name} differs",
                got=str(tensor.dtype),
                allowed=str(expected),
                do="convert the model or the file",
            )
        if tensor.start % tensor.dtype.itemsize:
            raise TesseraError(
                f"{name} is not aligned to its dtype in the file",
                do="write the file again with tessera.phased.write_weights",
            )
        matches.append(tensor)
    return matches

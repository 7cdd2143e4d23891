"""The weights of a model as they are to be written, as they are found in a file; where phases were asked to begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from tessera.errors import TesseraError, did_you_mean
from tessera.phased.choices import DTYPES
from tessera.phased.network.graph import Unit
from tessera.phased.network.skeleton import Skeleton
from tessera.phased.store.dtypes import computed_dtype
from tessera.phased.store.weights_file import CODES, StoredTensor
from tessera.phased.store.weights_writer import Entry


def entry_of(skeleton: Skeleton, name: str, dtype: str | None) -> Entry:
    """How a weight is to be written: floating ones in the dtype asked for, all others as they are."""
    if dtype is not None and dtype not in DTYPES:
        raise TesseraError("a dtype that weights cannot be stored in", got=dtype, allowed=DTYPES)
    tensor = skeleton.tensor(name)
    wanted = getattr(torch, dtype) if dtype is not None and tensor.is_floating_point() else tensor.dtype
    if wanted not in CODES:
        raise TesseraError(f"{name} has a dtype that cannot be stored", got=str(wanted), allowed=map(str, CODES))
    return Entry(name=name, dtype=wanted, shape=tuple(tensor.shape))


def find_stored(
    skeleton: Skeleton, tensors: Mapping[str, StoredTensor], names: Sequence[str], dtype: str | None
) -> list[StoredTensor]:
    """Those of a file's tensors that hold these weights, checked against the model."""
    aliases = {group[0]: group for group in skeleton.names}
    found = []
    for name in names:
        tensor = next((tensors[alias] for alias in aliases[name] if alias in tensors), None)
        if tensor is None:
            raise TesseraError(f"the file is not of this model: {name} is missing", do=did_you_mean(name, tensors))
        wanted = skeleton.tensor(name)
        if tensor.shape != tuple(wanted.shape):
            raise TesseraError(
                f"the file is not of this model: {name} has another shape",
                got=tensor.shape,
                allowed=str(tuple(wanted.shape)),
            )
        asked = wanted.dtype if dtype is None or not wanted.is_floating_point() else getattr(torch, dtype, None)
        right = tensor.dtype == asked if dtype else computed_dtype(tensor.dtype) == computed_dtype(wanted.dtype)
        if not right:
            raise TesseraError(
                f"the file is not of this model: {name} has another dtype",
                got=str(tensor.dtype),
                allowed=str(asked),
                do="give the model or the file another dtype",
            )
        if tensor.start % tensor.dtype.itemsize:
            raise TesseraError(
                f"{name} is not aligned to its numbers in the file",
                do="write it anew with tessera.phased.write_weights",
            )
        found.append(tensor)
    return found


def first_units(units: Sequence[Unit], names: Sequence[str | int]) -> list[int]:
    """The units at which phases begin, from the names of modules or by their numbers; the first unit always does."""
    if not names:
        raise TesseraError("no phases are named", do="leave `phases` out to have them found")
    found = {0}
    for name in names:
        if isinstance(name, int):
            if not 0 <= name < len(units):
                raise TesseraError("no layer of this number", got=name, allowed=f"0 to {len(units) - 1}")
            found.add(name)
            continue
        first = next((i for i, u in enumerate(units) if u.module == name or u.module.startswith(f"{name}.")), None)
        if first is None:
            known = [unit.module for unit in units]
            raise TesseraError("no module with weights of this name", got=name, do=did_you_mean(name, known))
        found.add(first)
    return sorted(found)

"""Conversion of call arguments to JSON values and back; a tensor is stored as a description and refilled at random.

A case must be complete without the model that it was captured from. Numbers, strings, None and lists stay as they
are; everything else is an object with a key that names its type: {"tensor": [64, 3], "dtype": "float32"},
{"dtype": "float32"}, {"device": "cpu"}, {"layout": "strided"}, {"memory_format": "channels_last"},
{"complex": [0.0, 1.0]}.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from tessera.errors import TesseraError

Json = Any
NAMED_TORCH_TYPES = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}


def to_json(value: Any) -> Json:
    """Convert an argument to JSON values.

    >>> to_json([torch.empty(2, 3), 1.5, None, torch.float64])
    [{'tensor': [2, 3], 'dtype': 'float32'}, 1.5, None, {'dtype': 'float64'}]
    """
    if isinstance(value, torch.Tensor):
        described = {"tensor": list(value.shape), "dtype": _get_name(value.dtype)}
        return described if value.is_contiguous() else {**described, "strides": list(value.stride())}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, torch.device):
        return {"device": value.type}
    if type(value) in NAMED_TORCH_TYPES:
        return {NAMED_TORCH_TYPES[type(value)]: _get_name(value)}
    raise TesseraError("an argument of this type cannot be stored in a case", got=type(value).__name__)


def from_json(described: Json, generator: torch.Generator) -> Any:
    """Rebuild arguments from JSON values, with random tensors drawn from `generator`."""
    return _ArgumentBuilder(described, generator).fill(described)


class _ArgumentBuilder:
    """Builder of arguments with random tensors from their descriptions.

    Floats are between 0.1 and 1, where logarithms, roots and variances are defined. Integers may be used as indices, so
    they are valid in every dim longer than 1 of every floating-point tensor.
    """

    def __init__(self, described: Json, generator: torch.Generator) -> None:
        self._generator, self._below = generator, find_index_limit(described)

    def fill(self, described: Json) -> Any:
        if isinstance(described, list):
            return [self.fill(part) for part in described]
        if not isinstance(described, dict):
            return described
        if "tensor" in described:
            return self._make_tensor(described)
        ((kind, what),) = described.items()
        if kind == "complex":
            return complex(*what)
        return torch.device(what) if kind == "device" else getattr(torch, what)

    def _make_tensor(self, described: dict[str, Any]) -> torch.Tensor:
        shape, dtype = described["tensor"], getattr(torch, described["dtype"])
        strides = described.get("strides")
        if strides is None:
            return self._draw_numbers(math.prod(shape), dtype).reshape(shape)
        length = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) if math.prod(shape) else 0
        return self._draw_numbers(length, dtype).as_strided(shape, strides)

    def _draw_numbers(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        if dtype.is_floating_point or dtype.is_complex:
            wide = torch.complex128 if dtype.is_complex else torch.float64
            return torch.rand(count, generator=self._generator, dtype=wide).mul_(0.9).add_(0.1).to(dtype)
        limit = 2 if dtype is torch.bool else self._below
        return torch.randint(limit, (count,), generator=self._generator).to(dtype)


def find_index_limit(described: Json) -> int:
    """Return the upper bound (exclusive) of random integers: the shortest dim above 1 of the floating-point tensors."""
    dims = [n for shape, dtype in _iter_tensors(described) if dtype.is_floating_point for n in shape if n > 1]
    return min(dims, default=2)


def _iter_tensors(described: Json) -> Iterator[tuple[list[int], torch.dtype]]:
    if isinstance(described, list):
        for part in described:
            yield from _iter_tensors(part)
    elif isinstance(described, dict):
        if "tensor" in described:
            yield described["tensor"], getattr(torch, described["dtype"])
        else:
            for part in described.values():
                yield from _iter_tensors(part)


def _get_name(named: Any) -> str:
    return str(named).removeprefix("torch.")

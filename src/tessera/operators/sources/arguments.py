"""The arguments of a call as plain JSON values and back: tensors as their description, filled at random.

A case has to say all of itself without the model it was seen in. Numbers, texts, None and lists stand for themselves;
everything else is an object with one telling key: {"tensor": [64, 3], "dtype": "float32"}, {"dtype": "float32"},
{"device": "cpu"}, {"layout": "strided"}, {"memory_format": "channels_last"}, {"complex": [0.0, 1.0]}.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from tessera.errors import TesseraError

Json = Any
NAMED = {torch.dtype: "dtype", torch.layout: "layout", torch.memory_format: "memory_format"}


def to_json(value: Any) -> Json:
    """An argument as plain values.

    >>> to_json([torch.empty(2, 3), 1.5, None, torch.float64])
    [{'tensor': [2, 3], 'dtype': 'float32'}, 1.5, None, {'dtype': 'float64'}]
    """
    if isinstance(value, torch.Tensor):
        described = {"tensor": list(value.shape), "dtype": _word(value.dtype)}
        return described if value.is_contiguous() else {**described, "strides": list(value.stride())}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [to_json(part) for part in value]
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, torch.device):
        return {"device": value.type}
    if type(value) in NAMED:
        return {NAMED[type(value)]: _word(value)}
    raise TesseraError("an argument cannot be written down", got=type(value).__name__)


def from_json(described: Json, generator: torch.Generator) -> Any:
    """The arguments again, with new random tensors."""
    return _Filler(described, generator).value(described)


class _Filler:
    """Makes tensors of their descriptions.

    Floats lie between 0.1 and 1, where logarithms, roots and variances are defined. Integers may be indices into any
    dim of any of the tensors: they stay below the shortest.
    """

    def __init__(self, described: Json, generator: torch.Generator) -> None:
        self._generator, self._below = generator, below(described)

    def value(self, described: Json) -> Any:
        if isinstance(described, list):
            return [self.value(part) for part in described]
        if not isinstance(described, dict):
            return described
        if "tensor" in described:
            return self._tensor(described)
        ((kind, what),) = described.items()
        if kind == "complex":
            return complex(*what)
        return torch.device(what) if kind == "device" else getattr(torch, what)

    def _tensor(self, described: dict[str, Any]) -> torch.Tensor:
        shape, dtype = described["tensor"], getattr(torch, described["dtype"])
        strides = described.get("strides")
        if strides is None:
            return self._numbers(math.prod(shape), dtype).reshape(shape)
        length = 1 + sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) if math.prod(shape) else 0
        return self._numbers(length, dtype).as_strided(shape, strides)

    def _numbers(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        if dtype.is_floating_point or dtype.is_complex:
            wide = torch.complex128 if dtype.is_complex else torch.float64
            return torch.rand(count, generator=self._generator, dtype=wide).mul_(0.9).add_(0.1).to(dtype)
        limit = 2 if dtype is torch.bool else self._below
        return torch.randint(limit, (count,), generator=self._generator).to(dtype)


def below(described: Json) -> int:
    """What integers have to stay below to be indices into any dim: the length of the shortest."""
    dims = [n for shape, dtype in _tensors(described) if dtype.is_floating_point for n in shape if n > 1]
    return min(dims, default=2)


def _tensors(described: Json) -> Iterator[tuple[list[int], torch.dtype]]:
    if isinstance(described, list):
        for part in described:
            yield from _tensors(part)
    elif isinstance(described, dict):
        if "tensor" in described:
            yield described["tensor"], getattr(torch, described["dtype"])
        else:
            for part in described.values():
                yield from _tensors(part)


def _word(named: Any) -> str:
    return str(named).removeprefix("torch.")

"""Every operator call that a model makes in one forward pass, seen without computing it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode

from tessera.errors import TesseraError, first_line
from tessera.models.flops import apart
from tessera.operators.sources.arguments import Json, to_json

DEPENDS_ON_DATA = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException)


@dataclass(frozen=True, slots=True, kw_only=True)
class Captured:
    """A distinct call: the operator's name, its arguments as plain values, and how often the model makes it."""

    name: str
    arguments: list[Json]
    keywords: dict[str, Json]
    calls: int


class _Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes down every call that is dispatched, equal ones once."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found: dict[str, Captured] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace != "prim":  # questions about a tensor, such as its device
            arguments = [to_json(arg) for arg in args]
            keywords = {name: to_json(value) for name, value in (kwargs or {}).items()}
            call = Captured(name=str(func).removesuffix(".default"), arguments=arguments, keywords=keywords, calls=0)
            key = json.dumps([call.name, arguments, keywords], sort_keys=True)
            seen = self.found.get(key, call)
            self.found[key] = replace(seen, calls=seen.calls + 1)
        return func(*args, **(kwargs or {}))


def capture(module: nn.Module, input_shape: tuple[int, ...], dtype: torch.dtype) -> list[Captured]:
    """The distinct calls of one forward pass in the order in which they first come.

    Tensors are torch's fake ones: they know their shape and that they are on the CPU, and hold nothing. A model that
    looks at its data cannot run on these, and runs on zeros instead.
    """
    calls = _Calls()
    try:
        own = apart(module)  # what it keeps from a pass is fake
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                _forward(own, input_shape, dtype, calls)
        except DEPENDS_ON_DATA:
            _forward(apart(module), input_shape, dtype, calls)
    except Exception as error:  # whatever a model of the user's own raises
        raise TesseraError(f"the model does not take this input: {first_line(error)}", got=input_shape) from None
    return list(calls.found.values())


def _forward(module: nn.Module, input_shape: tuple[int, ...], dtype: torch.dtype, calls: _Calls) -> None:
    """Run the model on empty state: only what it calls is wanted, not what it gives."""

    def blank(tensor: torch.Tensor) -> torch.Tensor:
        kind = dtype if tensor.is_floating_point() else tensor.dtype
        return torch.zeros(tensor.shape, dtype=kind).as_strided(tensor.shape, tensor.stride())

    state = {name: blank(t) for name, t in (*module.named_parameters(), *module.named_buffers())}
    image = torch.zeros(input_shape, dtype=dtype)
    calls.found.clear()
    with torch.no_grad(), calls:
        functional_call(module, state, (image,))

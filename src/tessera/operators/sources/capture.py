"""Capture of every operator call of a model's forward pass, without computing it."""

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

from tessera.errors import TesseraError, get_first_line
from tessera.models.flops import copy_sharing_weights
from tessera.operators.sources.arguments import Json, to_json

DATA_DEPENDENT_ERRORS = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException)


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedCall:
    """A distinct operator call: the operator's name, the arguments as JSON values, and the number of equal calls."""

    name: str
    arguments: list[Json]
    keywords: dict[str, Json]
    calls: int


class _CallRecorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Dispatch mode that records every operator call and counts equal calls."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: dict[str, CapturedCall] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.namespace != "prim":  # skip prim operators, which are queries such as the device of a tensor
            arguments = [to_json(arg) for arg in args]
            keywords = {name: to_json(value) for name, value in (kwargs or {}).items()}
            call = CapturedCall(
                name=str(func).removesuffix(".default"), arguments=arguments, keywords=keywords, calls=0
            )
            key = json.dumps([call.name, arguments, keywords], sort_keys=True)
            seen = self.calls.get(key, call)
            self.calls[key] = replace(seen, calls=seen.calls + 1)
        return func(*args, **(kwargs or {}))


def capture_calls(module: nn.Module, input_shape: tuple[int, ...], dtype: torch.dtype) -> list[CapturedCall]:
    """Return the distinct calls of one forward pass, in the order of their first occurrence.

    The model runs on torch's fake tensors, which have a shape and a device but no data. A model whose control flow
    depends on its data runs on zeros instead.
    """
    recorder = _CallRecorder()
    try:
        copied = copy_sharing_weights(module)  # use a copy: the pass may store fake tensors in the module
        try:
            with FakeTensorMode(allow_non_fake_inputs=True):
                _run_forward(copied, input_shape, dtype, recorder)
        except DATA_DEPENDENT_ERRORS:
            _run_forward(copy_sharing_weights(module), input_shape, dtype, recorder)
    except Exception as error:  # a user's model may raise anything
        raise TesseraError(
            f"the forward pass of the model failed: {get_first_line(error)}",
            got=f"input of shape {input_shape}",
            do="check the input shape and the model",
        ) from None
    return list(recorder.calls.values())


def _run_forward(module: nn.Module, input_shape: tuple[int, ...], dtype: torch.dtype, calls: _CallRecorder) -> None:
    """Run the forward pass with all parameters zero; only the recorded calls are used."""

    def make_blank(tensor: torch.Tensor) -> torch.Tensor:
        kind = dtype if tensor.is_floating_point() else tensor.dtype
        return torch.zeros(tensor.shape, dtype=kind).as_strided(tensor.shape, tensor.stride())

    state = {name: make_blank(t) for name, t in (*module.named_parameters(), *module.named_buffers())}
    image = torch.zeros(input_shape, dtype=dtype)
    calls.calls.clear()
    with torch.no_grad(), calls:
        functional_call(module, state, (image,))

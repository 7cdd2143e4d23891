"""The three passes of an operator as plain callables: forward, backward alone, and both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tessera.errors import Refused, TesseraError
from tessera.launch.fresh import resolve
from tessera.operators import cases
from tessera.operators.catalogue import Operator

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in cases.DTYPES}


def make_inputs(operator: Operator, size: str, dtype: str, seed: int, grad: bool) -> dict[str, torch.Tensor]:
    """Random tensors of the operator's named shapes, the same for the same seed."""
    if dtype not in DTYPES:
        raise TesseraError("unknown dtype", got=dtype, allowed=DTYPES)
    source = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=source).to(DTYPES[dtype]).requires_grad_(grad)
        for name, shape in operator.shapes(size).items()
    }


def make_pass(operator: Operator, which: str, inputs: dict[str, torch.Tensor]) -> Callable[[], Any]:
    """The callable to time. Backward starts from a given output gradient: no loss, no accumulation into `.grad`."""
    tensors = tuple(inputs.values())
    forward = partial(resolve(operator.call), *tensors, **operator.attributes)
    if which == "forward":
        return forward
    if which not in cases.PASSES:
        raise TesseraError("unknown pass", got=which, allowed=cases.PASSES)
    result = forward()
    if not result.requires_grad:
        raise Refused(f"{operator.name} does not differentiate", got=which, allowed="forward")
    gradient = torch.randn(result.shape, generator=torch.Generator().manual_seed(1)).to(result.dtype)
    if which == "backward":
        return lambda: torch.autograd.grad(result, tensors, gradient, retain_graph=True)
    return lambda: torch.autograd.grad(forward(), tensors, gradient)

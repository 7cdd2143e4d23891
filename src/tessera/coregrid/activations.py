"""Activation functions that a core applies to its output before it stores the output."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from torch import Tensor
from torch.nn import functional as F

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": lambda x: x.relu_(),
    "relu6": lambda x: x.clamp_(0, 6),
    "silu": lambda x: F.silu(x, inplace=True),
    "gelu": lambda x: x.copy_(F.gelu(x)),
    "sigmoid": lambda x: x.sigmoid_(),
    "tanh": lambda x: x.tanh_(),
    "hardswish": lambda x: F.hardswish(x, inplace=True),
}


def apply_activation(values: Tensor, name: str, *, approximate: bool = False) -> None:
    """Apply an activation to `values` in place; an empty name is a no-op. `approximate` uses the tanh form of gelu."""
    if name == "gelu" and approximate:
        values.copy_(F.gelu(values, approximate="tanh"))
    elif name:
        ACTIVATIONS[name](values)


class UnaryOpType(StrEnum):
    """Activations under their ttnn names."""

    RELU = "relu"
    RELU6 = "relu6"
    SILU = "silu"
    GELU = "gelu"
    SIGMOID = "sigmoid"
    TANH = "tanh"
    HARDSWISH = "hardswish"


def UnaryWithParam(op_type: UnaryOpType) -> UnaryOpType:
    """Return `op_type` unchanged. Named after ttnn's class; the activations of this package have no parameters."""
    return op_type

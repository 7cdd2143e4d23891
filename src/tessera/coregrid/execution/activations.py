"""What may follow a convolution on the same core, before its output is stored."""

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


def activate(values: Tensor, name: str, *, approximate: bool = False) -> None:
    """Apply an activation in place, none if it has no name; the approximate mode takes gelu by its tanh."""
    if name == "gelu" and approximate:
        values.copy_(F.gelu(values, approximate="tanh"))
    elif name:
        ACTIVATIONS[name](values)


class UnaryOpType(StrEnum):
    """The activations by the names that ttnn has for them."""

    RELU = "relu"
    RELU6 = "relu6"
    SILU = "silu"
    GELU = "gelu"
    SIGMOID = "sigmoid"
    TANH = "tanh"
    HARDSWISH = "hardswish"


def UnaryWithParam(op_type: UnaryOpType) -> UnaryOpType:
    """An activation, as ttnn writes it; none of those here has a parameter."""
    return op_type

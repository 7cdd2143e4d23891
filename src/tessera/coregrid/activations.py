"""Element-wise functions of one tensor: names, parameters, and their computation in place.

An activation of a config is a name, with parameters in brackets if the function has any: `relu`, `leaky_relu(0.1)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor
from torch.nn import functional as F

from tessera.errors import TesseraError

NO_ACTIVATION = ""
ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "abs": lambda x: x.abs_(),
    "cos": lambda x: x.cos_(),
    "elu": lambda x, alpha=1.0: F.elu(x, alpha, inplace=True),
    "exp": lambda x: x.exp_(),
    "gelu": lambda x: x.copy_(F.gelu(x)),
    "hardsigmoid": lambda x: F.hardsigmoid(x, inplace=True),
    "hardswish": lambda x: F.hardswish(x, inplace=True),
    "hardtanh": lambda x, min_val=-1.0, max_val=1.0: x.clamp_(min_val, max_val),
    "leaky_relu": lambda x, negative_slope=0.01: F.leaky_relu(x, negative_slope, inplace=True),
    "log": lambda x: x.log_(),
    "mish": lambda x: F.mish(x, inplace=True),
    "neg": lambda x: x.neg_(),
    "reciprocal": lambda x: x.reciprocal_(),
    "relu": lambda x: x.relu_(),
    "relu6": lambda x: x.clamp_(0, 6),
    "rsqrt": lambda x: x.rsqrt_(),
    "selu": lambda x: F.selu(x, inplace=True),
    "sigmoid": lambda x: x.sigmoid_(),
    "silu": lambda x: F.silu(x, inplace=True),
    "sin": lambda x: x.sin_(),
    "softplus": lambda x, beta=1.0, threshold=20.0: x.copy_(F.softplus(x, beta, threshold)),
    "sqrt": lambda x: x.sqrt_(),
    "square": lambda x: x.square_(),
    "tanh": lambda x: x.tanh_(),
}


class UnaryOpType(StrEnum):
    """Activations under their ttnn names."""

    ABS = "abs"
    COS = "cos"
    ELU = "elu"
    EXP = "exp"
    GELU = "gelu"
    HARDSIGMOID = "hardsigmoid"
    HARDSWISH = "hardswish"
    HARDTANH = "hardtanh"
    LEAKY_RELU = "leaky_relu"
    LOG = "log"
    MISH = "mish"
    NEG = "neg"
    RECIP = "reciprocal"
    RELU = "relu"
    RELU6 = "relu6"
    RSQRT = "rsqrt"
    SELU = "selu"
    SIGMOID = "sigmoid"
    SILU = "silu"
    SIN = "sin"
    SOFTPLUS = "softplus"
    SQRT = "sqrt"
    SQUARE = "square"
    TANH = "tanh"


@dataclass(frozen=True, slots=True, init=False)
class UnaryWithParam:
    """An activation and its parameters, as ttnn's programs write it."""

    op_type: UnaryOpType
    params: tuple[float, ...]

    def __init__(self, op_type: UnaryOpType | str, *params: float) -> None:
        object.__setattr__(self, "op_type", UnaryOpType(op_type))
        object.__setattr__(self, "params", tuple(map(float, params)))

    def __str__(self) -> str:
        inside = ", ".join(f"{number:g}" for number in self.params)
        return f"{self.op_type.value}({inside})" if inside else self.op_type.value


def normalise_activation(activation: UnaryWithParam | str | None) -> str:
    """Return an activation as a name with its parameters; '' for none. Raises an error for an unknown name.

    >>> normalise_activation("relu"), normalise_activation(UnaryWithParam(UnaryOpType.LEAKY_RELU, 0.1))
    ('relu', 'leaky_relu(0.1)')
    """
    text = str(activation or NO_ACTIVATION)
    if text != NO_ACTIVATION and _split_parameters(text)[0] not in ACTIVATIONS:
        raise TesseraError("unknown activation", got=text, allowed=[*ACTIVATIONS, "'' for none"])
    return text


def apply_activation(values: Tensor, activation: str, *, approximate: bool = False) -> None:
    """Apply an activation to `values` in place; an empty name is a no-op. `approximate` uses the tanh form of gelu."""
    if activation == "gelu" and approximate:
        values.copy_(F.gelu(values, approximate="tanh"))
    elif activation:
        name, parameters = _split_parameters(activation)
        ACTIVATIONS[name](values, *parameters)


def compute_activation(values: torch.Tensor, activation: str) -> torch.Tensor:
    """Return an activation of `values` as a new float32 tensor."""
    result = values.float().clone()
    apply_activation(result, activation)
    return result


def _split_parameters(text: str) -> tuple[str, list[float]]:
    name, bracket, rest = text.partition("(")
    if not bracket:
        return name, []
    try:
        parameters = [float(number) for number in rest.rstrip(")").split(",")]
    except ValueError:
        parameters = [math.nan]
    if any(map(math.isnan, parameters)):
        raise TesseraError(
            "the parameters of an activation must be numbers", got=text, allowed="for example 'elu(1.0)'"
        )
    return name, parameters

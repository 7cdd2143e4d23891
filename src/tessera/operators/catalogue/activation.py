"""Activation functions, and their in-place variants."""

from __future__ import annotations

from typing import Any

from tessera.operators.catalogue.families import NO_GRADIENT, WIDE_DTYPES, ElementwiseFamily, Settings, define_operator
from tessera.operators.draws import Draw, between_multiples, normal, uniform
from tessera.operators.operator import Input, Operator, make_sizes

BETWEEN_INTEGERS = between_multiples(-4, 4)  # avoids integers, where some activations are not differentiable
BETWEEN_HALVES = between_multiples(-4, 4, width=0.5)
POSITIVE_VALUES, NEGATIVE_VALUES = uniform(0.5, 2.0), uniform(-2.0, -0.5)
LARGE_VALUES = uniform(40.0, 60.0)  # values for which sigmoid-like gates round to 1 in every dtype


_ACTIVATION_FAMILY = ElementwiseFamily("activation", {"libraries": ("F", "ref")})
_define_activation = _ACTIVATION_FAMILY.define_unary


def _define_inplace(
    name: str, draw: Draw = normal, *, keyword: bool = False, torch: str = "", reference: str = "", **rest: Any
) -> Operator:
    """Define an activation that overwrites its input: `F.NAME_(data)`; with `keyword`, `F.NAME(data, inplace=True)`."""
    arguments = ", ".join(["data", *rest.get("attributes", ())])
    torch = torch or (f"F.{name}({arguments}, inplace=True)" if keyword else f"F.{name}_({arguments})")
    reference = reference or f"ref.{name}({arguments})"
    settings = {"aliases": (), **rest} if keyword else rest
    return _define_activation(name, draw, inplace=True, torch=torch, reference=reference, **settings)


def _define_softmax(name: str, reference: str, flops: float = 5.0, **rest: Any) -> Operator:
    """Define a softmax-like activation over rows, with five FLOPs per value: maximum, exponentials, sum, scaling."""
    costs: Settings = {"flops": flops, "backward_flops": 0.8}
    return _define_activation(name, keywords=True, reference=reference, attributes={"dim": -1}, **costs, **rest)


PRELU_OPERATOR = define_operator(
    "activation",
    "prelu",
    "F.prelu",
    "ref.prelu",
    make_sizes(
        lambda n, c, s: {"data": Input((n, c, s, s), BETWEEN_INTEGERS), "weight": Input((c,), uniform(0.1, 0.4))},
        (1, 16, 16),
        (16, 64, 32),
        (64, 256, 32),
    ),
    flops=1,
    backward_flops=3.0,
    backward_bytes=1.5,
)

# 64 classes per row: with many more, mean and standard deviation would not distinguish distributions
GUMBEL_SOFTMAX_OPERATOR = define_operator(
    "activation",
    "gumbel_softmax",
    "F.gumbel_softmax(data, tau=tau, dim=dim)",
    "ref.gumbel_softmax",
    make_sizes(lambda n: {"data": Input((n, 64))}, 64, 16384, 262144),
    attributes={"tau": 1.0, "dim": -1},
    flops=8,
    check="moments",
    **WIDE_DTYPES,  # in float16, some of the random noise is infinite
    # gradients of random outputs cannot be compared
    **NO_GRADIENT,
)

OPERATORS = (
    # piecewise linear
    _define_activation("relu", BETWEEN_INTEGERS, reference="np.maximum(data, 0)"),
    _define_activation("relu6", between_multiples(-4, 10), reference="np.clip(data, 0, 6)"),
    _define_activation("leaky_relu", BETWEEN_INTEGERS, attributes={"negative_slope": 0.01}),
    PRELU_OPERATOR,
    _define_activation(
        "rrelu",
        BETWEEN_INTEGERS,
        torch="F.rrelu(data, lower, upper, training=False)",
        reference="ref.leaky_relu(data, (lower + upper) / 2)",
        attributes={"lower": 0.125, "upper": 1 / 3},
    ),
    _define_activation("hardtanh", BETWEEN_INTEGERS, reference="np.clip", attributes={"min_val": -1.0, "max_val": 1.0}),
    _define_activation("hardsigmoid", BETWEEN_INTEGERS, flops=2.0),
    _define_activation("hardswish", BETWEEN_INTEGERS, flops=3.0),
    _define_activation("hardshrink", BETWEEN_HALVES, attributes={"lambd": 0.5}),
    _define_activation("softshrink", BETWEEN_HALVES, attributes={"lambd": 0.5}),
    _define_activation(
        "threshold",
        BETWEEN_INTEGERS,
        reference="np.where(data <= threshold, value, data)",
        attributes={"threshold": 1.0, "value": 0.1},
    ),
    # with exponentials
    _define_activation("elu", BETWEEN_INTEGERS, flops=2.0, attributes={"alpha": 1.0}),
    _define_activation("selu", BETWEEN_INTEGERS, flops=3.0),
    _define_activation("celu", BETWEEN_INTEGERS, flops=3.0, attributes={"alpha": 1.5}),
    _define_activation("sigmoid", reference="special.expit", flops=3.0, aliases=("special_expit",)),
    _define_activation("logsigmoid", reference="special.log_expit", flops=3.0),
    _define_activation("silu", flops=4.0, aliases=("swish",)),
    _define_activation("mish", flops=4.0),
    _define_activation("gelu", flops=5.0),
    _define_activation("gelu_tanh", torch="F.gelu(data, approximate='tanh')", flops=9.0),
    _define_activation("softplus", flops=4.0, attributes={"beta": 1.0}),
    _define_activation("softsign", flops=3.0),
    _define_activation("tanhshrink", reference="data - np.tanh(data)", flops=2.0),
    # over rows
    _define_activation("glu", flops=4.0, attributes={"dim": -1}, backward_bytes=5 / 3),
    _define_softmax("softmax", "special.softmax(data, axis=dim)", aliases=("special_softmax",)),
    _define_softmax("log_softmax", "special.log_softmax(data, axis=dim)", aliases=("special_log_softmax",)),
    _define_softmax("softmin", "special.softmax(-data, axis=dim)", flops=6.0),
    GUMBEL_SOFTMAX_OPERATOR,
    # in place: repeated calls change nothing, or approach a limit without denormals
    _define_inplace("relu", reference="np.maximum(data, 0, out=data)"),
    _define_inplace("relu6", keyword=True, reference="np.clip(data, 0, 6, out=data)"),
    _define_inplace("leaky_relu", POSITIVE_VALUES, attributes={"negative_slope": 0.01}),
    _define_inplace(
        "hardtanh", reference="np.clip(data, min_val, max_val, out=data)", attributes={"min_val": -1.0, "max_val": 1.0}
    ),
    _define_inplace("hardsigmoid", keyword=True, flops=2.0),
    _define_inplace("hardswish", uniform(4.0, 8.0), keyword=True, flops=3.0),
    _define_inplace(
        "threshold",
        reference="np.copyto(data, value, where=data <= threshold) or data",
        attributes={"threshold": 1.0, "value": 0.1},
    ),
    _define_inplace("elu", NEGATIVE_VALUES, flops=2.0, attributes={"alpha": 1.0}),
    _define_inplace("selu", NEGATIVE_VALUES, flops=3.0),
    _define_inplace("celu", NEGATIVE_VALUES, flops=3.0, attributes={"alpha": 1.0}),
    _define_inplace("sigmoid", torch="torch.sigmoid_(data)", reference="special.expit(data)", flops=3.0),
    _define_inplace("silu", LARGE_VALUES, keyword=True, flops=4.0),
    _define_inplace("mish", LARGE_VALUES, keyword=True, flops=4.0),
)

"""Activation functions, and their in-place variants."""

from __future__ import annotations

from typing import Any

from tessera.operators.catalogue.families import NO_GRADIENT, WIDE_DTYPES, ElementwiseFamily, define_operator
from tessera.operators.draws import Draw, between_multiples, normal, uniform
from tessera.operators.operator import Input, Operator, make_sizes
from tessera.operators.work import count_per_output

BETWEEN_INTEGERS = between_multiples(-4, 4)  # avoids integers, where some activations are not differentiable
BETWEEN_HALVES = between_multiples(-4, 4, width=0.5)
POSITIVE_VALUES, NEGATIVE_VALUES = uniform(0.5, 2.0), uniform(-2.0, -0.5)
LARGE_VALUES = uniform(40.0, 60.0)  # values for which sigmoid-like gates round to 1 in every dtype


_ACTIVATION_FAMILY = ElementwiseFamily("activation")


def _define_activation(
    name: str,
    arguments: str,
    reference: str,
    draw: Draw = normal,
    *,
    function: str = "",
    flops: float = 1.0,
    **rest: Any,
) -> Operator:
    """Define an activation of `torch.nn.functional`; set `function` if its name there differs from `name`."""
    torch = f"F.{function or name}({arguments})"
    return _ACTIVATION_FAMILY.define_unary(
        name, draw, torch=torch, reference=reference, flops=count_per_output(flops), **rest
    )


def _define_inplace(name: str, torch: str, reference: str, draw: Draw, *, flops: float = 1.0, **rest: Any) -> Operator:
    """Define an activation that overwrites its input."""
    calls: dict[str, Any] = {"torch": torch, "reference": reference, "flops": count_per_output(flops)}
    return _ACTIVATION_FAMILY.define_unary(name, draw, inplace=True, **calls, **rest)


def _define_softmax(name: str, reference: str, **rest: Any) -> Operator:
    """Define a softmax-like activation over rows, with five FLOPs per value: maximum, exponentials, sum, scaling."""
    settings = {"flops": 5.0, "backward_flops": 0.8, "attributes": {"dim": -1}, **rest}
    return _define_activation(name, "data, dim=dim", reference, **settings)


PRELU_OPERATOR = define_operator(
    "activation",
    "prelu",
    "F.prelu(data, weight)",
    "ref.prelu(data, weight)",
    make_sizes(
        lambda n, c, s: {
            "data": Input(shape=(n, c, s, s), draw=BETWEEN_INTEGERS),
            "weight": Input(shape=(c,), draw=uniform(0.1, 0.4)),
        },
        (1, 16, 16),
        (16, 64, 32),
        (64, 256, 32),
    ),
    flops=count_per_output(),
    backward_flops=3.0,
    backward_bytes=1.5,
)

# 64 classes per row: with many more, mean and standard deviation would not distinguish distributions
GUMBEL_SOFTMAX_OPERATOR = define_operator(
    "activation",
    "gumbel_softmax",
    "F.gumbel_softmax(data, tau=tau, dim=dim)",
    "ref.gumbel_softmax(data, tau, dim)",
    make_sizes(lambda n: {"data": Input(shape=(n, 64))}, 64, 16384, 262144),
    attributes={"tau": 1.0, "dim": -1},
    flops=count_per_output(8),
    check="moments",
    **WIDE_DTYPES,  # in float16, some of the random noise is infinite
    # gradients of random outputs cannot be compared
    **NO_GRADIENT,
)

OPERATORS = (
    # piecewise linear
    _define_activation("relu", "data", "np.maximum(data, 0)", BETWEEN_INTEGERS),
    _define_activation("relu6", "data", "np.clip(data, 0, 6)", between_multiples(-4, 10)),
    _define_activation(
        "leaky_relu",
        "data, negative_slope",
        "ref.leaky_relu(data, negative_slope)",
        BETWEEN_INTEGERS,
        attributes={"negative_slope": 0.01},
    ),
    PRELU_OPERATOR,
    _define_activation(
        "rrelu",
        "data, lower, upper, training=False",
        "ref.leaky_relu(data, (lower + upper) / 2)",
        BETWEEN_INTEGERS,
        attributes={"lower": 0.125, "upper": 1 / 3},
    ),
    _define_activation(
        "hardtanh",
        "data, min_val, max_val",
        "np.clip(data, min_val, max_val)",
        BETWEEN_INTEGERS,
        attributes={"min_val": -1.0, "max_val": 1.0},
    ),
    _define_activation("hardsigmoid", "data", "ref.hardsigmoid(data)", BETWEEN_INTEGERS, flops=2.0),
    _define_activation("hardswish", "data", "ref.hardswish(data)", BETWEEN_INTEGERS, flops=3.0),
    _define_activation(
        "hardshrink", "data, lambd", "ref.hardshrink(data, lambd)", BETWEEN_HALVES, attributes={"lambd": 0.5}
    ),
    _define_activation(
        "softshrink", "data, lambd", "ref.softshrink(data, lambd)", BETWEEN_HALVES, attributes={"lambd": 0.5}
    ),
    _define_activation(
        "threshold",
        "data, threshold, value",
        "np.where(data <= threshold, value, data)",
        BETWEEN_INTEGERS,
        attributes={"threshold": 1.0, "value": 0.1},
    ),
    # with exponentials
    _define_activation(
        "elu", "data, alpha", "ref.elu(data, alpha)", BETWEEN_INTEGERS, flops=2.0, attributes={"alpha": 1.0}
    ),
    _define_activation("selu", "data", "ref.selu(data)", BETWEEN_INTEGERS, flops=3.0),
    _define_activation(
        "celu", "data, alpha", "ref.celu(data, alpha)", BETWEEN_INTEGERS, flops=3.0, attributes={"alpha": 1.5}
    ),
    _define_activation("sigmoid", "data", "special.expit(data)", flops=3.0, aliases=("special_expit",)),
    _define_activation("logsigmoid", "data", "special.log_expit(data)", flops=3.0),
    _define_activation("silu", "data", "ref.silu(data)", flops=4.0, aliases=("swish",)),
    _define_activation("mish", "data", "ref.mish(data)", flops=4.0),
    _define_activation("gelu", "data", "ref.gelu(data)", flops=5.0),
    _define_activation("gelu_tanh", "data, approximate='tanh'", "ref.gelu_tanh(data)", function="gelu", flops=9.0),
    _define_activation("softplus", "data, beta", "ref.softplus(data, beta)", flops=4.0, attributes={"beta": 1.0}),
    _define_activation("softsign", "data", "ref.softsign(data)", flops=3.0),
    _define_activation("tanhshrink", "data", "data - np.tanh(data)", flops=2.0),
    # over rows
    _define_activation(
        "glu", "data, dim", "ref.glu(data, dim)", flops=4.0, attributes={"dim": -1}, backward_bytes=5 / 3
    ),
    _define_softmax("softmax", "special.softmax(data, axis=dim)", aliases=("special_softmax",)),
    _define_softmax("log_softmax", "special.log_softmax(data, axis=dim)", aliases=("special_log_softmax",)),
    _define_softmax("softmin", "special.softmax(-data, axis=dim)", flops=6.0),
    GUMBEL_SOFTMAX_OPERATOR,
    # in place: repeated calls change nothing, or approach a limit without denormals
    _define_inplace("relu", "F.relu_(data)", "np.maximum(data, 0, out=data)", normal),
    _define_inplace("relu6", "F.relu6(data, inplace=True)", "np.clip(data, 0, 6, out=data)", normal, aliases=()),
    _define_inplace(
        "leaky_relu",
        "F.leaky_relu_(data, negative_slope)",
        "ref.leaky_relu(data, negative_slope)",
        POSITIVE_VALUES,
        attributes={"negative_slope": 0.01},
    ),
    _define_inplace(
        "hardtanh",
        "F.hardtanh_(data, min_val, max_val)",
        "np.clip(data, min_val, max_val, out=data)",
        normal,
        attributes={"min_val": -1.0, "max_val": 1.0},
    ),
    _define_inplace(
        "hardsigmoid", "F.hardsigmoid(data, inplace=True)", "ref.hardsigmoid(data)", normal, flops=2.0, aliases=()
    ),
    _define_inplace(
        "hardswish", "F.hardswish(data, inplace=True)", "ref.hardswish(data)", uniform(4.0, 8.0), flops=3.0, aliases=()
    ),
    _define_inplace(
        "threshold",
        "F.threshold_(data, threshold, value)",
        "np.copyto(data, value, where=data <= threshold) or data",
        normal,
        attributes={"threshold": 1.0, "value": 0.1},
    ),
    _define_inplace(
        "elu", "F.elu_(data, alpha)", "ref.elu(data, alpha)", NEGATIVE_VALUES, flops=2.0, attributes={"alpha": 1.0}
    ),
    _define_inplace("selu", "F.selu_(data)", "ref.selu(data)", NEGATIVE_VALUES, flops=3.0),
    _define_inplace(
        "celu", "F.celu_(data, alpha)", "ref.celu(data, alpha)", NEGATIVE_VALUES, flops=3.0, attributes={"alpha": 1.0}
    ),
    _define_inplace("sigmoid", "torch.sigmoid_(data)", "special.expit(data)", normal, flops=3.0),
    _define_inplace("silu", "F.silu(data, inplace=True)", "ref.silu(data)", LARGE_VALUES, flops=4.0, aliases=()),
    _define_inplace("mish", "F.mish(data, inplace=True)", "ref.mish(data)", LARGE_VALUES, flops=4.0, aliases=()),
)

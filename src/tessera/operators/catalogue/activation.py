"""Activations, also in place."""

from __future__ import annotations

from typing import Any

from tessera.operators.catalogue.elementwise import NO_GRADIENT, WIDE, inplace_unary, unary
from tessera.operators.draws import Draw, cells, normal, uniform
from tessera.operators.operator import Input, Operator, by_size
from tessera.operators.work import per_output

NO_KINK = cells(-4, 4)  # at whole numbers
NO_KINK_AT_HALVES = cells(-4, 4, width=0.5)
POSITIVE, NEGATIVE = uniform(0.5, 2.0), uniform(-2.0, -0.5)
LARGE = uniform(40.0, 60.0)  # where gates are open to the last bit


def _activation(
    name: str,
    arguments: str,
    reference: str,
    draw: Draw = normal,
    *,
    function: str = "",
    flops: float = 1.0,
    **rest: Any,
) -> Operator:
    """An activation of `torch.nn.functional`, under its own name unless `function` is another."""
    torch = f"F.{function or name}({arguments})"
    return unary("activation", name, draw, torch=torch, reference=reference, flops=per_output(flops), **rest)


def _inplace(name: str, torch: str, reference: str, draw: Draw, *, flops: float = 1.0, **rest: Any) -> Operator:
    """An activation that overwrites its input."""
    return inplace_unary("activation", name, draw, torch=torch, reference=reference, flops=per_output(flops), **rest)


def _softmax(name: str, reference: str, **rest: Any) -> Operator:
    """Each row by itself: its largest value, its sum of exponentials, then every value."""
    settings = {"flops": 5.0, "backward_flops": 0.8, "attributes": {"dim": -1}, **rest}
    return _activation(name, "data, dim=dim", reference, **settings)


PRELU = Operator(
    name="prelu",
    category="activation",
    torch="F.prelu(data, weight)",
    reference="ref.prelu(data, weight)",
    sizes=by_size(
        lambda n, c, s: {
            "data": Input(shape=(n, c, s, s), draw=NO_KINK),
            "weight": Input(shape=(c,), draw=uniform(0.1, 0.4)),
        },
        (1, 16, 16),
        (16, 64, 32),
        (64, 256, 32),
    ),
    flops=per_output(),
    backward_flops=3.0,
    backward_bytes=1.5,
)

# sixty-four classes a row: over many more, hardly any value would tell one distribution from another
GUMBEL_SOFTMAX = Operator(
    name="gumbel_softmax",
    category="activation",
    torch="F.gumbel_softmax(data, tau=tau, dim=dim)",
    reference="ref.gumbel_softmax(data, tau, dim)",
    sizes=by_size(lambda n: {"data": Input(shape=(n, 64))}, 64, 16384, 262144),
    attributes={"tau": 1.0, "dim": -1},
    flops=per_output(8),
    check="moments",
    **WIDE,  # in float16 some of the noise is infinite
    # a gradient of random numbers cannot be held against other ones
    **NO_GRADIENT,
)

OPERATORS = (
    # of straight lines
    _activation("relu", "data", "np.maximum(data, 0)", NO_KINK),
    _activation("relu6", "data", "np.clip(data, 0, 6)", cells(-4, 10)),
    _activation(
        "leaky_relu",
        "data, negative_slope",
        "ref.leaky_relu(data, negative_slope)",
        NO_KINK,
        attributes={"negative_slope": 0.01},
    ),
    PRELU,
    _activation(
        "rrelu",
        "data, lower, upper, training=False",
        "ref.leaky_relu(data, (lower + upper) / 2)",
        NO_KINK,
        attributes={"lower": 0.125, "upper": 1 / 3},
    ),
    _activation(
        "hardtanh",
        "data, min_val, max_val",
        "np.clip(data, min_val, max_val)",
        NO_KINK,
        attributes={"min_val": -1.0, "max_val": 1.0},
    ),
    _activation("hardsigmoid", "data", "ref.hardsigmoid(data)", NO_KINK, flops=2.0),
    _activation("hardswish", "data", "ref.hardswish(data)", NO_KINK, flops=3.0),
    _activation(
        "hardshrink", "data, lambd", "ref.hardshrink(data, lambd)", NO_KINK_AT_HALVES, attributes={"lambd": 0.5}
    ),
    _activation(
        "softshrink", "data, lambd", "ref.softshrink(data, lambd)", NO_KINK_AT_HALVES, attributes={"lambd": 0.5}
    ),
    _activation(
        "threshold",
        "data, threshold, value",
        "np.where(data <= threshold, value, data)",
        NO_KINK,
        attributes={"threshold": 1.0, "value": 0.1},
    ),
    # of exponentials
    _activation("elu", "data, alpha", "ref.elu(data, alpha)", NO_KINK, flops=2.0, attributes={"alpha": 1.0}),
    _activation("selu", "data", "ref.selu(data)", NO_KINK, flops=3.0),
    _activation("celu", "data, alpha", "ref.celu(data, alpha)", NO_KINK, flops=3.0, attributes={"alpha": 1.5}),
    _activation("sigmoid", "data", "special.expit(data)", flops=3.0, aliases=("special_expit",)),
    _activation("logsigmoid", "data", "special.log_expit(data)", flops=3.0),
    _activation("silu", "data", "ref.silu(data)", flops=4.0, aliases=("swish",)),
    _activation("mish", "data", "ref.mish(data)", flops=4.0),
    _activation("gelu", "data", "ref.gelu(data)", flops=5.0),
    _activation("gelu_tanh", "data, approximate='tanh'", "ref.gelu_tanh(data)", function="gelu", flops=9.0),
    _activation("softplus", "data, beta", "ref.softplus(data, beta)", flops=4.0, attributes={"beta": 1.0}),
    _activation("softsign", "data", "ref.softsign(data)", flops=3.0),
    _activation("tanhshrink", "data", "data - np.tanh(data)", flops=2.0),
    # of rows
    _activation("glu", "data, dim", "ref.glu(data, dim)", flops=4.0, attributes={"dim": -1}, backward_bytes=5 / 3),
    _softmax("softmax", "special.softmax(data, axis=dim)", aliases=("special_softmax",)),
    _softmax("log_softmax", "special.log_softmax(data, axis=dim)", aliases=("special_log_softmax",)),
    _softmax("softmin", "special.softmax(-data, axis=dim)", flops=6.0),
    GUMBEL_SOFTMAX,
    # in place: drawn from where repeating changes nothing, or leads to a limit without denormals on the way
    _inplace("relu", "F.relu_(data)", "np.maximum(data, 0, out=data)", normal),
    _inplace("relu6", "F.relu6(data, inplace=True)", "np.clip(data, 0, 6, out=data)", normal, aliases=()),
    _inplace(
        "leaky_relu",
        "F.leaky_relu_(data, negative_slope)",
        "ref.leaky_relu(data, negative_slope)",
        POSITIVE,
        attributes={"negative_slope": 0.01},
    ),
    _inplace(
        "hardtanh",
        "F.hardtanh_(data, min_val, max_val)",
        "np.clip(data, min_val, max_val, out=data)",
        normal,
        attributes={"min_val": -1.0, "max_val": 1.0},
    ),
    _inplace(
        "hardsigmoid", "F.hardsigmoid(data, inplace=True)", "ref.hardsigmoid(data)", normal, flops=2.0, aliases=()
    ),
    _inplace(
        "hardswish", "F.hardswish(data, inplace=True)", "ref.hardswish(data)", uniform(4.0, 8.0), flops=3.0, aliases=()
    ),
    _inplace(
        "threshold",
        "F.threshold_(data, threshold, value)",
        "np.copyto(data, value, where=data <= threshold) or data",
        normal,
        attributes={"threshold": 1.0, "value": 0.1},
    ),
    _inplace("elu", "F.elu_(data, alpha)", "ref.elu(data, alpha)", NEGATIVE, flops=2.0, attributes={"alpha": 1.0}),
    _inplace("selu", "F.selu_(data)", "ref.selu(data)", NEGATIVE, flops=3.0),
    _inplace("celu", "F.celu_(data, alpha)", "ref.celu(data, alpha)", NEGATIVE, flops=3.0, attributes={"alpha": 1.0}),
    _inplace("sigmoid", "torch.sigmoid_(data)", "special.expit(data)", normal, flops=3.0),
    _inplace("silu", "F.silu(data, inplace=True)", "ref.silu(data)", LARGE, flops=4.0, aliases=()),
    _inplace("mish", "F.mish(data, inplace=True)", "ref.mish(data)", LARGE, flops=4.0, aliases=()),
)

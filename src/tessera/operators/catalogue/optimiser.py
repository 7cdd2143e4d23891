"""One step of each optimiser, which updates a parameter and its state in place.

All calls use the same gradient: states converge or grow slowly, and stay finite over millions of calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tessera.operators.catalogue.families import NO_FLOAT16, NO_GRADIENT, WIDE_DTYPES, Sizes, define_family
from tessera.operators.draws import Draw, constant, normal, uniform
from tessera.operators.operator import Input, Operator, Shape, make_sizes

MATRIX_SCALES = ((64, 64), (1024, 1024), (4096, 4096))
# (parameters, elements per parameter): many small parameters, stacked as the rows of a matrix
MANY_PARAMETER_SCALES = ((16, 256), (64, 16384), (64, 262144))
SQUARED_GRADIENT_VALUES = uniform(0.5, 1.5)  # values of a running mean of squared gradients

ADAM_ATTRIBUTES: Mapping[str, Any] = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
ADAM_DECAY_ATTRIBUTES = {**ADAM_ATTRIBUTES, "weight_decay": 1e-2}
MOMENT_STATES = {"exp_avg": normal, "exp_avg_sq": SQUARED_GRADIENT_VALUES}


def _make_scalar(value: float, shape: Shape = ()) -> Input:
    """Make a constant step count or rate; torch stores it in float32 for every dtype of the parameter."""
    return Input(shape, constant(value), "float32")


STEP_INPUT = {"step": _make_scalar(9.0)}  # nine steps were made before


_define_optimiser = define_family("optimiser", flops_of="param", **NO_GRADIENT)


def _define_step(
    name: str,
    *,
    attributes: Mapping[str, Any],
    states: Mapping[str, Draw],
    scalars: Mapping[str, Input] = STEP_INPUT,
    function: str = "",
    lists: str = "",
    reference: str = "",
    used: tuple[str, ...] | None = None,
    fixed: str = "weight_decay=0.0, foreach=False, maximize=False",
    sizes: Sizes | None = None,
    **others: Any,
) -> Operator:
    """Define one optimiser step, which returns the parameter and its states.

    `function` is the name of a function of `torch.optim._functional` (default: `name`). `lists` and `fixed` are
    Python source text: the arguments of the call before and after the attributes (default of `lists`: all inputs).
    `reference` is the name of the reference function (default: `function`); it takes the parameter, the gradient, the
    states, the scalars named in `used` (default: all), and the attributes under torch's names.
    """
    draws = {"param": normal, "grad": normal, **states}

    def build_inputs(*shape: int) -> dict[str, Input]:
        return {**{key: Input(shape, draw) for key, draw in draws.items()}, **scalars}

    function = function or name
    lists = lists or ", ".join(f"[{key}]" for key in (*draws, *scalars))
    arguments = ", ".join([*draws, *(scalars if used is None else used)])
    named = ", ".join(f"{key}={key}" for key in attributes)
    return _define_optimiser(
        name,
        f"(torch.optim._functional.{function}({lists}, {named}, {fixed}), {', '.join(['param', *states])})",
        f"ref.{reference or function}({arguments}, {named})",
        sizes or make_sizes(build_inputs, *MATRIX_SCALES),
        attributes=attributes,
        **others,
    )


def _make_many() -> Sizes:
    """Make the inputs of one step of many parameters: stacked parameters, gradients, states and step counts."""

    def build_inputs(count: int, each: int) -> dict[str, Input]:
        draws = {"param": normal, "grad": normal, **MOMENT_STATES}
        rows = {key: Input((count, each), draw) for key, draw in draws.items()}
        return {**rows, "step": _make_scalar(9.0, (count, 1))}

    return make_sizes(build_inputs, *MANY_PARAMETER_SCALES)


def _define_sgd(name: str, fixed: str, *, nesterov: bool = False, **others: Any) -> Operator:
    return _define_step(
        name,
        function="sgd",
        states={"momentum_buffer": normal},
        scalars={},
        attributes={"lr": 1e-3, "momentum": 0.9, "weight_decay": 1e-2, "nesterov": nesterov},
        fixed=f"{fixed}, dampening=0.0, maximize=False",
        flops=8.0 if nesterov else 6.0,
        **others,
    )


def _define_adam(name: str, fixed: str, *, decoupled: bool = False, many: bool = False) -> Operator:
    """Define a step of Adam, or of AdamW if `decoupled`.

    With `many`, one call updates many parameters; splitting the rows into a list of views is timed.
    """
    lists = "[param], [grad], [exp_avg], [exp_avg_sq], [], [step]"
    return _define_step(
        name,
        function="adam",
        lists=re.sub(r"\[(?=\w)", "[*", lists) if many else lists,
        states=MOMENT_STATES,
        attributes={**ADAM_DECAY_ATTRIBUTES, "decoupled_weight_decay": decoupled},
        fixed=f"{fixed}, amsgrad=False, maximize=False",
        flops=14.0,
        sizes=_make_many() if many else None,
    )


_SGD_OPERATORS = (
    _define_optimiser(
        "sgd",
        "(torch.optim._functional.sgd([param], [grad], [None], lr=lr, weight_decay=weight_decay, momentum=0.0, "
        "dampening=0.0, nesterov=False, foreach=False, maximize=False), param)",
        "param - lr * (grad + weight_decay * param)",
        make_sizes(lambda *shape: {"param": Input(shape), "grad": Input(shape)}, *MATRIX_SCALES),
        attributes={"lr": 1e-3, "weight_decay": 1e-2},
        flops=4,
    ),
    _define_sgd("sgd_momentum", "foreach=False"),
    _define_sgd("sgd_nesterov", "foreach=False", nesterov=True),
    # no 16-bit dtypes, for which the momentum of torch 2.13's fused kernel differs from the unfused kernel
    _define_sgd("sgd_momentum_fused", "fused=True", **WIDE_DTYPES),
    _define_step(
        "asgd",
        used=("mu", "eta"),
        states={"average": normal},
        scalars={"mu": _make_scalar(0.5), "eta": _make_scalar(0.01), **STEP_INPUT},
        attributes={"lambd": 1e-4},
        fixed="lr=0.01, t0=1e6, alpha=0.75, weight_decay=0.0, foreach=False, maximize=False",
        flops=6.0,
    ),
    _define_step(
        "rprop",
        used=(),
        fixed="foreach=False, maximize=False",
        states={"prev": normal, "step_size": uniform(1e-4, 1e-3)},
        attributes={"etaminus": 0.5, "etaplus": 1.2, "step_size_min": 1e-6, "step_size_max": 1e-3},
        flops=8.0,
    ),
)

_ADAM_OPERATORS = (
    _define_adam("adam", "foreach=False"),
    _define_adam("adamw", "foreach=False", decoupled=True),
    _define_adam("adam_fused", "fused=True"),
    _define_adam("adamw_fused", "fused=True", decoupled=True),
    _define_adam("adam_foreach", "foreach=True", many=True),
    _define_adam("adam_for_loop", "foreach=False", many=True),
    _define_step(
        "adam_amsgrad",
        function="adam",
        reference="amsgrad",
        states={**MOMENT_STATES, "max_exp_avg_sq": SQUARED_GRADIENT_VALUES},
        attributes=ADAM_ATTRIBUTES,
        fixed="weight_decay=0.0, amsgrad=True, foreach=False, maximize=False",
        flops=13.0,
    ),
    _define_step(
        "adamax", states={"exp_avg": normal, "exp_inf": SQUARED_GRADIENT_VALUES}, attributes=ADAM_ATTRIBUTES, flops=10.0
    ),
    _define_step(
        "nadam",
        states=MOMENT_STATES,
        scalars={"mu_product": _make_scalar(0.5), **STEP_INPUT},
        attributes={**ADAM_ATTRIBUTES, "momentum_decay": 4e-3},
        flops=15.0,
    ),
    _define_step("radam", states=MOMENT_STATES, attributes=ADAM_ATTRIBUTES, flops=14.0),
)

_ADAPTIVE_OPERATORS = (
    _define_step(
        "rmsprop",
        lists="[param], [grad], [square_avg], [], [], [step]",
        used=(),
        states={"square_avg": SQUARED_GRADIENT_VALUES},
        attributes={"lr": 1e-3, "alpha": 0.99, "eps": 1e-8},
        fixed="weight_decay=0.0, momentum=0.0, centered=False, foreach=False, maximize=False",
        flops=8.0,
    ),
    _define_step(
        "rmsprop_momentum",
        function="rmsprop",
        lists="[param], [grad], [square_avg], [], [momentum_buffer], [step]",
        reference="rmsprop_momentum",
        used=(),
        states={"square_avg": SQUARED_GRADIENT_VALUES, "momentum_buffer": normal},
        attributes={"lr": 1e-3, "alpha": 0.99, "eps": 1e-8, "momentum": 0.9},
        fixed="weight_decay=0.0, centered=False, foreach=False, maximize=False",
        flops=10.0,
    ),
    *(
        _define_step(
            name,
            function="adagrad",
            states={"state_sum": SQUARED_GRADIENT_VALUES},
            attributes={"lr": 1e-2, "lr_decay": 1e-4, "eps": 1e-10},
            fixed=f"weight_decay=0.0, {how}, maximize=False",
            flops=7.0,
            **NO_FLOAT16,
        )
        for name, how in (("adagrad", "foreach=False"), ("adagrad_fused", "fused=True"))
    ),
    _define_step(
        "adadelta",
        used=(),
        states={"square_avg": SQUARED_GRADIENT_VALUES, "acc_delta": SQUARED_GRADIENT_VALUES},
        attributes={"lr": 1e-3, "rho": 0.9, "eps": 1e-6},
        flops=13.0,
    ),
    _define_optimiser(
        "adafactor",
        "(torch.optim._adafactor.adafactor([param], [grad], [row_var], [col_var], [None], [step], lr=lr, "
        "beta2_decay=beta2_decay, weight_decay=weight_decay, eps1=eps1, eps2=eps2, d=d, foreach=False, "
        "maximize=False), param, row_var, col_var)",
        "ref.adafactor(param, grad, row_var, col_var, step, lr=lr, beta2_decay=beta2_decay, "
        "weight_decay=weight_decay, eps1=eps1, eps2=eps2, d=d)",
        make_sizes(
            lambda rows, columns: {
                "param": Input((rows, columns)),
                "grad": Input((rows, columns)),
                "row_var": Input((rows, 1), SQUARED_GRADIENT_VALUES),
                "col_var": Input((1, columns), SQUARED_GRADIENT_VALUES),
                **STEP_INPUT,
            },
            *MATRIX_SCALES,
        ),
        # a step of Adafactor is proportional to the parameter's RMS: a weight decay of 1 keeps the parameter bounded
        attributes={"lr": 1e-3, "beta2_decay": -0.8, "weight_decay": 1.0, "eps1": 1e-7, "eps2": 1e-3, "d": 1.0},
        flops=14,
    ),
)

OPERATORS = (*_SGD_OPERATORS, *_ADAM_OPERATORS, *_ADAPTIVE_OPERATORS)

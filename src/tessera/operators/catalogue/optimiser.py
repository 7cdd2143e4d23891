"""One step of each optimiser, on a parameter, its gradient and its state, all changed in place.

The gradient is the same in every call: states converge to it or grow slowly, and stay finite over millions of calls.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tessera.operators.draws import Draw, constant, normal, uniform
from tessera.operators.operator import Input, Operator, Shape, by_size
from tessera.operators.work import per_input

MATRICES = ((64, 64), (1024, 1024), (4096, 4096))
# so many small parameters in a model, one row each
MANY = ((16, 256), (64, 16384), (64, 262144))
SQUARES = uniform(0.5, 1.5)  # a running mean of squares

ADAM: Mapping[str, Any] = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
DECAYED = {**ADAM, "weight_decay": 1e-2}
MOMENTS = {"exp_avg": normal, "exp_avg_sq": SQUARES}
ADAM_LISTS = "[param], [grad], [exp_avg], [exp_avg_sq], [], [step]"
ADAM_READS = "param, grad, exp_avg, exp_avg_sq, step"


def _scalar(value: float, shape: Shape = ()) -> Input:
    """A count or rate that torch keeps in single precision, whatever the parameter has."""
    return Input(shape=shape, kind="float32", draw=constant(value))


STEP = {"step": _scalar(9.0)}  # nine steps lie behind


def _update(
    name: str,
    function: str,
    lists: str,
    reference: str,
    *,
    flops: float,
    states: Mapping[str, Draw] | None = None,
    scalars: Mapping[str, Input] | None = None,
    fixed: str = "foreach=False, maximize=False",
    attributes: Mapping[str, Any],
    **others: Any,
) -> Operator:
    """A step that returns the parameter and its states.

    `lists` and `fixed` are torch's arguments before and after the attributes; `reference` is a function of `ref` up to
    its attributes, which have torch's names.
    """
    known = states or {}

    def inputs(*shape: int) -> dict[str, Input]:
        draws = {"param": normal, "grad": normal, **known}
        return {**{key: Input(shape=shape, draw=draw) for key, draw in draws.items()}, **(scalars or {})}

    named = ", ".join(f"{key}={key}" for key in attributes)
    return Operator(
        name=name,
        category="optimiser",
        torch=f"(torch.optim.{function}({lists}, {named}, {fixed}), {', '.join(['param', *known])})",
        reference=f"ref.{reference}, {named})",
        attributes=attributes,
        flops=per_input("param", flops),
        differentiable=False,
        **({"sizes": by_size(inputs, *MATRICES)} | others),
    )


def _many(states: Mapping[str, Draw]) -> Mapping[str, Mapping[str, Input]]:
    """Many parameters at once, stacked, each with its own count of steps."""

    def inputs(count: int, each: int) -> dict[str, Input]:
        draws = {"param": normal, "grad": normal, **states}
        rows = {key: Input(shape=(count, each), draw=draw) for key, draw in draws.items()}
        return {**rows, "step": _scalar(9.0, (count, 1))}

    return by_size(inputs, *MANY)


def _sgd(name: str, fixed: str, *, nesterov: bool = False, **others: Any) -> Operator:
    return _update(
        name,
        "_functional.sgd",
        "[param], [grad], [momentum_buffer]",
        "sgd(param, grad, momentum_buffer",
        states={"momentum_buffer": normal},
        attributes={"lr": 1e-3, "momentum": 0.9, "weight_decay": 1e-2, "nesterov": nesterov},
        fixed=f"{fixed}, dampening=0.0, maximize=False",
        flops=8.0 if nesterov else 6.0,
        **others,
    )


def _adam(name: str, fixed: str, lists: str = ADAM_LISTS, *, decoupled: bool = False, **others: Any) -> Operator:
    return _update(
        name,
        "_functional.adam",
        lists,
        f"adam({ADAM_READS}",
        states=MOMENTS,
        scalars=STEP,
        attributes={**DECAYED, "decoupled_weight_decay": decoupled},
        fixed=f"{fixed}, amsgrad=False, maximize=False",
        flops=14.0,
        **others,
    )


_DESCENT = (
    Operator(
        name="sgd",
        category="optimiser",
        torch="(torch.optim._functional.sgd([param], [grad], [None], lr=lr, weight_decay=weight_decay, momentum=0.0, "
        "dampening=0.0, nesterov=False, foreach=False, maximize=False), param)",
        reference="param - lr * (grad + weight_decay * param)",
        sizes=by_size(lambda *shape: {"param": Input(shape=shape), "grad": Input(shape=shape)}, *MATRICES),
        attributes={"lr": 1e-3, "weight_decay": 1e-2},
        flops=per_input("param", 4.0),
        differentiable=False,
    ),
    _sgd("sgd_momentum", "foreach=False"),
    _sgd("sgd_nesterov", "foreach=False", nesterov=True),
    # torch 2.13's fused kernel gives other momentum than the plain one in 16 bits
    _sgd("sgd_momentum_fused", "fused=True", dtypes=("float32", "float64")),
    _update(
        "asgd",
        "_functional.asgd",
        "[param], [grad], [average], [mu], [eta], [step]",
        "asgd(param, grad, average, mu, eta",
        states={"average": normal},
        scalars={"mu": _scalar(0.5), "eta": _scalar(0.01), **STEP},
        attributes={"lambd": 1e-4},
        fixed="lr=0.01, t0=1e6, alpha=0.75, weight_decay=0.0, foreach=False, maximize=False",
        flops=6.0,
    ),
    _update(
        "rprop",
        "_functional.rprop",
        "[param], [grad], [prev], [step_size], [step]",
        "rprop(param, grad, prev, step_size",
        states={"prev": normal, "step_size": uniform(1e-4, 1e-3)},
        scalars=STEP,
        attributes={"etaminus": 0.5, "etaplus": 1.2, "step_size_min": 1e-6, "step_size_max": 1e-3},
        flops=8.0,
    ),
)

_ADAM = (
    _adam("adam", "foreach=False"),
    _adam("adamw", "foreach=False", decoupled=True),
    _adam("adam_fused", "fused=True"),
    _adam("adamw_fused", "fused=True", decoupled=True),
    # many parameters in one call; the rows become a list by views, which the call pays for
    _adam(
        "adam_foreach",
        "foreach=True",
        "[*param], [*grad], [*exp_avg], [*exp_avg_sq], [], [*step]",
        sizes=_many(MOMENTS),
    ),
    _adam(
        "adam_for_loop",
        "foreach=False",
        "[*param], [*grad], [*exp_avg], [*exp_avg_sq], [], [*step]",
        sizes=_many(MOMENTS),
    ),
    _update(
        "adam_amsgrad",
        "_functional.adam",
        "[param], [grad], [exp_avg], [exp_avg_sq], [max_exp_avg_sq], [step]",
        "amsgrad(param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq, step",
        states={**MOMENTS, "max_exp_avg_sq": SQUARES},
        scalars=STEP,
        attributes=ADAM,
        fixed="weight_decay=0.0, amsgrad=True, foreach=False, maximize=False",
        flops=13.0,
    ),
    _update(
        "adamax",
        "_functional.adamax",
        "[param], [grad], [exp_avg], [exp_inf], [step]",
        "adamax(param, grad, exp_avg, exp_inf, step",
        states={"exp_avg": normal, "exp_inf": SQUARES},
        scalars=STEP,
        attributes=ADAM,
        fixed="weight_decay=0.0, foreach=False, maximize=False",
        flops=10.0,
    ),
    _update(
        "nadam",
        "_functional.nadam",
        "[param], [grad], [exp_avg], [exp_avg_sq], [mu_product], [step]",
        "nadam(param, grad, exp_avg, exp_avg_sq, mu_product, step",
        states=MOMENTS,
        scalars={"mu_product": _scalar(0.5), **STEP},
        attributes={**ADAM, "momentum_decay": 4e-3},
        fixed="weight_decay=0.0, foreach=False, maximize=False",
        flops=15.0,
    ),
    _update(
        "radam",
        "_functional.radam",
        "[param], [grad], [exp_avg], [exp_avg_sq], [step]",
        f"radam({ADAM_READS}",
        states=MOMENTS,
        scalars=STEP,
        attributes=ADAM,
        fixed="weight_decay=0.0, foreach=False, maximize=False",
        flops=14.0,
    ),
)

_ADAPTIVE = (
    _update(
        "rmsprop",
        "_functional.rmsprop",
        "[param], [grad], [square_avg], [], [], [step]",
        "rmsprop(param, grad, square_avg",
        states={"square_avg": SQUARES},
        scalars=STEP,
        attributes={"lr": 1e-3, "alpha": 0.99, "eps": 1e-8},
        fixed="weight_decay=0.0, momentum=0.0, centered=False, foreach=False, maximize=False",
        flops=8.0,
    ),
    _update(
        "rmsprop_momentum",
        "_functional.rmsprop",
        "[param], [grad], [square_avg], [], [momentum_buffer], [step]",
        "rmsprop_momentum(param, grad, square_avg, momentum_buffer",
        states={"square_avg": SQUARES, "momentum_buffer": normal},
        scalars=STEP,
        attributes={"lr": 1e-3, "alpha": 0.99, "eps": 1e-8, "momentum": 0.9},
        fixed="weight_decay=0.0, centered=False, foreach=False, maximize=False",
        flops=10.0,
    ),
    *(
        _update(
            name,
            "_functional.adagrad",
            "[param], [grad], [state_sum], [step]",
            "adagrad(param, grad, state_sum, step",
            states={"state_sum": SQUARES},
            scalars=STEP,
            attributes={"lr": 1e-2, "lr_decay": 1e-4, "eps": 1e-10},
            fixed=f"weight_decay=0.0, {how}, maximize=False",
            flops=7.0,
            dtypes=("float32", "float64", "bfloat16"),  # the sum of squares outgrows float16
        )
        for name, how in (("adagrad", "foreach=False"), ("adagrad_fused", "fused=True"))
    ),
    _update(
        "adadelta",
        "_functional.adadelta",
        "[param], [grad], [square_avg], [acc_delta], [step]",
        "adadelta(param, grad, square_avg, acc_delta",
        states={"square_avg": SQUARES, "acc_delta": SQUARES},
        scalars=STEP,
        attributes={"lr": 1e-3, "rho": 0.9, "eps": 1e-6},
        fixed="weight_decay=0.0, foreach=False, maximize=False",
        flops=13.0,
    ),
    Operator(
        name="adafactor",
        category="optimiser",
        torch="(torch.optim._adafactor.adafactor([param], [grad], [row_var], [col_var], [None], [step], lr=lr, "
        "beta2_decay=beta2_decay, weight_decay=weight_decay, eps1=eps1, eps2=eps2, d=d, foreach=False, "
        "maximize=False), param, row_var, col_var)",
        reference="ref.adafactor(param, grad, row_var, col_var, step, lr=lr, beta2_decay=beta2_decay, "
        "weight_decay=weight_decay, eps1=eps1, eps2=eps2, d=d)",
        sizes=by_size(
            lambda rows, columns: {
                "param": Input(shape=(rows, columns)),
                "grad": Input(shape=(rows, columns)),
                "row_var": Input(shape=(rows, 1), draw=SQUARES),
                "col_var": Input(shape=(1, columns), draw=SQUARES),
                **STEP,
            },
            *MATRICES,
        ),
        # its step is a fraction of the parameter's own size: only as much decay keeps that from growing for ever
        attributes={"lr": 1e-3, "beta2_decay": -0.8, "weight_decay": 1.0, "eps1": 1e-7, "eps2": 1e-3, "d": 1.0},
        flops=per_input("param", 14.0),
        differentiable=False,
    ),
)

OPERATORS = (*_DESCENT, *_ADAM, *_ADAPTIVE)

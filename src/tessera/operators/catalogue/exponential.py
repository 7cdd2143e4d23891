"""Exponentials and logarithms, also in place."""

from __future__ import annotations

from functools import partial

from tessera.operators.catalogue.elementwise import binary, inplace_unary, unary
from tessera.operators.draws import normal, uniform
from tessera.operators.work import per_output

_unary = partial(unary, "exp_log")
_binary = partial(binary, "exp_log")
_inplace = partial(inplace_unary, "exp_log")

POSITIVE = uniform(0.1, 10.0)

OPERATORS = (
    _unary("exp"),
    _unary("exp2"),
    _unary("expm1"),
    _unary("log", POSITIVE),
    _unary("log2", POSITIVE),
    _unary("log10", POSITIVE),
    _unary("log1p", POSITIVE),
    _unary("logit", uniform(0.05, 0.95), reference="special.logit(data)", flops=per_output(3)),
    _binary("logaddexp", flops=per_output(5)),
    _binary("logaddexp2", flops=per_output(5)),
    _binary("xlogy", normal, POSITIVE, reference="special.xlogy(lhs, rhs)", flops=per_output(2)),
    _binary(
        "special_xlog1py",
        normal,
        POSITIVE,
        torch="torch.special.xlog1py(lhs, rhs)",
        reference="special.xlog1py(lhs, rhs)",
        flops=per_output(2),
    ),
    _unary(
        "special_entr",
        POSITIVE,
        torch="torch.special.entr(data)",
        reference="special.entr(data)",
        flops=per_output(2),
    ),
    # in place: those that creep towards zero from one side when repeated, a thousand times as slowly as they are called
    _inplace("expm1", uniform(-2.0, -0.5)),
    _inplace("log1p", uniform(0.5, 2.0)),
)

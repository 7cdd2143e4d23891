"""Powers and roots, also in place."""

from __future__ import annotations

from functools import partial

from tessera.operators.catalogue.elementwise import binary, inplace_binary, inplace_unary, unary
from tessera.operators.draws import normal, signs, uniform
from tessera.operators.work import per_output

_unary = partial(unary, "powers")
_binary = partial(binary, "powers")
_inplace = partial(inplace_unary, "powers")

POSITIVE = uniform(0.5, 2.0)
EXPONENTS = uniform(-2.0, 2.0)

OPERATORS = (
    _binary(
        "power",
        POSITIVE,
        EXPONENTS,
        torch="torch.pow(lhs, rhs)",
        aliases=("pow",),
        backward_flops=6.0,
    ),
    _unary(
        "pow_scalar",
        POSITIVE,
        torch="torch.pow(data, exponent)",
        reference="np.power(data, exponent)",
        attributes={"exponent": 2.5},
        backward_flops=3.0,
    ),
    _unary(
        "pow_scalar_base",
        EXPONENTS,
        torch="torch.pow(base, data)",
        reference="np.power(base, data)",
        attributes={"base": 2.5},
    ),
    _unary("square", normal),
    _unary("sqrt", POSITIVE),
    _unary("rsqrt", POSITIVE, reference="1 / np.sqrt(data)", flops=per_output(2)),
    # computes and answers in double precision, whatever it is given
    _binary("float_power", POSITIVE, EXPONENTS, backward_flops=6.0),
    _unary(
        "float_power_scalar",
        POSITIVE,
        torch="torch.float_power(data, exponent)",
        reference="np.float_power(data, exponent)",
        attributes={"exponent": 2.5},
        backward_flops=3.0,
    ),
    # in place: roots tend to one, powers are of ones or by them
    inplace_binary(
        "powers",
        "power",
        POSITIVE,
        signs,
        torch="lhs.pow_(rhs)",
        aliases=("pow_",),
    ),
    _inplace(
        "pow_scalar",
        signs,
        torch="data.pow_(exponent)",
        reference="np.power(data, exponent, out=data)",
        attributes={"exponent": 3.0},
        aliases=(),
    ),
    _inplace("square", signs),
    _inplace("sqrt", POSITIVE),
    _inplace("rsqrt", POSITIVE, reference="np.divide(1, np.sqrt(data, out=data), out=data)", flops=per_output(2)),
)

"""Elementary and special functions: exponentials, powers, trigonometry, rounding, Bessel functions; in-place variants.

In-place variants are defined only for functions whose repeated application converges, without denormals.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tessera.operators.catalogue.families import (
    LINEAR_GRADIENT,
    NO_GRADIENT,
    SAME_GRADIENT,
    SLOW_MATRIX_SIDES,
    WIDE_DTYPES,
    ZERO_GRADIENT,
    ElementwiseFamily,
    make_value,
)
from tessera.operators.draws import Draw, between_multiples, normal, signs, uniform
from tessera.operators.operator import Operator

_EXP_LOG_FAMILY, _POWER_FAMILY = ElementwiseFamily("exp_log"), ElementwiseFamily("powers")
_TRIGONOMETRIC_FAMILY, _ROUNDING_FAMILY = ElementwiseFamily("trigonometric"), ElementwiseFamily("rounding")

VALUES_INSIDE_ONE = uniform(-0.9, 0.9)
VALUES_AROUND_ONE = uniform(0.5, 2.0)
POSITIVE_VALUES = uniform(0.1, 10.0)
PROBABILITY_VALUES = uniform(0.05, 0.95)
EXPONENT_VALUES = uniform(-2.0, 2.0)

# exponentials and logarithms

_define_exp_log = _EXP_LOG_FAMILY.define_unary
_define_exp_log_inplace = partial(_define_exp_log, inplace=True)


def _define_scipy(name: str, draw: Draw = normal, *, scipy: str = "", **rest: Any) -> Operator:
    """Define a function whose reference is in `scipy.special`; set `scipy` if its name there differs from `name`."""
    return _define_exp_log(name, draw, reference=f"special.{scipy or name}(data)", **rest)


def _define_special(name: str, draw: Draw = normal, *, scipy: str = "", reference: str = "", **rest: Any) -> Operator:
    """Define a unary function of `torch.special` whose reference is in `scipy.special`, or `reference`."""
    reference = reference or f"special.{scipy or name}"
    return _define_exp_log(f"special_{name}", draw, torch=f"torch.special.{name}", reference=reference, **rest)


_EXP_LOG_OPERATORS = (
    _define_exp_log("exp"),
    _define_exp_log("exp2"),
    _define_exp_log("expm1"),
    _define_exp_log("log", POSITIVE_VALUES),
    _define_exp_log("log2", POSITIVE_VALUES),
    _define_exp_log("log10", POSITIVE_VALUES),
    _define_exp_log("log1p", POSITIVE_VALUES),
    _define_scipy("logit", PROBABILITY_VALUES, flops=3),
    _EXP_LOG_FAMILY.define_binary("logaddexp", flops=5),
    _EXP_LOG_FAMILY.define_binary("logaddexp2", flops=5),
    _EXP_LOG_FAMILY.define_binary("xlogy", normal, POSITIVE_VALUES, reference="special.xlogy", flops=2),
    _EXP_LOG_FAMILY.define_binary(
        "special_xlog1py", normal, POSITIVE_VALUES, torch="torch.special.xlog1py", reference="special.xlog1py", flops=2
    ),
    _define_special("entr", POSITIVE_VALUES, flops=2),
    # in place: repeated calls approach zero from one side, slowly enough for thousands of calls
    _define_exp_log_inplace("expm1", uniform(-2.0, -0.5)),
    _define_exp_log_inplace("log1p", VALUES_AROUND_ONE),
)

# special functions

GAMMA_VALUES = uniform(0.5, 10.0)
# avoids 2 to 12, where implementations switch from series to asymptotic expansion and PyTorch has at most six digits
NEAR_AND_FAR_VALUES = Draw(
    "np.where(rng.random(shape) < 0.5, rng.uniform(0.5, 2.0, shape), rng.uniform(12.0, 20.0, shape))"
)

_define_slow = partial(_define_special, sides=SLOW_MATRIX_SIDES)  # these take tens of nanoseconds per value
_define_slow_forward = partial(_define_slow, **NO_GRADIENT, **WIDE_DTYPES)


def _define_special_binary(name: str, lhs: Draw, rhs: Draw, **rest: Any) -> Operator:
    """Define a binary function of `torch.special` that is differentiable only in its second input."""
    return _EXP_LOG_FAMILY.define(
        f"special_{name}",
        f"torch.special.{name}",
        f"special.{name}",
        inputs={"lhs": make_value(lhs, grad=False), "rhs": make_value(rhs)},
        sides=SLOW_MATRIX_SIDES,
        **rest,
    )


def _define_polynomial(name: str, reference: str, draw: Draw = VALUES_INSIDE_ONE) -> Operator:
    """Define an orthogonal polynomial of degree five."""
    return _define_slow_forward(name, draw, reference=reference, attributes={"n": 5})


_SPECIAL_OPERATORS = (
    # the error function and the normal distribution
    _define_scipy("erf", aliases=("special_erf",)),
    _define_scipy("erfc", aliases=("special_erfc",)),
    _define_scipy("erfinv", VALUES_INSIDE_ONE, aliases=("special_erfinv",)),
    _define_special("erfcx", uniform(-1.0, 5.0), **WIDE_DTYPES),
    _define_special("ndtr"),
    _define_special("ndtri", PROBABILITY_VALUES, **WIDE_DTYPES),
    _define_special("log_ndtr", **WIDE_DTYPES),
    # in place: repeated calls converge without reaching denormals
    _define_exp_log_inplace("erf", reference="special.erf(data, out=data)"),
    _define_exp_log_inplace("erfc", reference="special.erfc(data, out=data)"),
    # the gamma function
    _define_scipy("lgamma", GAMMA_VALUES, scipy="gammaln", aliases=("special_gammaln",)),
    _define_scipy("digamma", GAMMA_VALUES, aliases=("special_digamma", "special_psi")),
    _define_exp_log(
        "polygamma",
        GAMMA_VALUES,
        torch="torch.polygamma(n, data)",
        reference="special.polygamma(n, data)",
        attributes={"n": 1},
        sides=SLOW_MATRIX_SIDES,
    ),
    _define_exp_log(
        "mvlgamma", uniform(1.0, 10.0), reference="special.multigammaln", attributes={"p": 2}, sides=SLOW_MATRIX_SIDES
    ),
    _define_special_binary("gammainc", uniform(0.5, 5.0), uniform(0.5, 5.0), aliases=("igamma",)),
    _define_special_binary("gammaincc", uniform(0.5, 5.0), uniform(0.5, 5.0), aliases=("igammac",)),
    _define_special_binary("zeta", uniform(2.0, 5.0), uniform(1.0, 5.0), **WIDE_DTYPES),
    # Bessel and Airy functions
    _define_slow("i0", uniform(-3.0, 3.0), aliases=("i0",)),
    _define_slow("i0e", uniform(-3.0, 3.0)),
    _define_slow("i1", uniform(-3.0, 3.0), **WIDE_DTYPES),
    _define_slow("i1e", uniform(-3.0, 3.0), **WIDE_DTYPES),
    *(_define_slow_forward(f"bessel_{name}", NEAR_AND_FAR_VALUES, scipy=name) for name in ("j0", "j1", "y0", "y1")),
    *(
        _define_slow_forward(f"modified_bessel_{name}", uniform(0.5, 5.0), scipy=name)
        for name in ("i0", "i1", "k0", "k1")
    ),
    *(
        _define_slow_forward(f"scaled_modified_bessel_{name}", uniform(0.5, 5.0), scipy=f"{name}e")
        for name in ("k0", "k1")
    ),
    _define_slow_forward("spherical_bessel_j0", uniform(0.1, 20.0), reference="special.spherical_jn(0, data)"),
    _define_slow_forward("airy_ai", uniform(-2.0, 5.0), reference="special.airy(data)[0]"),
    # orthogonal polynomials
    _define_polynomial("chebyshev_polynomial_t", "special.eval_chebyt(n, data)"),
    _define_polynomial("chebyshev_polynomial_u", "special.eval_chebyu(n, data)"),
    _define_polynomial("chebyshev_polynomial_v", "ref.chebyshev_v(data, n)"),
    _define_polynomial("chebyshev_polynomial_w", "ref.chebyshev_w(data, n)"),
    _define_polynomial("shifted_chebyshev_polynomial_t", "special.eval_sh_chebyt(n, data)", PROBABILITY_VALUES),
    _define_polynomial("shifted_chebyshev_polynomial_u", "special.eval_sh_chebyu(n, data)", PROBABILITY_VALUES),
    _define_polynomial("shifted_chebyshev_polynomial_v", "ref.chebyshev_v(2 * data - 1, n)", PROBABILITY_VALUES),
    _define_polynomial("shifted_chebyshev_polynomial_w", "ref.chebyshev_w(2 * data - 1, n)", PROBABILITY_VALUES),
    _define_polynomial("hermite_polynomial_h", "special.eval_hermite(n, data)", normal),
    _define_polynomial("hermite_polynomial_he", "special.eval_hermitenorm(n, data)", normal),
    _define_polynomial("laguerre_polynomial_l", "special.eval_laguerre(n, data)", uniform(0.0, 5.0)),
    _define_polynomial("legendre_polynomial_p", "special.eval_legendre(n, data)"),
)

# powers and roots

_define_power = _POWER_FAMILY.define_unary
_define_power_inplace = partial(_define_power, inplace=True)
_define_scalar_power = partial(_define_power, draw=VALUES_AROUND_ONE, attributes={"exponent": 2.5}, backward_flops=3.0)

_POWER_OPERATORS = (
    _POWER_FAMILY.define_binary(
        "power", VALUES_AROUND_ONE, EXPONENT_VALUES, torch="torch.pow", aliases=("pow",), backward_flops=6.0
    ),
    _define_scalar_power("pow_scalar", torch="torch.pow", reference="np.power"),
    _define_power(
        "pow_scalar_base",
        EXPONENT_VALUES,
        torch="torch.pow(base, data)",
        reference="np.power(base, data)",
        attributes={"base": 2.5},
    ),
    _define_power("square", normal),
    _define_power("sqrt", VALUES_AROUND_ONE),
    _define_power("rsqrt", VALUES_AROUND_ONE, reference="1 / np.sqrt(data)", flops=2),
    # float_power computes and returns float64 for every dtype
    _POWER_FAMILY.define_binary("float_power", VALUES_AROUND_ONE, EXPONENT_VALUES, backward_flops=6.0),
    _define_scalar_power("float_power_scalar", torch="torch.float_power", reference="np.float_power"),
    # in place: repeated roots approach one; bases or exponents of powers are 1 and -1
    _POWER_FAMILY.define_binary("power", VALUES_AROUND_ONE, signs, torch="torch.pow", aliases=("pow_",), inplace=True),
    _define_power_inplace(
        "pow_scalar", signs, torch="torch.pow", reference="np.power", attributes={"exponent": 3.0}, aliases=()
    ),
    _define_power_inplace("square", signs),
    _define_power_inplace("sqrt", VALUES_AROUND_ONE),
    _define_power_inplace(
        "rsqrt", VALUES_AROUND_ONE, reference="np.divide(1, np.sqrt(data, out=data), out=data)", flops=2
    ),
)

# trigonometric and hyperbolic functions and their inverses

_define_trigonometric = _TRIGONOMETRIC_FAMILY.define_unary
_define_trigonometric_inplace = partial(_define_trigonometric, inplace=True)


def _define_inverse(name: str, draw: Draw = normal, *, inplace: bool = False) -> Operator:
    """Define an inverse trigonometric or hyperbolic function such as `asin`; its alias is NumPy's name, `arcsin`."""
    numpy = f"arc{name[1:]}"
    aliases = (f"{name}_", f"{numpy}_") if inplace else (numpy,)
    return _define_trigonometric(name, draw, reference=f"np.{numpy}", aliases=aliases, inplace=inplace)


_TRIGONOMETRIC_OPERATORS = (
    _define_trigonometric("sin"),
    _define_trigonometric("cos"),
    _define_trigonometric("tan", uniform(-1.2, 1.2)),
    _define_inverse("asin", VALUES_INSIDE_ONE),
    _define_inverse("acos", VALUES_INSIDE_ONE),
    _define_inverse("atan"),
    # inputs avoid the branch cut at zero, where the angle jumps by 2 pi
    _TRIGONOMETRIC_FAMILY.define_binary(
        "atan2", between_multiples(-3, 3), reference="np.arctan2", aliases=("arctan2",)
    ),
    _define_trigonometric("sinh"),
    _define_trigonometric("cosh"),
    _define_trigonometric("tanh"),
    _define_inverse("asinh"),
    _define_inverse("acosh", uniform(1.2, 10.0)),
    _define_inverse("atanh", VALUES_INSIDE_ONE),
    _define_trigonometric("sinc", flops=3, aliases=("special_sinc",)),
    _define_trigonometric("deg2rad", uniform(-180.0, 180.0), **LINEAR_GRADIENT),
    _define_trigonometric("rad2deg", uniform(-3.0, 3.0), **LINEAR_GRADIENT),
    _define_trigonometric_inplace("sin"),
    _define_trigonometric_inplace("cos"),
    _define_trigonometric_inplace("tanh"),
    _define_inverse("atan", inplace=True),
    _define_inverse("asinh", inplace=True),
    _TRIGONOMETRIC_FAMILY.define_binary(
        "atan2",
        between_multiples(-3, 3),
        uniform(0.3, 0.7),
        reference="np.arctan2",
        aliases=("atan2_", "arctan2_"),
        inplace=True,
    ),
)

# rounding

BETWEEN_INTEGERS = between_multiples(-4, 4)
AROUND_INTEGERS = between_multiples(-4, 4, -0.4, 0.4)  # never near a tie, halfway between two integers
AROUND_TENTHS = between_multiples(-15, 15, -0.4, 0.4, width=0.1)

_define_rounding = _ROUNDING_FAMILY.define_unary
_define_rounding_inplace = partial(_define_rounding, inplace=True)

_ROUNDING_OPERATORS = (
    _define_rounding("floor", BETWEEN_INTEGERS, **ZERO_GRADIENT),
    _define_rounding("ceil", BETWEEN_INTEGERS, **ZERO_GRADIENT),
    _define_rounding("trunc", BETWEEN_INTEGERS, aliases=("fix",), **ZERO_GRADIENT),
    _define_rounding("round", AROUND_INTEGERS, **ZERO_GRADIENT),
    _define_rounding(
        "round_decimals",
        AROUND_TENTHS,
        torch="torch.round(data, decimals=decimals)",
        reference="np.round",
        attributes={"decimals": 1},
        **ZERO_GRADIENT,
    ),
    _define_rounding("frac", BETWEEN_INTEGERS, reference="np.fmod(data, 1)", **SAME_GRADIENT),
    # in place: calls after the first do not change the values
    _define_rounding_inplace("floor"),
    _define_rounding_inplace("ceil"),
    _define_rounding_inplace("trunc", aliases=("trunc_", "fix_")),
    _define_rounding_inplace("round"),
    _define_rounding_inplace(
        "round_decimals",
        AROUND_TENTHS,
        torch="data.round_(decimals=decimals)",
        reference="np.round",
        attributes={"decimals": 1},
        aliases=(),
    ),
    _define_rounding_inplace("frac", reference="np.fmod(data, 1, out=data)"),
)

OPERATORS = (
    *_EXP_LOG_OPERATORS,
    *_SPECIAL_OPERATORS,
    *_POWER_OPERATORS,
    *_TRIGONOMETRIC_OPERATORS,
    *_ROUNDING_OPERATORS,
)

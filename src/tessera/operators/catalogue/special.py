"""Special functions: the families of the error, gamma and Bessel functions, and orthogonal polynomials."""

from __future__ import annotations

from typing import Any

from tessera.operators.catalogue.elementwise import (
    NO_GRADIENT,
    SLOW_SIDES,
    WIDE,
    elementwise,
    inplace_unary,
    unary,
    value,
)
from tessera.operators.draws import Draw, normal, uniform
from tessera.operators.operator import Operator

POSITIVE = uniform(0.5, 10.0)
PROBABILITIES = uniform(0.05, 0.95)
INSIDE_ONE = uniform(-0.9, 0.9)
# on both sides of where series and asymptotic expansion meet, near which PyTorch is right to six digits at most
NEAR_AND_FAR = Draw("np.where(rng.random(shape) < 0.5, rng.uniform(0.5, 2.0, shape), rng.uniform(12.0, 20.0, shape))")


def _of_torch(name: str, draw: Draw = normal, *, reference: str = "", **rest: Any) -> Operator:
    """A function that torch has under its own name and SciPy under `reference`, or the same."""
    return unary("exp_log", name, draw, reference=reference or f"special.{name}(data)", **rest)


def _of_special(name: str, draw: Draw = normal, *, reference: str = "", **rest: Any) -> Operator:
    """A function of `torch.special`."""
    return _of_torch(
        f"special_{name}",
        draw,
        torch=f"torch.special.{name}(data)",
        reference=reference or f"special.{name}(data)",
        **rest,
    )


def _bessel(name: str, reference: str, draw: Draw, **rest: Any) -> Operator:
    """A function of `torch.special` that takes tens of nanoseconds a value."""
    return _of_special(name, draw, reference=reference, sides=SLOW_SIDES, **rest)


def _of_order(name: str, torch: str, reference: str, attribute: str, order: int, draw: Draw, **rest: Any) -> Operator:
    """A function of an order, one whole number, and of data."""
    return unary("exp_log", name, draw, torch=torch, reference=reference, attributes={attribute: order}, **rest)


def _of_two(name: str, reference: str, lhs: Draw, rhs: Draw, **rest: Any) -> Operator:
    """A function of `torch.special` that differentiates by its second input only."""
    return elementwise(
        "exp_log",
        f"special_{name}",
        f"torch.special.{name}(lhs, rhs)",
        reference,
        inputs={"lhs": value(lhs, grad=False), "rhs": value(rhs)},
        sides=SLOW_SIDES,
        **rest,
    )


def _polynomial(name: str, reference: str, draw: Draw = INSIDE_ONE) -> Operator:
    """An orthogonal polynomial of degree five."""
    return _of_order(
        f"special_{name}",
        f"torch.special.{name}(data, n)",
        reference,
        "n",
        5,
        draw,
        sides=SLOW_SIDES,
        **NO_GRADIENT,
        **WIDE,
    )


OPERATORS = (
    # the error function and the normal distribution
    _of_torch("erf", aliases=("special_erf",)),
    _of_torch("erfc", aliases=("special_erfc",)),
    _of_torch("erfinv", INSIDE_ONE, aliases=("special_erfinv",)),
    _of_special("erfcx", uniform(-1.0, 5.0), **WIDE),
    _of_special("ndtr"),
    _of_special("ndtri", PROBABILITIES, **WIDE),
    _of_special("log_ndtr", **WIDE),
    # repeated in place, both lead to a limit away from zero
    inplace_unary("exp_log", "erf", normal, reference="special.erf(data, out=data)"),
    inplace_unary("exp_log", "erfc", normal, reference="special.erfc(data, out=data)"),
    # the gamma function
    _of_torch("lgamma", POSITIVE, reference="special.gammaln(data)", aliases=("special_gammaln",)),
    _of_torch("digamma", POSITIVE, aliases=("special_digamma", "special_psi")),
    _of_order(
        "polygamma", "torch.polygamma(n, data)", "special.polygamma(n, data)", "n", 1, POSITIVE, sides=SLOW_SIDES
    ),
    _of_order(
        "mvlgamma",
        "torch.mvlgamma(data, p)",
        "special.multigammaln(data, p)",
        "p",
        2,
        uniform(1.0, 10.0),
        sides=SLOW_SIDES,
    ),
    _of_two("gammainc", "special.gammainc(lhs, rhs)", uniform(0.5, 5.0), uniform(0.5, 5.0), aliases=("igamma",)),
    _of_two("gammaincc", "special.gammaincc(lhs, rhs)", uniform(0.5, 5.0), uniform(0.5, 5.0), aliases=("igammac",)),
    _of_two("zeta", "special.zeta(lhs, rhs)", uniform(2.0, 5.0), uniform(1.0, 5.0), **WIDE),
    # Bessel and Airy functions
    _bessel("i0", "special.i0(data)", uniform(-3.0, 3.0), aliases=("i0",)),
    _bessel("i0e", "special.i0e(data)", uniform(-3.0, 3.0)),
    _bessel("i1", "special.i1(data)", uniform(-3.0, 3.0), **WIDE),
    _bessel("i1e", "special.i1e(data)", uniform(-3.0, 3.0), **WIDE),
    *(
        _bessel(f"bessel_{name}", f"special.{name}(data)", NEAR_AND_FAR, **NO_GRADIENT, **WIDE)
        for name in ("j0", "j1", "y0", "y1")
    ),
    *(
        _bessel(f"modified_bessel_{name}", f"special.{name}(data)", uniform(0.5, 5.0), **NO_GRADIENT, **WIDE)
        for name in ("i0", "i1", "k0", "k1")
    ),
    *(
        _bessel(f"scaled_modified_bessel_{name}", f"special.{name}e(data)", uniform(0.5, 5.0), **NO_GRADIENT, **WIDE)
        for name in ("k0", "k1")
    ),
    _bessel("spherical_bessel_j0", "special.spherical_jn(0, data)", uniform(0.1, 20.0), **NO_GRADIENT, **WIDE),
    _bessel("airy_ai", "special.airy(data)[0]", uniform(-2.0, 5.0), **NO_GRADIENT, **WIDE),
    # orthogonal polynomials
    _polynomial("chebyshev_polynomial_t", "special.eval_chebyt(n, data)"),
    _polynomial("chebyshev_polynomial_u", "special.eval_chebyu(n, data)"),
    _polynomial("chebyshev_polynomial_v", "ref.chebyshev_v(data, n)"),
    _polynomial("chebyshev_polynomial_w", "ref.chebyshev_w(data, n)"),
    _polynomial("shifted_chebyshev_polynomial_t", "special.eval_sh_chebyt(n, data)", PROBABILITIES),
    _polynomial("shifted_chebyshev_polynomial_u", "special.eval_sh_chebyu(n, data)", PROBABILITIES),
    _polynomial("shifted_chebyshev_polynomial_v", "ref.chebyshev_v(2 * data - 1, n)", PROBABILITIES),
    _polynomial("shifted_chebyshev_polynomial_w", "ref.chebyshev_w(2 * data - 1, n)", PROBABILITIES),
    _polynomial("hermite_polynomial_h", "special.eval_hermite(n, data)", normal),
    _polynomial("hermite_polynomial_he", "special.eval_hermitenorm(n, data)", normal),
    _polynomial("laguerre_polynomial_l", "special.eval_laguerre(n, data)", uniform(0.0, 5.0)),
    _polynomial("legendre_polynomial_p", "special.eval_legendre(n, data)"),
)

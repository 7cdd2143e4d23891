"""Reference implementations of elementwise operators: activations, arithmetic on three inputs, polynomials."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

SELU_SCALE = 1.0507009873554804934193349852946
SELU_ALPHA = 1.6732632423543772848170429916717


def leaky_relu(data: Floats, negative_slope: float | Floats) -> Floats:
    """Multiply negative values by `negative_slope`."""
    return np.where(data >= 0, data, data * negative_slope)


def prelu(data: Floats, weight: Floats) -> Floats:
    """Multiply negative values by a slope per channel (dim 1)."""
    return leaky_relu(data, weight.reshape(1, -1, *(1,) * (data.ndim - 2)))


def elu(data: Floats, alpha: float = 1.0) -> Floats:
    """Return x, or alpha (exp(x) - 1) for negative values."""
    return np.where(data > 0, data, alpha * np.expm1(np.minimum(data, 0)))


def selu(data: Floats) -> Floats:
    """Return the scaled ELU, with the scale and alpha that preserve mean zero and variance one."""
    return SELU_SCALE * elu(data, SELU_ALPHA)


def celu(data: Floats, alpha: float) -> Floats:
    """Return the continuously differentiable ELU: x, or alpha (exp(x / alpha) - 1) for negative values."""
    return np.where(data > 0, data, alpha * np.expm1(np.minimum(data, 0) / alpha))


def gelu(data: Floats) -> Floats:
    """Multiply each value by the standard normal cumulative distribution function of the value."""
    return np.asarray(data * special.ndtr(data))


def gelu_tanh(data: Floats) -> Floats:
    """Return the tanh approximation of GELU."""
    return np.asarray(0.5 * data * (1 + np.tanh(np.sqrt(2 / np.pi) * (data + 0.044715 * data**3))))


def silu(data: Floats) -> Floats:
    """Multiply each value by its sigmoid."""
    return np.asarray(data * special.expit(data))


def softplus(data: Floats, beta: float = 1.0) -> Floats:
    """Return a smooth ReLU: log(1 + exp(beta x)) / beta."""
    return np.asarray(np.logaddexp(0, beta * data) / beta)


def mish(data: Floats) -> Floats:
    """Multiply each value by the tanh of its softplus."""
    return np.asarray(data * np.tanh(softplus(data)))


def softsign(data: Floats) -> Floats:
    """Return x / (1 + |x|)."""
    return np.asarray(data / (1 + np.abs(data)))


def hardsigmoid(data: Floats) -> Floats:
    """Return the piecewise linear sigmoid: 0 below -3, 1 above 3."""
    return np.asarray(np.clip(data + 3, 0, 6) / 6)


def hardswish(data: Floats) -> Floats:
    """Multiply each value by its hardsigmoid."""
    return np.asarray(data * hardsigmoid(data))


def hardshrink(data: Floats, lambd: float) -> Floats:
    """Set values within lambd of zero to zero."""
    return np.where(np.abs(data) <= lambd, 0.0, data)


def softshrink(data: Floats, lambd: float) -> Floats:
    """Move values towards zero by lambd; values within lambd of zero become zero."""
    return np.asarray(np.sign(data) * np.maximum(np.abs(data) - lambd, 0))


def glu(data: Floats, dim: int) -> Floats:
    """Multiply the first half of the values along `dim` by the sigmoid of the second half."""
    values, gates = np.split(data, 2, axis=dim)
    return np.asarray(values * special.expit(gates))


def gumbel_softmax(data: Floats, tau: float, dim: int) -> Floats:
    """Return the softmax of (data + Gumbel noise) / tau."""
    noise = np.random.default_rng().gumbel(size=data.shape)
    return np.asarray(special.softmax((data + noise) / tau, axis=dim))


def addcmul(data: Floats, first: Floats, second: Floats, value: float) -> Floats:
    """Return data + value * first * second."""
    return data + value * first * second


def addcdiv(data: Floats, first: Floats, second: Floats, value: float) -> Floats:
    """Return data + value * first / second."""
    return data + value * first / second


def lerp(start: Floats, end: Floats, weight: Floats | float) -> Floats:
    """Interpolate linearly from `start` (weight 0) to `end` (weight 1)."""
    return start + weight * (end - start)


def chebyshev_v(data: Floats, n: int) -> Floats:
    """Return the Chebyshev polynomial of the third kind of degree `n`; V0 = 1, V1 = 2x - 1."""
    return _chebyshev(data, 2 * data - 1, n)


def chebyshev_w(data: Floats, n: int) -> Floats:
    """Return the Chebyshev polynomial of the fourth kind of degree `n`; W0 = 1, W1 = 2x + 1."""
    return _chebyshev(data, 2 * data + 1, n)


def _chebyshev(data: Floats, first: Floats, n: int) -> Floats:
    """Evaluate the Chebyshev recurrence up to degree `n`; `first` is the polynomial of degree one."""
    current, following = np.ones_like(data), first
    for _ in range(n):
        current, following = following, 2 * data * following - current
    return current

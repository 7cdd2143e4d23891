"""Activations, as their papers define them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]

SELU_SCALE = 1.0507009873554804934193349852946
SELU_ALPHA = 1.6732632423543772848170429916717


def leaky_relu(data: Floats, negative_slope: float | Floats) -> Floats:
    """Negative values scaled."""
    return np.where(data >= 0, data, data * negative_slope)


def prelu(data: Floats, weight: Floats) -> Floats:
    """Negative values scaled, by one slope for each channel (dim 1)."""
    return leaky_relu(data, weight.reshape(1, -1, *(1,) * (data.ndim - 2)))


def elu(data: Floats, alpha: float = 1.0) -> Floats:
    """Negative values bent towards minus alpha."""
    return np.where(data > 0, data, alpha * np.expm1(np.minimum(data, 0)))


def selu(data: Floats) -> Floats:
    """The elu whose scale and alpha keep mean zero and variance one."""
    return SELU_SCALE * elu(data, SELU_ALPHA)


def celu(data: Floats, alpha: float) -> Floats:
    """The elu that is smooth at zero for any alpha."""
    return np.where(data > 0, data, alpha * np.expm1(np.minimum(data, 0) / alpha))


def gelu(data: Floats) -> Floats:
    """Each value times the probability that a normal one lies below it."""
    return np.asarray(data * special.ndtr(data))


def gelu_tanh(data: Floats) -> Floats:
    """The gelu as approximated by a hyperbolic tangent."""
    return np.asarray(0.5 * data * (1 + np.tanh(np.sqrt(2 / np.pi) * (data + 0.044715 * data**3))))


def silu(data: Floats) -> Floats:
    """Each value times its sigmoid."""
    return np.asarray(data * special.expit(data))


def softplus(data: Floats, beta: float = 1.0) -> Floats:
    """A smooth relu: log(1 + exp(beta x)) / beta."""
    return np.asarray(np.logaddexp(0, beta * data) / beta)


def mish(data: Floats) -> Floats:
    """Each value times the hyperbolic tangent of its softplus."""
    return np.asarray(data * np.tanh(softplus(data)))


def softsign(data: Floats) -> Floats:
    """x / (1 + |x|)."""
    return np.asarray(data / (1 + np.abs(data)))


def hardsigmoid(data: Floats) -> Floats:
    """The sigmoid as three straight lines, from -3 to 3."""
    return np.asarray(np.clip(data + 3, 0, 6) / 6)


def hardswish(data: Floats) -> Floats:
    """Each value times its hardsigmoid."""
    return np.asarray(data * hardsigmoid(data))


def hardshrink(data: Floats, lambd: float) -> Floats:
    """Zero within lambd of zero."""
    return np.where(np.abs(data) <= lambd, 0.0, data)


def softshrink(data: Floats, lambd: float) -> Floats:
    """Closer to zero by lambd, zero within it."""
    return np.asarray(np.sign(data) * np.maximum(np.abs(data) - lambd, 0))


def glu(data: Floats, dim: int) -> Floats:
    """One half of the values times the sigmoid of the other half."""
    values, gates = np.split(data, 2, axis=dim)
    return np.asarray(values * special.expit(gates))


def gumbel_softmax(data: Floats, tau: float, dim: int) -> Floats:
    """A softmax of values with noise from Gumbel's distribution, which is what picks the largest at random."""
    noise = np.random.default_rng().gumbel(size=data.shape)
    return np.asarray(special.softmax((data + noise) / tau, axis=dim))

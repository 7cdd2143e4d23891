"""One step of each optimiser: the parameter and the state after it. `step` counts the steps before this one."""

from __future__ import annotations

import numpy as np

from tessera.operators.arrays import Array

Arrays = tuple[Array, ...]


def sgd(
    param: Array,
    grad: Array,
    momentum_buffer: Array,
    *,
    lr: float,
    momentum: float,
    weight_decay: float,
    nesterov: bool = False,
) -> Arrays:
    """Gradient descent with momentum."""
    grad = grad + weight_decay * param
    velocity = momentum * momentum_buffer + grad
    return param - lr * (grad + momentum * velocity if nesterov else velocity), velocity


def adam(
    param: Array,
    grad: Array,
    exp_avg: Array,
    exp_avg_sq: Array,
    step: Array,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled_weight_decay: bool = False,
) -> Arrays:
    """Adam; with decoupled weight decay AdamW."""
    if decoupled_weight_decay:
        param = param * (1.0 - lr * weight_decay)
    else:
        grad = grad + weight_decay * param
    mean, square = _moments(grad, exp_avg, exp_avg_sq, beta1, beta2)
    deviation = np.sqrt(square / (1.0 - beta2 ** (step + 1.0)))
    return param - lr * mean / (1.0 - beta1 ** (step + 1.0)) / (deviation + eps), mean, square


def amsgrad(
    param: Array,
    grad: Array,
    exp_avg: Array,
    exp_avg_sq: Array,
    max_exp_avg_sq: Array,
    step: Array,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
) -> Arrays:
    """Adam, divided by the largest deviation so far."""
    mean, square = _moments(grad, exp_avg, exp_avg_sq, beta1, beta2)
    largest = np.maximum(max_exp_avg_sq, square)
    deviation = np.sqrt(largest / (1.0 - beta2 ** (step + 1.0)))
    return param - lr * mean / (1.0 - beta1 ** (step + 1.0)) / (deviation + eps), mean, square, largest


def adamax(
    param: Array,
    grad: Array,
    exp_avg: Array,
    exp_inf: Array,
    step: Array,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
) -> Arrays:
    """Adam with the largest gradient in place of the deviation."""
    mean = beta1 * exp_avg + (1.0 - beta1) * grad
    largest = np.maximum(beta2 * exp_inf, np.abs(grad) + eps)
    return param - lr * mean / (1.0 - beta1 ** (step + 1.0)) / largest, mean, largest


def nadam(
    param: Array,
    grad: Array,
    exp_avg: Array,
    exp_avg_sq: Array,
    mu_product: Array,
    step: Array,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    momentum_decay: float,
) -> Arrays:
    """Adam with Nesterov's look ahead."""
    now = step + 1.0
    mu, mu_next = (beta1 * (1.0 - 0.5 * 0.96 ** ((now + ahead) * momentum_decay)) for ahead in (0.0, 1.0))
    product = mu_product * mu
    mean, square = _moments(grad, exp_avg, exp_avg_sq, beta1, beta2)
    deviation = np.sqrt(square / (1.0 - beta2**now)) + eps
    ahead = (1.0 - mu) / (1.0 - product) * grad + mu_next / (1.0 - product * mu_next) * mean
    return param - lr * ahead / deviation, mean, square


def radam(
    param: Array,
    grad: Array,
    exp_avg: Array,
    exp_avg_sq: Array,
    step: Array,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
) -> Arrays:
    """Adam whose rate is rectified while the deviation is estimated from few steps."""
    now = step + 1.0
    mean, square = _moments(grad, exp_avg, exp_avg_sq, beta1, beta2)
    longest = 2.0 / (1.0 - beta2) - 1.0
    length = longest - 2.0 * now * beta2**now / (1.0 - beta2**now)
    update = mean / (1.0 - beta1**now)
    if length > 5.0:
        rectified = np.sqrt((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length))
        update = update * rectified * np.sqrt(1.0 - beta2**now) / (np.sqrt(square) + eps)
    return param - lr * update, mean, square


def rmsprop(param: Array, grad: Array, square_avg: Array, *, lr: float, alpha: float, eps: float) -> Arrays:
    """The gradient over its running root mean square."""
    square = alpha * square_avg + (1.0 - alpha) * grad**2
    return param - lr * grad / (np.sqrt(square) + eps), square


def rmsprop_momentum(
    param: Array,
    grad: Array,
    square_avg: Array,
    momentum_buffer: Array,
    *,
    lr: float,
    alpha: float,
    eps: float,
    momentum: float,
) -> Arrays:
    """The gradient over its running root mean square, with momentum."""
    square = alpha * square_avg + (1.0 - alpha) * grad**2
    velocity = momentum * momentum_buffer + grad / (np.sqrt(square) + eps)
    return param - lr * velocity, square, velocity


def adagrad(
    param: Array,
    grad: Array,
    state_sum: Array,
    step: Array,
    *,
    lr: float,
    lr_decay: float,
    eps: float,
) -> Arrays:
    """The gradient over the root of the sum of its squares so far."""
    total = state_sum + grad**2
    return param - lr / (1.0 + step * lr_decay) * grad / (np.sqrt(total) + eps), total


def adadelta(
    param: Array,
    grad: Array,
    square_avg: Array,
    acc_delta: Array,
    *,
    lr: float,
    rho: float,
    eps: float,
) -> Arrays:
    """The gradient scaled by the ratio of running updates to running gradients."""
    square = rho * square_avg + (1.0 - rho) * grad**2
    delta = np.sqrt(acc_delta + eps) / np.sqrt(square + eps) * grad
    return param - lr * delta, square, rho * acc_delta + (1.0 - rho) * delta**2


def rprop(
    param: Array,
    grad: Array,
    prev: Array,
    step_size: Array,
    *,
    etaminus: float,
    etaplus: float,
    step_size_min: float,
    step_size_max: float,
) -> Arrays:
    """Steps by the sign of the gradient alone, longer while it stays the same; back at once where it turns."""
    agreement = np.sign(grad * prev)
    factor = np.where(agreement > 0, etaplus, np.where(agreement < 0, etaminus, 1.0))
    length = np.clip(step_size * factor, step_size_min, step_size_max)
    used = np.where(agreement < 0, 0.0, grad)
    return param - np.sign(used) * length, used, length


def asgd(
    param: Array,
    grad: Array,
    average: Array,
    mu: Array,
    eta: Array,
    *,
    lambd: float,
) -> Arrays:
    """Gradient descent and the running average of its parameters."""
    after = param * (1.0 - lambd * eta) - eta * grad
    return after, average + mu * (after - average)


def adafactor(
    param: Array,
    grad: Array,
    row_var: Array,
    col_var: Array,
    step: Array,
    *,
    lr: float,
    beta2_decay: float,
    weight_decay: float,
    eps1: float,
    eps2: float,
    d: float,
) -> Arrays:
    """Adam's deviation as the product of a row's and a column's, the update clipped by its size."""
    fresh = (step + 1.0) ** beta2_decay
    rate = max(eps2, np.sqrt(np.mean(param**2))) * min(lr, 1.0 / np.sqrt(step + 1.0))
    rows = row_var + fresh * (np.mean(grad**2, axis=-1, keepdims=True) - row_var)
    columns = col_var + fresh * (np.mean(grad**2, axis=-2, keepdims=True) - col_var)
    variance = rows @ columns / np.maximum(rows.mean(axis=-2, keepdims=True), eps1)
    update = grad / np.sqrt(np.maximum(variance, eps1**2))
    clipped = update / max(1.0, np.sqrt(np.mean(update**2)) / d)
    return param * (1.0 - lr * weight_decay) - rate * clipped, rows, columns


def _moments(grad: Array, mean: Array, square: Array, beta1: float, beta2: float) -> Arrays:
    """The running mean of a gradient and of its square."""
    return beta1 * mean + (1.0 - beta1) * grad, beta2 * square + (1.0 - beta2) * grad**2

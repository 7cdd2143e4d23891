"""Reference implementations of one optimiser step, returning parameter and state; `step` counts earlier steps."""

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
    """Run one step of gradient descent with momentum."""
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
    """Run one step of Adam, or of AdamW with `decoupled_weight_decay`."""
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
    """Run one step of AMSGrad: Adam with the largest second moment so far."""
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
    """Run one step of Adamax: Adam with a decaying maximum of the absolute gradient instead of the second moment."""
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
    """Run one step of NAdam: Adam with Nesterov momentum."""
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
    """Run one step of RAdam: Adam with a learning rate that is corrected for the variance of the second moment."""
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
    """Run one step of RMSprop: divide the gradient by its running root mean square."""
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
    """Run one step of RMSprop with momentum."""
    square = alpha * square_avg + (1.0 - alpha) * grad**2
    velocity = momentum * momentum_buffer + grad / (np.sqrt(square) + eps)
    return param - lr * velocity, square, velocity


def adagrad(
    param: Array, grad: Array, state_sum: Array, step: Array, *, lr: float, lr_decay: float, eps: float
) -> Arrays:
    """Run one step of Adagrad: divide the gradient by the root of the sum of all squared gradients."""
    total = state_sum + grad**2
    return param - lr / (1.0 + step * lr_decay) * grad / (np.sqrt(total) + eps), total


def adadelta(
    param: Array, grad: Array, square_avg: Array, acc_delta: Array, *, lr: float, rho: float, eps: float
) -> Arrays:
    """Run one step of Adadelta: scale the gradient by the ratio of the running RMS of updates and of gradients."""
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
    """Run one step of Rprop: move by the sign of the gradient.

    The step size grows where the sign is unchanged. Where the sign changes, it shrinks and the parameter stays.
    """
    agreement = np.sign(grad * prev)
    factor = np.where(agreement > 0, etaplus, np.where(agreement < 0, etaminus, 1.0))
    length = np.clip(step_size * factor, step_size_min, step_size_max)
    used = np.where(agreement < 0, 0.0, grad)
    return param - np.sign(used) * length, used, length


def asgd(param: Array, grad: Array, average: Array, mu: Array, eta: Array, *, lambd: float) -> Arrays:
    """Run one step of averaged gradient descent (ASGD): update the parameter and its running average."""
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
    """Run one step of Adafactor: second moments factored into rows and columns, and a clipped update."""
    fresh = (step + 1.0) ** beta2_decay
    rate = max(eps2, np.sqrt(np.mean(param**2))) * min(lr, 1.0 / np.sqrt(step + 1.0))
    rows = row_var + fresh * (np.mean(grad**2, axis=-1, keepdims=True) - row_var)
    columns = col_var + fresh * (np.mean(grad**2, axis=-2, keepdims=True) - col_var)
    variance = rows @ columns / np.maximum(rows.mean(axis=-2, keepdims=True), eps1)
    update = grad / np.sqrt(np.maximum(variance, eps1**2))
    clipped = update / max(1.0, np.sqrt(np.mean(update**2)) / d)
    return param * (1.0 - lr * weight_decay) - rate * clipped, rows, columns


def _moments(grad: Array, mean: Array, square: Array, beta1: float, beta2: float) -> Arrays:
    """Return the updated running means of the gradient and of its square."""
    return beta1 * mean + (1.0 - beta1) * grad, beta2 * square + (1.0 - beta2) * grad**2

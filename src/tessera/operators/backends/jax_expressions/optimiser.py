"""Steps of optimisers in JAX: functions that give the parameter and its states after the step."""

from __future__ import annotations

DECAYED = "grad + weight_decay * param"
VELOCITY = f"momentum * momentum_buffer + {DECAYED}"
# with a gradient g and a parameter w
MOMENTS = "beta1 * exp_avg + (1 - beta1) * g, beta2 * exp_avg_sq + (1 - beta2) * g**2"
# the step is in single precision: made at least as wide as the parameter, and no narrower, before it is a power
ONE = "jnp.ones((), param.dtype)"
CORRECTED = f"(1 - {{}} ** (step + {ONE})).astype(param.dtype)"
MOVED = (
    f"(lambda m, v: (w - lr * m / {CORRECTED.format('beta1')}"
    f" / (jnp.sqrt(v / {CORRECTED.format('beta2')}) + eps), m, v))({MOMENTS})"
)
ADAM = f"(lambda w, g: {MOVED})(param, {DECAYED})"

EXPRESSIONS = {
    "sgd": f"param - lr * ({DECAYED})",
    "sgd_momentum": f"(lambda v: (param - lr * v, v))({VELOCITY})",
    "sgd_nesterov": f"(lambda v: (param - lr * ({DECAYED} + momentum * v), v))({VELOCITY})",
    "adam": ADAM,
    "adam_foreach": ADAM,
    "adamw": f"(lambda w, g: {MOVED})(param * (1 - lr * weight_decay), grad)",
    "rmsprop": "(lambda v: (param - lr * grad / (jnp.sqrt(v) + eps), v))(alpha * square_avg + (1 - alpha) * grad**2)",
    "adagrad": f"(lambda v: (param - (lr / ({ONE} + step * lr_decay)).astype(param.dtype) * grad"
    " / (jnp.sqrt(v) + eps), v))(state_sum + grad**2)",
    "adadelta": "(lambda v: (lambda d: (param - lr * d, v, rho * acc_delta + (1 - rho) * d**2))"
    "(jnp.sqrt((acc_delta + eps) / (v + eps)) * grad))(rho * square_avg + (1 - rho) * grad**2)",
}

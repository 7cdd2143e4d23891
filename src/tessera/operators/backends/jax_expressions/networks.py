"""JAX expressions of embeddings, losses, optimisers, linear algebra and Fourier transforms."""

from __future__ import annotations

LINEAR_ALGEBRA_EXPRESSIONS = {
    "cholesky_inverse": "jax.scipy.linalg.cho_solve((data, True), jnp.eye(len(data), dtype=data.dtype))",
    "cholesky_solve": "jax.scipy.linalg.cho_solve((data, True), rhs)",
    "linalg_diagonal": "jnp.linalg.diagonal(data)",
    "linalg_householder_product": "lax.linalg.householder_product(data, tau)",
    "linalg_lu_factor": "(lambda packed, pivots: (packed, pivots + 1))(*jax.scipy.linalg.lu_factor(data))",
    "linalg_lu_solve": "jax.scipy.linalg.lu_solve((data, pivots - 1), rhs)",
    "linalg_svdvals": "jnp.linalg.svdvals(data)",
}

LOG_SOFTMAX = "jax.nn.log_softmax(data, 1)"
# the log-probability of each label; classes are along dim 1
PICK_TARGET = "jnp.take_along_axis({}, jnp.expand_dims(target, 1), 1)"
HUBER_TEMPLATE = (
    "(lambda error: jnp.mean(jnp.where(error < {0}, 0.5 * error**2, {0} * (error - 0.5 * {0}))))"
    "(jnp.abs(data - target))"
)
DISTANCE_TEMPLATE = "jnp.linalg.norm(anchor - {} + 1e-6, axis=-1)"
COSINE_SIMILARITY = "jnp.sum(lhs * rhs, -1) / (jnp.linalg.norm(lhs, axis=-1) * jnp.linalg.norm(rhs, axis=-1))"

LOSS_EXPRESSIONS = {
    "smooth_l1_loss": HUBER_TEMPLATE.format("beta") + " / beta",
    "huber_loss": HUBER_TEMPLATE.format("delta"),
    "cross_entropy": f"-jnp.mean({PICK_TARGET.format(LOG_SOFTMAX)})",
    "cross_entropy_label_smoothing": f"(lambda logs: (label_smoothing - 1) * jnp.mean({PICK_TARGET.format('logs')})"
    f" - label_smoothing * jnp.mean(logs))({LOG_SOFTMAX})",
    "cross_entropy_probabilities": f"-jnp.mean(jnp.sum({LOG_SOFTMAX} * target, 1))",
    "cross_entropy_weighted": f"-jnp.average({PICK_TARGET.format(LOG_SOFTMAX)}[:, 0], weights=weight[target])",
    "linear_cross_entropy": f"-jnp.mean({PICK_TARGET.format(LOG_SOFTMAX.replace('data', 'data @ weight.T'))})",
    "nll_loss": f"-jnp.mean({PICK_TARGET.format('data')})",
    "multilabel_soft_margin_loss": "jnp.mean(jax.nn.softplus(-data) * target + jax.nn.softplus(data) * (1 - target))",
    "binary_cross_entropy_with_logits": "jnp.mean(jax.nn.softplus(data) - data * target)",
    "binary_cross_entropy_pos_weight": "jnp.mean(jax.nn.softplus(-data) * target * weight"
    " + jax.nn.softplus(data) * (1 - target))",
    "soft_margin_loss": "jnp.mean(jax.nn.softplus(-target * data))",
    "triplet_margin_loss": "jnp.mean(jnp.maximum("
    f"{DISTANCE_TEMPLATE.format('positive')} - {DISTANCE_TEMPLATE.format('negative')} + margin, 0))",
    "cosine_embedding_loss": "(lambda cosine: jnp.mean(jnp.where(target > 0, 1 - cosine,"
    f" jnp.maximum(cosine - margin, 0))))({COSINE_SIMILARITY})",
}

DECAYED_GRADIENT = "grad + weight_decay * param"
UPDATED_VELOCITY = f"momentum * momentum_buffer + {DECAYED_GRADIENT}"
# the updated first and second moments, given a gradient `g`
UPDATED_MOMENTS = "beta1 * exp_avg + (1 - beta1) * g, beta2 * exp_avg_sq + (1 - beta2) * g**2"
# `step` is float32: adding a one of the parameter's dtype makes the power float64 for a float64 parameter
SCALAR_ONE = "jnp.ones((), param.dtype)"
BIAS_CORRECTION_TEMPLATE = f"(1 - {{}} ** (step + {SCALAR_ONE})).astype(param.dtype)"
ADAM_UPDATE = (
    f"(lambda m, v: (w - lr * m / {BIAS_CORRECTION_TEMPLATE.format('beta1')}"
    f" / (jnp.sqrt(v / {BIAS_CORRECTION_TEMPLATE.format('beta2')}) + eps), m, v))({UPDATED_MOMENTS})"
)
ADAM_WITH_DECAY = f"(lambda w, g: {ADAM_UPDATE})(param, {DECAYED_GRADIENT})"

OPTIMISER_EXPRESSIONS = {
    "sgd_momentum": f"(lambda v: (param - lr * v, v))({UPDATED_VELOCITY})",
    "sgd_nesterov": f"(lambda v: (param - lr * ({DECAYED_GRADIENT} + momentum * v), v))({UPDATED_VELOCITY})",
    "adam": ADAM_WITH_DECAY,
    "adam_foreach": ADAM_WITH_DECAY,
    "adamw": f"(lambda w, g: {ADAM_UPDATE})(param * (1 - lr * weight_decay), grad)",
    "rmsprop": "(lambda v: (param - lr * grad / (jnp.sqrt(v) + eps), v))(alpha * square_avg + (1 - alpha) * grad**2)",
    "adagrad": f"(lambda v: (param - (lr / ({SCALAR_ONE} + step * lr_decay)).astype(param.dtype) * grad"
    " / (jnp.sqrt(v) + eps), v))(state_sum + grad**2)",
    "adadelta": "(lambda v: (lambda d: (param - lr * d, v, rho * acc_delta + (1 - rho) * d**2))"
    "(jnp.sqrt((acc_delta + eps) / (v + eps)) * grad))(rho * square_avg + (1 - rho) * grad**2)",
}

FFT_EXPRESSIONS = {f"fft_{name}": f"jnp.fft.{name}(n, spacing, dtype=data.dtype)" for name in ("fftfreq", "rfftfreq")}
EMBEDDING_LOOKUP = "jnp.take(weight, index, 0)"
# the number of the bag of each index; bags are concatenated, and `offsets` are their starts
BAG_INDICES = "jnp.searchsorted(offsets, jnp.arange(len(index)), side='right') - 1"
BAG_SUMS = f"jax.ops.segment_sum({EMBEDDING_LOOKUP}, {BAG_INDICES}, len(offsets), indices_are_sorted=True)"
EMBEDDING_EXPRESSIONS = {
    "embedding_bag_offsets": BAG_SUMS,
}
RESIZE_TEMPLATE = "jax.image.resize(data, (*data.shape[:2], *size), '{}', antialias={})"
MISC_EXPRESSIONS = {
    "interpolate_nearest_exact": RESIZE_TEMPLATE.format("nearest", False),
    "interpolate_linear": RESIZE_TEMPLATE.format("linear", False),
    "interpolate_bilinear": RESIZE_TEMPLATE.format("bilinear", False),
    "interpolate_trilinear": RESIZE_TEMPLATE.format("trilinear", False),
    "interpolate_bilinear_antialias": RESIZE_TEMPLATE.format("bilinear", True),
    "cdist": "jnp.linalg.norm(lhs[:, None] - rhs, axis=-1)",
    "cdist_manhattan": "jnp.sum(jnp.abs(lhs[:, None] - rhs), -1)",
    "cosine_similarity": COSINE_SIMILARITY,
    "normalize": "data / jnp.linalg.norm(data, axis=dim, keepdims=True)",
    "one_hot": "jax.nn.one_hot(index, num_classes, dtype=int)",
    "segment_reduce": "jax.ops.segment_sum(data, jnp.repeat(jnp.arange(len(lengths)), lengths,"
    " total_repeat_length=len(data)), len(lengths), indices_are_sorted=True)",
}

EXPRESSIONS = (
    LINEAR_ALGEBRA_EXPRESSIONS
    | LOSS_EXPRESSIONS
    | OPTIMISER_EXPRESSIONS
    | FFT_EXPRESSIONS
    | EMBEDDING_EXPRESSIONS
    | MISC_EXPRESSIONS
)

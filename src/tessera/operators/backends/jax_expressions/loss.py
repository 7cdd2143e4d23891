"""Losses in JAX."""

from __future__ import annotations

LOGS = "jax.nn.log_softmax(data, 1)"
# of the log-probabilities over dim 1, those of the labels
CHOSEN = "jnp.take_along_axis({}, jnp.expand_dims(target, 1), 1)"
HUBER = (
    "(lambda error: jnp.mean(jnp.where(error < {0}, 0.5 * error**2, {0} * (error - 0.5 * {0}))))"
    "(jnp.abs(data - target))"
)
DISTANCE = "jnp.linalg.norm(anchor - {} + 1e-6, axis=-1)"
COSINE = "jnp.sum(lhs * rhs, -1) / (jnp.linalg.norm(lhs, axis=-1) * jnp.linalg.norm(rhs, axis=-1))"

EXPRESSIONS = {
    "mse_loss": "jnp.mean(jnp.square(data - target))",
    "l1_loss": "jnp.mean(jnp.abs(data - target))",
    "smooth_l1_loss": HUBER.format("beta") + " / beta",
    "huber_loss": HUBER.format("delta"),
    "cross_entropy": f"-jnp.mean({CHOSEN.format(LOGS)})",
    "cross_entropy_2d": f"-jnp.mean({CHOSEN.format(LOGS)})",
    "cross_entropy_label_smoothing": f"(lambda logs: (label_smoothing - 1) * jnp.mean({CHOSEN.format('logs')})"
    f" - label_smoothing * jnp.mean(logs))({LOGS})",
    "cross_entropy_probabilities": f"-jnp.mean(jnp.sum({LOGS} * target, 1))",
    "cross_entropy_weighted": f"-jnp.average({CHOSEN.format(LOGS)}[:, 0], weights=weight[target])",
    "linear_cross_entropy": f"-jnp.mean({CHOSEN.format(LOGS.replace('data', 'data @ weight.T'))})",
    "nll_loss": f"-jnp.mean({CHOSEN.format('data')})",
    "nll_loss_2d": f"-jnp.mean({CHOSEN.format('data')})",
    "multilabel_soft_margin_loss": "jnp.mean(jax.nn.softplus(-data) * target + jax.nn.softplus(data) * (1 - target))",
    "binary_cross_entropy": "-jnp.mean(target * jnp.log(data) + (1 - target) * jnp.log(1 - data))",
    "binary_cross_entropy_with_logits": "jnp.mean(jax.nn.softplus(data) - data * target)",
    "binary_cross_entropy_pos_weight": "jnp.mean(jax.nn.softplus(-data) * target * weight"
    " + jax.nn.softplus(data) * (1 - target))",
    "kl_div": "jnp.sum(target * (jnp.log(target) - data)) / len(data)",
    "kl_div_log_target": "jnp.sum(jnp.exp(target) * (target - data)) / len(data)",
    "poisson_nll_loss": "jnp.mean(jnp.exp(data) - target * data)",
    "gaussian_nll_loss": "jnp.mean(0.5 * (jnp.log(variance) + jnp.square(data - target) / variance))",
    "hinge_embedding_loss": "jnp.mean(jnp.where(target > 0, data, jnp.maximum(margin - data, 0)))",
    "soft_margin_loss": "jnp.mean(jax.nn.softplus(-target * data))",
    "margin_ranking_loss": "jnp.mean(jnp.maximum(margin - target * (lhs - rhs), 0))",
    "triplet_margin_loss": "jnp.mean(jnp.maximum("
    f"{DISTANCE.format('positive')} - {DISTANCE.format('negative')} + margin, 0))",
    "cosine_embedding_loss": "(lambda cosine: jnp.mean(jnp.where(target > 0, 1 - cosine,"
    f" jnp.maximum(cosine - margin, 0))))({COSINE})",
}

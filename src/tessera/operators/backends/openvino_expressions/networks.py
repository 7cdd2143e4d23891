"""How OpenVINO writes what networks are made of beside layers: embeddings, attention, losses."""

from __future__ import annotations

from collections.abc import Mapping

EMBEDDING = {
    "embedding": "op.gather(weight, index, 0)",
    "embedding_bag": "op.embedding_bag_packed(weight, index, None, 'sum')",
    "embedding_bag_frequent": "op.embedding_bag_packed(weight, index, None, 'sum')",
    "embedding_bag_max": "op.reduce_max(op.gather(weight, index, 0), [1], False)",
    "embedding_bag_mean": "op.embedding_bag_packed(weight, index, None, 'mean')",
    "embedding_bag_offsets": "op.embedding_bag_offsets(weight, index, offsets, reduction='sum')",
    "embedding_bag_offsets_mean": "op.embedding_bag_offsets(weight, index, offsets, reduction='mean')",
    "embedding_bag_weighted": "op.embedding_bag_packed(weight, index, scale, 'sum')",
    "embedding_frequent": "op.gather(weight, index, 0)",
}

ATTENTION = {
    "attention_unfused": (
        "op.matmul(op.softmax(op.multiply(op.matmul(query, key, False, True), real(scale)), -1), value, False, False)"
    ),
    "scaled_dot_product_attention": "op.scaled_dot_product_attention(query, key, value)",
    "scaled_dot_product_attention_bias": "op.scaled_dot_product_attention(query, key, value, mask)",
    "scaled_dot_product_attention_causal": "op.scaled_dot_product_attention(query, key, value, causal=True)",
    "scaled_dot_product_attention_cross": "op.scaled_dot_product_attention(query, key, value)",
    "scaled_dot_product_attention_decode": "op.scaled_dot_product_attention(query, key, value)",
    "scaled_dot_product_attention_mask": "op.scaled_dot_product_attention(query, key, value, mask)",
}


def _mean(errors: str, dims: int = 2) -> str:
    return f"op.reduce_mean({errors}, {list(range(dims))}, False)"


def _row_sums(values: str) -> str:
    """The sum over all but the first dim, averaged over it."""
    return f"op.divide(op.reduce_sum({values}, [0, 1], False), real(float(data.shape[0])))"


HUBER = (
    "(lambda error: op.reduce_mean(op.select(op.less(error, real({0})),"
    " op.multiply(real(0.5), op.multiply(error, error)),"
    " op.multiply(real({0}), op.subtract(error, real(0.5 * {0})))), [0, 1], False))"
)
LOSS = {
    "binary_cross_entropy": (
        "op.negative(op.reduce_mean(op.add(op.multiply(target, op.log(data)),"
        " op.multiply(op.subtract(real(1.0), target), op.log(op.subtract(real(1.0), data)))), [0, 1], False))"
    ),
    "binary_cross_entropy_with_logits": _mean("op.subtract(op.softplus(data), op.multiply(data, target))"),
    "cross_entropy_probabilities": (f"op.negative({_row_sums('op.multiply(op.log_softmax(data, 1), target)')})"),
    "gaussian_nll_loss": (
        "op.multiply(real(0.5), op.reduce_mean(op.add(op.log(variance),"
        " op.divide(op.squared_difference(data, target), variance)), [0, 1], False))"
    ),
    "hinge_embedding_loss": _mean(
        "op.select(op.greater(target, real(0.0)), data, op.relu(op.subtract(real(margin), data)))"
    ),
    "huber_loss": f"{HUBER.format('delta')}(op.abs(op.subtract(data, target)))",
    "kl_div": _row_sums("op.multiply(target, op.subtract(op.log(target), data))"),
    "kl_div_log_target": _row_sums("op.multiply(op.exp(target), op.subtract(target, data))"),
    "l1_loss": _mean("op.abs(op.subtract(data, target))"),
    "margin_ranking_loss": _mean(
        "op.relu(op.subtract(real(margin), op.multiply(target, op.subtract(lhs, rhs))))", dims=1
    ),
    "mse_loss": _mean("op.squared_difference(data, target)"),
    "poisson_nll_loss": _mean("op.subtract(op.exp(data), op.multiply(target, data))"),
    "smooth_l1_loss": f"op.divide({HUBER.format('beta')}(op.abs(op.subtract(data, target))), real(beta))",
    "soft_margin_loss": _mean("op.softplus(op.negative(op.multiply(target, data)))"),
}

NETWORKS: Mapping[str, str] = {**EMBEDDING, **ATTENTION, **LOSS}

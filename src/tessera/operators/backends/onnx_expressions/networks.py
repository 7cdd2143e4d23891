"""How ONNX writes what networks are made of beside layers: embeddings, attention, losses."""

from __future__ import annotations

from collections.abc import Mapping

EMBEDDING = {
    "embedding": "op.Gather(weight, index)",
    "embedding_bag": "op.ReduceSum(op.Gather(weight, index), [1], keepdims=0)",
    "embedding_bag_frequent": "op.ReduceSum(op.Gather(weight, index), [1], keepdims=0)",
    "embedding_bag_max": "op.ReduceMax(op.Gather(weight, index), [1], keepdims=0)",
    "embedding_bag_mean": "op.ReduceMean(op.Gather(weight, index), [1], keepdims=0)",
    "embedding_bag_weighted": (
        "op.ReduceSum(op.Mul(op.Gather(weight, index), op.Unsqueeze(scale, [2])), [1], keepdims=0)"
    ),
    "embedding_frequent": "op.Gather(weight, index)",
}

ATTENTION = {
    "attention_unfused": (
        "op.MatMul(op.Softmax(op.Mul(op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2])), scale)), value)"
    ),
    "scaled_dot_product_attention": "op.Attention(query, key, value)",
    "scaled_dot_product_attention_bias": "op.Attention(query, key, value, mask)",
    "scaled_dot_product_attention_causal": "op.Attention(query, key, value, is_causal=1)",
    "scaled_dot_product_attention_cross": "op.Attention(query, key, value)",
    "scaled_dot_product_attention_decode": "op.Attention(query, key, value)",
    "scaled_dot_product_attention_gqa": "op.Attention(query, key, value)",
    "scaled_dot_product_attention_mask": "op.Attention(query, key, value, mask)",
}


def _mean(errors: str) -> str:
    return f"op.ReduceMean({errors}, keepdims=0)"


def _row_sums(values: str) -> str:
    """The sum over all but the first dim, averaged over it."""
    return f"op.Div(op.ReduceSum({values}, keepdims=0), float(data.shape[0]))"


HUBER = (
    "(lambda error: op.ReduceMean(op.Where(op.Less(error, {0}), op.Mul(0.5, op.Mul(error, error)),"
    " op.Mul({0}, op.Sub(error, 0.5 * {0}))), keepdims=0))"
)
LOSS = {
    "binary_cross_entropy": (
        "op.Neg(op.ReduceMean(op.Add(op.Mul(target, op.Log(data)),"
        " op.Mul(op.Sub(1.0, target), op.Log(op.Sub(1.0, data)))), keepdims=0))"
    ),
    "binary_cross_entropy_with_logits": _mean("op.Sub(op.Softplus(data), op.Mul(data, target))"),
    "cross_entropy": "op.SoftmaxCrossEntropyLoss(data, target)",
    "cross_entropy_2d": "op.SoftmaxCrossEntropyLoss(data, target)",
    "cross_entropy_probabilities": f"op.Neg({_row_sums('op.Mul(op.LogSoftmax(data, axis=1), target)')})",
    "cross_entropy_weighted": "op.SoftmaxCrossEntropyLoss(data, target, weight)",
    "gaussian_nll_loss": (
        "(lambda error: op.Mul(0.5, op.ReduceMean(op.Add(op.Log(variance), op.Div(op.Mul(error, error), variance)),"
        " keepdims=0)))(op.Sub(data, target))"
    ),
    "hinge_embedding_loss": _mean("op.Where(op.Greater(target, 0.0), data, op.Relu(op.Sub(margin, data)))"),
    "huber_loss": f"{HUBER.format('delta')}(op.Abs(op.Sub(data, target)))",
    "kl_div": _row_sums("op.Mul(target, op.Sub(op.Log(target), data))"),
    "kl_div_log_target": _row_sums("op.Mul(op.Exp(target), op.Sub(target, data))"),
    "l1_loss": _mean("op.Abs(op.Sub(data, target))"),
    "margin_ranking_loss": _mean("op.Relu(op.Sub(margin, op.Mul(target, op.Sub(lhs, rhs))))"),
    "mse_loss": f"(lambda error: {_mean('op.Mul(error, error)')})(op.Sub(data, target))",
    "nll_loss": "op.NegativeLogLikelihoodLoss(data, target)",
    "nll_loss_2d": "op.NegativeLogLikelihoodLoss(data, target)",
    "poisson_nll_loss": _mean("op.Sub(op.Exp(data), op.Mul(target, data))"),
    "smooth_l1_loss": f"op.Div({HUBER.format('beta')}(op.Abs(op.Sub(data, target))), beta)",
    "soft_margin_loss": _mean("op.Softplus(op.Neg(op.Mul(target, data)))"),
}

NETWORKS: Mapping[str, str] = {**EMBEDDING, **ATTENTION, **LOSS}

"""ONNX expressions of embeddings, attention, losses, optimisers and fused operators."""

from __future__ import annotations

from collections.abc import Mapping

EMBEDDING_EXPRESSIONS = {
    "embedding": "op.Gather(weight, index)",
    "embedding_bag": "op.ReduceSum(op.Gather(weight, index), [1], keepdims=0)",
    "embedding_bag_max": "op.ReduceMax(op.Gather(weight, index), [1], keepdims=0)",
    "embedding_bag_mean": "op.ReduceMean(op.Gather(weight, index), [1], keepdims=0)",
    "embedding_bag_weighted": (
        "op.ReduceSum(op.Mul(op.Gather(weight, index), op.Unsqueeze(scale, [2])), [1], keepdims=0)"
    ),
}

ATTENTION_EXPRESSIONS = {
    "attention_unfused": (
        "op.MatMul(op.Softmax(op.Mul(op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2])), scale)), value)"
    ),
    "scaled_dot_product_attention": "op.Attention(query, key, value)",
    "scaled_dot_product_attention_causal": "op.Attention(query, key, value, is_causal=1)",
    "scaled_dot_product_attention_gqa": "op.Attention(query, key, value)",
    "scaled_dot_product_attention_mask": "op.Attention(query, key, value, mask)",
}


def _write_mean(errors: str) -> str:
    return f"op.ReduceMean({errors}, keepdims=0)"


def _write_row_sums(values: str) -> str:
    """Return the source of the sum of `values` divided by the batch size (first dim of `data`)."""
    return f"op.Div(op.ReduceSum({values}, keepdims=0), float(data.shape[0]))"


HUBER_TEMPLATE = (
    "(lambda error: op.ReduceMean(op.Where(op.Less(error, {0}), op.Mul(0.5, op.Mul(error, error)),"
    " op.Mul({0}, op.Sub(error, 0.5 * {0}))), keepdims=0))"
)
LOSS_EXPRESSIONS = {
    "binary_cross_entropy": (
        "op.Neg(op.ReduceMean(op.Add(op.Mul(target, op.Log(data)),"
        " op.Mul(op.Sub(1.0, target), op.Log(op.Sub(1.0, data)))), keepdims=0))"
    ),
    "binary_cross_entropy_with_logits": _write_mean("op.Sub(op.Softplus(data), op.Mul(data, target))"),
    "cross_entropy": "op.SoftmaxCrossEntropyLoss(data, target)",
    "cross_entropy_probabilities": f"op.Neg({_write_row_sums('op.Mul(op.LogSoftmax(data, axis=1), target)')})",
    "cross_entropy_weighted": "op.SoftmaxCrossEntropyLoss(data, target, weight)",
    "gaussian_nll_loss": (
        "(lambda error: op.Mul(0.5, op.ReduceMean(op.Add(op.Log(variance), op.Div(op.Mul(error, error), variance)),"
        " keepdims=0)))(op.Sub(data, target))"
    ),
    "hinge_embedding_loss": _write_mean("op.Where(op.Greater(target, 0.0), data, op.Relu(op.Sub(margin, data)))"),
    "huber_loss": f"{HUBER_TEMPLATE.format('delta')}(op.Abs(op.Sub(data, target)))",
    "kl_div": _write_row_sums("op.Mul(target, op.Sub(op.Log(target), data))"),
    "kl_div_log_target": _write_row_sums("op.Mul(op.Exp(target), op.Sub(target, data))"),
    "l1_loss": _write_mean("op.Abs(op.Sub(data, target))"),
    "margin_ranking_loss": _write_mean("op.Relu(op.Sub(margin, op.Mul(target, op.Sub(lhs, rhs))))"),
    "mse_loss": f"(lambda error: {_write_mean('op.Mul(error, error)')})(op.Sub(data, target))",
    "nll_loss": "op.NegativeLogLikelihoodLoss(data, target)",
    "poisson_nll_loss": _write_mean("op.Sub(op.Exp(data), op.Mul(target, data))"),
    "smooth_l1_loss": f"op.Div({HUBER_TEMPLATE.format('beta')}(op.Abs(op.Sub(data, target))), beta)",
    "soft_margin_loss": _write_mean("op.Softplus(op.Neg(op.Mul(target, data)))"),
}

# weights are constants of the graph, because the runtime folds batch norm only into constant weights
CONV_WITH_BIAS = "op.Conv(data, fixed(weight), fixed(bias), pads=[1] * 4)"
CONV_AND_BATCH_NORM = (
    f"op.BatchNormalization({CONV_WITH_BIAS}, fixed(scale), fixed(shift), fixed(running_mean), fixed(running_var))"
)
LINEAR_TEMPLATE = "op.Gemm({data}, fixed(weight), fixed(bias), transB=1)"

FUSED_EXPRESSIONS = {
    "add_layer_norm": "op.LayerNormalization(op.Add(lhs, rhs), np.ones(lhs.shape[-1]))",
    "add_relu": "op.Relu(op.Add(lhs, rhs))",
    "conv2d_add_relu": f"op.Relu(op.Add({CONV_WITH_BIAS}, residual))",
    "conv2d_batch_norm": CONV_AND_BATCH_NORM,
    "conv2d_batch_norm_relu": f"op.Relu({CONV_AND_BATCH_NORM})",
    "conv2d_relu": f"op.Relu({CONV_WITH_BIAS})",
    "conv2d_silu": f"(lambda hidden: op.Mul(hidden, op.Sigmoid(hidden)))({CONV_WITH_BIAS})",
    "layer_norm_linear": LINEAR_TEMPLATE.format(data="op.LayerNormalization(data, fixed(scale), fixed(shift))"),
    "linear_gelu": f"op.Gelu({LINEAR_TEMPLATE.format(data='data')})",
    "linear_relu": f"op.Relu({LINEAR_TEMPLATE.format(data='data')})",
    "matmul_bias_relu": "op.Relu(op.Add(op.MatMul(data, fixed(weight)), fixed(bias)))",
    "matmul_softmax_matmul": (
        "op.MatMul(op.Softmax(op.Mul(op.MatMul(query, op.Transpose(key, perm=[0, 2, 1])), query.shape[-1] ** -0.5)),"
        " value)"
    ),
    "multiply_add": "op.Add(op.Mul(lhs, rhs), other)",
    "multiply_add_tanh": "op.Tanh(op.Add(op.Mul(lhs, rhs), other))",
    "scale_softmax": "op.Softmax(op.Mul(data, 0.125))",
    "silu_multiply": "op.Mul(op.Mul(lhs, op.Sigmoid(lhs)), rhs)",
    "softmax_matmul": "op.MatMul(op.Softmax(data), weight)",
    "subtract_square_mean": "(lambda error: op.ReduceMean(op.Mul(error, error), keepdims=0))(op.Sub(lhs, rhs))",
}

NETWORK_EXPRESSIONS: Mapping[str, str] = {
    **EMBEDDING_EXPRESSIONS,
    **ATTENTION_EXPRESSIONS,
    **LOSS_EXPRESSIONS,
    **FUSED_EXPRESSIONS,
}

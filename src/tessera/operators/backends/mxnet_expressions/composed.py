"""What MXNet composes of several operators: losses as its Gluon layers do, fused operators and attention in steps."""

from __future__ import annotations

_DIFFERENCE = "mnp.subtract(data, target)"
_CONVOLUTION = "nd.Convolution(data, weight, bias, kernel=(3, 3), pad=(1, 1), num_filter=shapes['weight'][0])"
_NORMALISED = (
    f"nd.BatchNorm({_CONVOLUTION}, scale, shift, running_mean, running_var, "
    "fix_gamma=False, use_global_stats=True, eps=1e-5)"
)
_LINEAR = "nd.FullyConnected({}, weight, bias, num_hidden=shapes['weight'][0])"
_SCORES = "nd.batch_dot(query, key, transpose_b=True) * shapes['query'][-1] ** -0.5"

EXPRESSIONS = {
    # losses
    "mse_loss": f"mnp.mean(mnp.square({_DIFFERENCE}))",
    "l1_loss": f"mnp.mean(mnp.abs({_DIFFERENCE}))",
    "smooth_l1_loss": f"mnp.mean(npx.smooth_l1({_DIFFERENCE}, scalar=beta**-0.5))",
    "cross_entropy": "-mnp.mean(npx.pick(npx.log_softmax(data), target))",
    "cross_entropy_2d": "-mnp.mean(npx.pick(npx.log_softmax(data, axis=1), target, axis=1))",
    "nll_loss": "-mnp.mean(npx.pick(data, target))",
    "nll_loss_2d": "-mnp.mean(npx.pick(data, target, axis=1))",
    # fused operators
    "conv2d_relu": f"nd.relu({_CONVOLUTION})",
    "conv2d_batch_norm": _NORMALISED,
    "conv2d_batch_norm_relu": f"nd.relu({_NORMALISED})",
    "conv2d_add_relu": f"nd.relu(nd.add({_CONVOLUTION}, residual))",
    "linear_gelu": f"nd.LeakyReLU({_LINEAR.format('data')}, act_type='gelu')",
    "linear_relu": f"nd.relu({_LINEAR.format('data')})",
    "matmul_bias_relu": "nd.relu(nd.add(nd.dot(data, weight), bias))",
    "layer_norm_linear": _LINEAR.format("nd.LayerNorm(data, scale, shift)"),
    "softmax_matmul": "nd.dot(nd.softmax(data), weight)",
    "matmul_softmax_matmul": f"nd.batch_dot(nd.softmax({_SCORES}), value)",
    "multiply_add": "lhs * rhs + other",
    "multiply_add_tanh": "nd.tanh(lhs * rhs + other)",
    "add_relu": "nd.relu(lhs + rhs)",
    "scale_softmax": "nd.softmax(data * 0.125)",
    "subtract_square_mean": "mnp.mean(mnp.square(lhs - rhs))",
    # attention
    "attention_unfused": (
        "mnp.matmul(npx.softmax(mnp.matmul(query, mnp.swapaxes(key, -1, -2)) * scale, axis=-1), value)"
    ),
}

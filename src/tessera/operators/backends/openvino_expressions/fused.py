"""How OpenVINO writes operators that it fuses. Weights are part of the model: known ones only can be folded."""

from __future__ import annotations

from collections.abc import Mapping

CONV = (
    "op.add(op.convolution(data, fixed(weight), [1, 1], [1, 1], [1, 1], [1, 1]),"
    " op.reshape(fixed(bias), [1, -1, 1, 1], False))"
)
NORM = f"op.batch_norm_inference({CONV}, fixed(scale), fixed(shift), fixed(running_mean), fixed(running_var), 1e-5)"
LINEAR = "op.add(op.matmul({data}, fixed(weight), False, True), fixed(bias))"

FUSED: Mapping[str, str] = {
    "add_layer_norm": "op.mvn(op.add(lhs, rhs), [-1], True, 1e-5, 'inside_sqrt')",
    "add_relu": "op.relu(op.add(lhs, rhs))",
    "conv2d_add_relu": f"op.relu(op.add({CONV}, residual))",
    "conv2d_batch_norm": NORM,
    "conv2d_batch_norm_relu": f"op.relu({NORM})",
    "conv2d_relu": f"op.relu({CONV})",
    "conv2d_silu": f"op.swish({CONV}, real(1.0))",
    "layer_norm_linear": LINEAR.format(
        data="op.add(op.multiply(op.mvn(data, [-1], True, 1e-5, 'inside_sqrt'), fixed(scale)), fixed(shift))"
    ),
    "linear_gelu": f"op.gelu({LINEAR.format(data='data')}, 'erf')",
    "linear_relu": f"op.relu({LINEAR.format(data='data')})",
    "matmul_bias_relu": "op.relu(op.add(op.matmul(data, fixed(weight), False, False), fixed(bias)))",
    "matmul_softmax_matmul": (
        "op.matmul(op.softmax(op.multiply(op.matmul(query, key, False, True), real(query.shape[-1] ** -0.5)), -1),"
        " value, False, False)"
    ),
    "multiply_add": "op.add(op.multiply(lhs, rhs), other)",
    "multiply_add_tanh": "op.tanh(op.add(op.multiply(lhs, rhs), other))",
    "scale_softmax": "op.softmax(op.multiply(data, real(0.125)), -1)",
    "silu_multiply": "op.multiply(op.swish(lhs, real(1.0)), rhs)",
    "softmax_matmul": "op.matmul(op.softmax(data, -1), weight, False, False)",
    "subtract_square_mean": "op.reduce_mean(op.squared_difference(lhs, rhs), [0, 1], False)",
}

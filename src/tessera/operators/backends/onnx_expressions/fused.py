"""How ONNX writes operators that its runtime fuses. Weights are part of the graph: known ones only can be folded."""

from __future__ import annotations

from collections.abc import Mapping

CONV = "op.Conv(data, fixed(weight), fixed(bias), pads=[1] * 4)"
NORM = f"op.BatchNormalization({CONV}, fixed(scale), fixed(shift), fixed(running_mean), fixed(running_var))"
LINEAR = "op.Gemm({data}, fixed(weight), fixed(bias), transB=1)"

FUSED: Mapping[str, str] = {
    "add_layer_norm": "op.LayerNormalization(op.Add(lhs, rhs), np.ones(lhs.shape[-1]))",
    "add_relu": "op.Relu(op.Add(lhs, rhs))",
    "conv2d_add_relu": f"op.Relu(op.Add({CONV}, residual))",
    "conv2d_batch_norm": NORM,
    "conv2d_batch_norm_relu": f"op.Relu({NORM})",
    "conv2d_relu": f"op.Relu({CONV})",
    "conv2d_silu": f"(lambda hidden: op.Mul(hidden, op.Sigmoid(hidden)))({CONV})",
    "layer_norm_linear": LINEAR.format(data="op.LayerNormalization(data, fixed(scale), fixed(shift))"),
    "linear_gelu": f"op.Gelu({LINEAR.format(data='data')})",
    "linear_relu": f"op.Relu({LINEAR.format(data='data')})",
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

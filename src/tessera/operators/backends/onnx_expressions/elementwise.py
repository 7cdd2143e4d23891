"""ONNX expressions of elementwise operators: arithmetic, comparison, logic, functions of one variable, activations."""

from __future__ import annotations

from collections.abc import Mapping

# operators whose name in the catalogue is the ONNX name in lower case
SAME_NAME_OPERATORS = (
    *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp", "Floor"),
    *("HardSwish", "IsInf", "IsNaN", "Log", "Mish", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign"),
    *("Sin", "Sinh", "Softsign", "Sqrt", "Tan", "Tanh"),
)
UNARY_OPERATORS = {
    **{name.lower(): name for name in SAME_NAME_OPERATORS},
    "bitwise_not": "BitwiseNot",
    "logical_not": "Not",
    "negative": "Neg",
}

ARITHMETIC_OPERATORS = {"add": "Add", "divide": "Div", "multiply": "Mul", "subtract": "Sub"}
COMPARISON_OPERATORS = {"eq": "Equal", "ge": "GreaterOrEqual", "gt": "Greater", "le": "LessOrEqual", "lt": "Less"}
BINARY_OPERATORS = {
    **ARITHMETIC_OPERATORS,
    **COMPARISON_OPERATORS,
    **{f"broadcast_{name}": kind for name, kind in ARITHMETIC_OPERATORS.items()},
    **{f"bitwise_{name}": f"Bitwise{name.capitalize()}" for name in ("and", "or", "xor")},
    **{f"logical_{name}": name.capitalize() for name in ("and", "or", "xor")},
    "maximum": "Max",
    "minimum": "Min",
    "power": "Pow",
}
SCALAR_OPERATORS = {f"{name}_scalar": kind for name, kind in (ARITHMETIC_OPERATORS | COMPARISON_OPERATORS).items()}

OTHER_EXPRESSIONS = {
    # arithmetic
    "addcdiv": "op.Add(data, op.Mul(value, op.Div(first, second)))",
    "addcmul": "op.Add(data, op.Mul(value, op.Mul(first, second)))",
    "clamp": "op.Clip(data, min, max)",
    "clamp_max": "op.Clip(data, None, max)",
    "clamp_min": "op.Clip(data, min)",
    "clamp_tensor": "op.Min(op.Max(data, lower), upper)",
    "copysign": "op.Mul(op.Abs(lhs), op.Sign(rhs))",
    "copysign_scalar": "op.Mul(op.Abs(data), float(np.sign(other)))",
    "divide_floor": "op.Floor(op.Div(lhs, rhs))",
    "divide_trunc": "(lambda ratio: op.Mul(op.Sign(ratio), op.Floor(op.Abs(ratio))))(op.Div(lhs, rhs))",
    "floor_divide": "op.Floor(op.Div(lhs, rhs))",
    "floor_divide_scalar": "op.Floor(op.Div(data, other))",
    "fmod": "op.Mod(lhs, rhs, fmod=1)",
    "fmod_scalar": "op.Mod(data, other, fmod=1)",
    "hypot": "op.Sqrt(op.Add(op.Mul(lhs, lhs), op.Mul(rhs, rhs)))",
    "lerp": "op.Add(lhs, op.Mul(weight, op.Sub(rhs, lhs)))",
    "modulo": "op.Sub(lhs, op.Mul(op.Floor(op.Div(lhs, rhs)), rhs))",
    "modulo_scalar": "op.Sub(data, op.Mul(op.Floor(op.Div(data, other)), other))",
    "nan_to_num": "op.Clip(op.Where(op.IsNaN(data), nan, data), neginf, posinf)",
    "rsub": "op.Sub(other, data)",
    # comparison and logic
    "bitwise_and_scalar": "op.BitwiseAnd(data, np.int32(other))",
    "bitwise_or_scalar": "op.BitwiseOr(data, np.int32(other))",
    "bitwise_xor_scalar": "op.BitwiseXor(data, np.int32(other))",
    "equal": "op.ReduceMin(op.Equal(lhs, rhs), keepdims=0)",
    "isclose": "op.LessOrEqual(op.Abs(op.Sub(lhs, rhs)), op.Add(1e-8, op.Mul(1e-5, op.Abs(rhs))))",
    "isfinite": "op.Not(op.Or(op.IsInf(data), op.IsNaN(data)))",
    "isneginf": "op.IsInf(data, detect_positive=0)",
    "isposinf": "op.IsInf(data, detect_negative=0)",
    "ne": "op.Not(op.Equal(lhs, rhs))",
    "ne_scalar": "op.Not(op.Equal(data, other))",
    # powers, rounding, angles
    "deg2rad": "op.Mul(data, np.pi / 180)",
    "float_power": "op.Pow(op.Cast(lhs, to=types.DOUBLE), op.Cast(rhs, to=types.DOUBLE))",
    "float_power_scalar": "op.Pow(op.Cast(data, to=types.DOUBLE), exponent)",
    "frac": "op.Mod(data, 1.0, fmod=1)",
    "pow_scalar": "op.Pow(data, exponent)",
    "pow_scalar_base": "op.Pow(base, data)",
    "rad2deg": "op.Mul(data, 180 / np.pi)",
    "round_decimals": "op.Div(op.Round(op.Mul(data, 10.0**decimals)), 10.0**decimals)",
    "rsqrt": "op.Reciprocal(op.Sqrt(data))",
    "square": "op.Mul(data, data)",
    "trunc": "op.Mul(op.Sign(data), op.Floor(op.Abs(data)))",
    # exponentials and logarithms
    "erfc": "op.Sub(1.0, op.Erf(data))",
    "exp2": "op.Pow(2.0, data)",
    "expm1": "op.Sub(op.Exp(data), 1.0)",
    "log10": "op.Mul(op.Log(data), 1 / np.log(10))",
    "log1p": "op.Log(op.Add(data, 1.0))",
    "log2": "op.Mul(op.Log(data), 1 / np.log(2))",
    "logit": "op.Log(op.Div(data, op.Sub(1.0, data)))",
    "special_ndtr": "op.Mul(0.5, op.Add(1.0, op.Erf(op.Mul(data, np.sqrt(0.5)))))",
    # activations
    "celu": "op.Celu(data, alpha=alpha)",
    "elu": "op.Elu(data, alpha=alpha)",
    "gelu": "op.Gelu(data)",
    "gelu_tanh": "op.Gelu(data, approximate='tanh')",
    "glu": "(lambda half, gate: op.Mul(half, op.Sigmoid(gate)))(*op.Split(data, axis=dim, num_outputs=2, outputs=2))",
    "hardshrink": "op.Shrink(data, lambd=lambd)",
    "hardsigmoid": "op.HardSigmoid(data, alpha=1 / 6, beta=0.5)",
    "hardtanh": "op.Clip(data, min_val, max_val)",
    "leaky_relu": "op.LeakyRelu(data, alpha=negative_slope)",
    "log_softmax": "op.LogSoftmax(data, axis=dim)",
    "logsigmoid": "op.Neg(op.Softplus(op.Neg(data)))",
    "prelu": "op.PRelu(data, op.Reshape(weight, [-1, 1, 1]))",
    "relu6": "op.Clip(data, 0.0, 6.0)",
    "rrelu": "op.LeakyRelu(data, alpha=(lower + upper) / 2)",
    "silu": "op.Mul(data, op.Sigmoid(data))",
    "softmax": "op.Softmax(data, axis=dim)",
    "softmin": "op.Softmax(op.Neg(data), axis=dim)",
    "softplus": "op.Softplus(data)",
    "softshrink": "op.Shrink(data, lambd=lambd, bias=lambd)",
    "tanhshrink": "op.Sub(data, op.Tanh(data))",
    "threshold": "op.Where(op.Greater(data, threshold), data, value)",
}

ELEMENTWISE_EXPRESSIONS: Mapping[str, str] = {
    **{name: f"op.{kind}(data)" for name, kind in UNARY_OPERATORS.items()},
    **{name: f"op.{kind}(lhs, rhs)" for name, kind in BINARY_OPERATORS.items()},
    **{name: f"op.{kind}(data, other)" for name, kind in SCALAR_OPERATORS.items()},
    **OTHER_EXPRESSIONS,
}

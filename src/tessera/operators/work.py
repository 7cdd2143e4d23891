"""Counting functions for `Operator.flops` and `Operator.moved`. A transcendental function counts as one FLOP."""

from __future__ import annotations

import math
from collections.abc import Callable

from tessera.operators.operator import OperatorCall

CountFunction = Callable[[OperatorCall], float]


def count_per_output(count: float = 1.0) -> CountFunction:
    """Return a function that counts `count` FLOPs per element of the first output."""
    return lambda call: count * math.prod(call.outputs[0])


def count_per_input(name: str, count: float = 1.0) -> CountFunction:
    """Return a function that counts `count` FLOPs per element of the input `name`, for reductions."""
    return lambda call: count * math.prod(call.shapes[name])


def count_convolution_flops(call: OperatorCall) -> float:
    """Return the FLOPs of a convolution with a `weight` (out, in, *kernel): 2 * outputs * in * kernel elements."""
    return 2.0 * math.prod(call.outputs[0]) * math.prod(call.shapes["weight"][1:])


def count_output_bytes(call: OperatorCall) -> float:
    """Return the bytes of an operator that reads as many bytes as it writes, such as a gather or a copied slice."""
    return 2.0 * sum(call.written)


def count_no_bytes(call: OperatorCall) -> float:
    """Return zero, the bytes that a view moves."""
    return 0.0

"""Counting arithmetic: the usual FLOP counts, for `Operator.flops`. A transcendental function counts as one."""

from __future__ import annotations

import math
from collections.abc import Callable

from tessera.operators.operator import Call

Count = Callable[[Call], float]


def per_output(count: float = 1.0) -> Count:
    """So many FLOPs for each element of the first output."""
    return lambda call: count * math.prod(call.outputs[0])


def per_input(name: str, count: float = 1.0) -> Count:
    """So many FLOPs for each element of an input, as a reduction has."""
    return lambda call: count * math.prod(call.shapes[name])


def product(weight: str) -> Count:
    """Two FLOPs per output and element of the weight behind it: convolutions, whose weight is (out, in, *kernel)."""
    return lambda call: 2.0 * math.prod(call.outputs[0]) * math.prod(call.shapes[weight][1:])


def outputs_moved(call: Call) -> float:
    """Bytes of an operator that reads only what it writes: a gather, a slice that is copied."""
    return 2.0 * sum(call.written)


def nothing_moved(call: Call) -> float:
    """Bytes of a view: none."""
    return 0.0

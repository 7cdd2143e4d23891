"""Families of elementwise operators: what all members share, so that a definition says only what is its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tessera.operators.draws import Draw, normal
from tessera.operators.operator import Input, Operator, by_size
from tessera.operators.work import per_output

Sides = tuple[int, int, int]

SIDES: Sides = (64, 1024, 4096)  # of square inputs: 4 thousand, 1 million, 16 million elements
SLOW_SIDES: Sides = (64, 256, 1024)  # for functions that take tens or hundreds of nanoseconds an element

# what the backward pass costs where it is less than usual, for `**`
SAME_GRADIENT: Mapping[str, Any] = {"backward_flops": 0.0, "backward_bytes": 0.0}  # handed on as it is
ZERO_GRADIENT: Mapping[str, Any] = {"backward_flops": 0.0, "backward_bytes": 0.5}  # only written
LINEAR_GRADIENT: Mapping[str, Any] = {"backward_flops": 1.0, "backward_bytes": 1.0}  # does not read the input
NO_GRADIENT: Mapping[str, Any] = {"differentiable": False}
NO_FLOPS: Mapping[str, Any] = {"flops": per_output(0), "differentiable": False}  # integers and truth values

# what PyTorch computes where it has no 16-bit kernel
WIDE: Mapping[str, Any] = {"dtypes": ("float32", "float64")}


def value(draw: Draw = normal, kind: str = "float", *, grad: bool = True) -> Input:
    """An input of an elementwise operator: it becomes as large as the size says."""
    return Input(shape=(), kind=kind, draw=draw, grad=grad)


def elementwise(
    category: str,
    name: str,
    torch: str,
    reference: str,
    *,
    inputs: Mapping[str, Input],
    sides: Sides = SIDES,
    **rest: Any,
) -> Operator:
    """An operator on inputs of one shape: a FLOP for each output unless `rest` says otherwise.

    Its backward pass reads the inputs and the gradient of the output, and writes a gradient for each input.
    """
    count = len(inputs)
    settings = {"flops": per_output(), "backward_bytes": (2 * count + 1) / (count + 1), **rest}
    sizes = by_size(lambda n: {key: replace(one, shape=(n, n)) for key, one in inputs.items()}, *sides)
    return Operator(name=name, category=category, torch=torch, reference=reference, sizes=sizes, **settings)


def unary(
    category: str,
    name: str,
    draw: Draw = normal,
    *,
    torch: str = "",
    reference: str = "",
    kind: str = "float",
    **rest: Any,
) -> Operator:
    """An operator on `data`, by default called alike in torch and NumPy."""
    return elementwise(
        category,
        name,
        torch or f"torch.{name}(data)",
        reference or f"np.{name}(data)",
        inputs={"data": value(draw, kind)},
        **rest,
    )


def binary(
    category: str,
    name: str,
    lhs: Draw = normal,
    rhs: Draw = normal,
    *,
    torch: str = "",
    reference: str = "",
    kind: str = "float",
    **rest: Any,
) -> Operator:
    """An operator on `lhs` and `rhs`, by default called alike in torch and NumPy."""
    return elementwise(
        category,
        name,
        torch or f"torch.{name}(lhs, rhs)",
        reference or f"np.{name}(lhs, rhs)",
        inputs={"lhs": value(lhs, kind), "rhs": value(rhs, kind)},
        **rest,
    )


def inplace(category: str, name: str, torch: str, reference: str, **rest: Any) -> Operator:
    """An operator that overwrites its first input; `inputs` are drawn so that a million calls leave normal numbers."""
    settings = {"aliases": (f"{name}_",), "differentiable": False, **rest}
    return elementwise(category, f"inplace_{name}", torch, reference, **settings)


def inplace_unary(category: str, name: str, draw: Draw = normal, *, kind: str = "float", **rest: Any) -> Operator:
    """An operator that overwrites `data`, by default called alike in torch and NumPy."""
    settings = {"torch": f"data.{name}_()", "reference": f"np.{name}(data, out=data)", **rest}
    return inplace(category, name, inputs={"data": value(draw, kind)}, **settings)


def inplace_binary(
    category: str, name: str, lhs: Draw = normal, rhs: Draw = normal, *, kind: str = "float", **rest: Any
) -> Operator:
    """An operator that overwrites `lhs`, by default called alike in torch and NumPy."""
    settings = {"torch": f"lhs.{name}_(rhs)", "reference": f"np.{name}(lhs, rhs, out=lhs)", **rest}
    return inplace(category, name, inputs={"lhs": value(lhs, kind), "rhs": value(rhs, kind)}, **settings)

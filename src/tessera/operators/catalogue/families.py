"""Helpers that define families of operators with shared settings, so that a definition states only the differences.

All inputs of an elementwise operator have the same shape. By default, its names in torch and NumPy are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tessera.operators.draws import Draw, distinct_values, normal
from tessera.operators.operator import Input, Operator, make_sizes
from tessera.operators.work import count_per_output

Sides = tuple[int, int, int]
Sizes = Mapping[str, Mapping[str, Input]]
Settings = Mapping[str, Any]

MATRIX_SIDES: Sides = (64, 1024, 4096)  # sides of square matrices: 4 thousand, 1 million, 16 million elements
SLOW_MATRIX_SIDES: Sides = (64, 256, 1024)  # sides for operators that take 10 ns or more per element

# FLOPs and bytes of a backward pass relative to the forward pass; keyword arguments for `define_operator`
SAME_GRADIENT: Settings = {"backward_flops": 0.0, "backward_bytes": 0.0}  # input gradient = output gradient, no copy
ZERO_GRADIENT: Settings = {"backward_flops": 0.0, "backward_bytes": 0.5}  # writes zeros, reads nothing
LINEAR_GRADIENT: Settings = {"backward_flops": 1.0, "backward_bytes": 1.0}  # does not read the input values
NO_GRADIENT: Settings = {"differentiable": False}
NO_FLOPS: Settings = {"flops": count_per_output(0), "differentiable": False}  # for integers and booleans

# settings of operators for which PyTorch has no 16-bit kernel
WIDE_DTYPES: Settings = {"dtypes": ("float32", "float64")}


def define_operator(
    category: str, name: str, torch: str, reference: str, sizes: Sizes | None = None, **settings: Any
) -> Operator:
    """Define an operator; without `sizes`, its input is a square matrix `data`."""
    return Operator(
        name=name, category=category, torch=torch, reference=reference, sizes=sizes or make_square(), **settings
    )


def define_family(category: str, **shared: Any) -> Callable[..., Operator]:
    """Return `define_operator` with a fixed category and fixed settings `shared`."""
    return partial(define_operator, category, **shared)


def write_both(call: str) -> tuple[str, str]:
    """Return the source of a function call in torch and in NumPy, for a function with the same name in both.

    >>> write_both("tril(data)")
    ('torch.tril(data)', 'np.tril(data)')
    """
    return f"torch.{call}", f"np.{call}"


def make_value(draw: Draw = normal, kind: str = "float", *, grad: bool = True) -> Input:
    """Make an input of an elementwise operator; the size of the case sets its shape."""
    return Input(shape=(), kind=kind, draw=draw, grad=grad)


@dataclass(frozen=True, slots=True)
class ElementwiseFamily:
    """Definer of the elementwise operators of a category; `shared` are settings of all operators.

    The source of an operator is given as `torch` and `reference`, or as function names: `function` in torch and `numpy`
    in NumPy (default: the operator's name), called with the inputs and then the attributes. With `inplace`, torch's
    method with a trailing underscore overwrites the first input.
    """

    category: str
    shared: Settings = field(default_factory=dict)

    def define(
        self,
        name: str,
        torch: str,
        reference: str,
        *,
        inputs: Mapping[str, Input],
        sides: Sides = MATRIX_SIDES,
        **rest: Any,
    ) -> Operator:
        """Define an operator on inputs of the same shape, with one FLOP per output element unless `rest` sets `flops`.

        The default backward pass reads the inputs and the gradient of the output, and writes a gradient per input.
        """
        count = len(inputs)
        costs = {"flops": count_per_output(), "backward_bytes": (2 * count + 1) / (count + 1)}
        settings = {**costs, **self.shared, **rest}
        sizes = make_sizes(lambda n: {key: replace(one, shape=(n, n)) for key, one in inputs.items()}, *sides)
        return define_operator(self.category, name, torch, reference, sizes, **settings)

    def define_inplace(self, name: str, torch: str, reference: str, **rest: Any) -> Operator:
        """Define an operator that overwrites its first input.

        Its inputs must be drawn so that a million calls cause no overflow and no denormals.
        """
        settings = {"aliases": (f"{name}_",), "differentiable": False, **rest}
        return self.define(f"inplace_{name}", torch, reference, **settings)

    def define_unary(self, name: str, draw: Draw = normal, *, kind: str = "float", **rest: Any) -> Operator:
        """Define an operator on one input, `data`."""
        return self._define_call(name, {"data": make_value(draw, kind)}, **rest)

    def define_binary(
        self, name: str, lhs: Draw = normal, rhs: Draw = normal, *, kind: str = "float", **rest: Any
    ) -> Operator:
        """Define an operator on two inputs, `lhs` and `rhs`."""
        return self._define_call(name, {"lhs": make_value(lhs, kind), "rhs": make_value(rhs, kind)}, **rest)

    def _define_call(
        self,
        name: str,
        inputs: Mapping[str, Input],
        *,
        inplace: bool = False,
        function: str = "",
        numpy: str = "",
        torch: str = "",
        reference: str = "",
        **rest: Any,
    ) -> Operator:
        attributes: Settings = rest.get("attributes", {})
        first, *others = [*inputs, *attributes]
        arguments = ", ".join([first, *others])
        if inplace:
            torch = torch or f"{first}.{function or name}_({', '.join(others)})"
            reference = reference or f"np.{numpy or name}({arguments}, out={first})"
            return self.define_inplace(name, torch, reference, inputs=inputs, **rest)
        torch = torch or f"torch.{function or name}({arguments})"
        reference = reference or f"np.{numpy or name}({arguments})"
        return self.define(name, torch, reference, inputs=inputs, **rest)


# sizes (small, medium, large) of one input `data`, for operators of several categories


def make_square(draw: Draw = normal, kind: str = "float") -> Sizes:
    """Make a square matrix for each size: 4 thousand, 1 million, 16 million elements."""
    return make_sizes(lambda n: {"data": Input(shape=(n, n), draw=draw, kind=kind)}, *MATRIX_SIDES)


def make_rows(draw: Draw = distinct_values, kind: str = "float") -> Sizes:
    """Make a matrix with few long rows, for sorting: 4 thousand, 128 thousand, 4 million elements."""
    return make_sizes(
        lambda rows, n: {"data": Input(shape=(rows, n), draw=draw, kind=kind)}, (16, 256), (128, 1024), (1024, 4096)
    )


def make_vector(draw: Draw = normal, kind: str = "float") -> Sizes:
    """Make a vector for each size: 4 thousand, 256 thousand, 4 million elements."""
    return make_sizes(lambda n: {"data": Input(shape=(n,), draw=draw, kind=kind)}, 2**12, 2**18, 2**22)


def make_images(draw: Draw = normal, kind: str = "float") -> Sizes:
    """Make feature maps (n, channels, height, width): 4 thousand, 1.6 million, 12.8 million elements."""
    scales = ((1, 16, 16), (8, 64, 56), (64, 64, 56))
    return make_sizes(lambda n, c, s: {"data": Input(shape=(n, c, s, s), draw=draw, kind=kind)}, *scales)

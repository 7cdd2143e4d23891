"""Helpers that define families of operators with shared settings, so that a definition states only the differences.

All inputs of an elementwise operator have the same shape.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tessera.operators.draws import Draw, distinct_values, normal
from tessera.operators.operator import CountFunction, Input, Operator, count_per_input, count_per_output, make_sizes

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
NO_FLOPS: Settings = {"flops": 0, "differentiable": False}  # for integers and booleans

# settings of operators whose sums, or gradients of means over a million values, leave the range of float16
NO_FLOAT16: Settings = {"dtypes": ("float32", "float64", "bfloat16")}
# settings of operators for which PyTorch has no 16-bit kernel
WIDE_DTYPES: Settings = {"dtypes": ("float32", "float64")}


def define_operator(
    category: str,
    name: str,
    torch: str = "",
    reference: str = "",
    sizes: Sizes | None = None,
    *,
    function: str = "",
    libraries: tuple[str, str] = ("torch", "np"),
    keywords: bool = False,
    flops: float | CountFunction = 0.0,
    flops_of: str = "",
    **settings: Any,
) -> Operator:
    """Define an operator; without `sizes`, its input is a square matrix `data`.

    `torch` and `reference` are expressions, or names of functions, which are called with the inputs and then the
    attributes (by name with `keywords`); by default, the function `function` (default: `name`) of each of `libraries`.
    A number as `flops` counts FLOPs per element of the first output, or of the input `flops_of`.
    """
    sizes = sizes or make_square()
    attributes = settings.get("attributes", {})
    if callable(attributes):
        attributes = attributes({key: one.shape for key, one in sizes["small"].items()})
    arguments = ", ".join([*sizes["small"], *(f"{key}={key}" if keywords else key for key in attributes)])
    torch, reference = (
        _write_call(source or f"{library}.{function or name}", arguments)
        for source, library in zip((torch, reference), libraries, strict=True)
    )
    if not callable(flops):
        flops = count_per_input(flops_of, flops) if flops_of else count_per_output(flops)
    return Operator(
        name=name, category=category, torch=torch, reference=reference, sizes=sizes, flops=flops, **settings
    )


def _write_call(source: str, arguments: str) -> str:
    """Return a call of the function that `source` names, or `source` itself if it is an expression."""
    return f"{source}({arguments})" if re.fullmatch(r"[\w.]+", source) else source


def define_family(category: str, *, default_sizes: Sizes | None = None, **shared: Any) -> Callable[..., Operator]:
    """Return `define_operator` with a fixed category, default inputs and default settings `shared`."""

    def define(
        name: str, torch: str = "", reference: str = "", sizes: Sizes | None = None, **settings: Any
    ) -> Operator:
        return define_operator(category, name, torch, reference, sizes or default_sizes, **{**shared, **settings})

    return define


def write_both(call: str) -> tuple[str, str]:
    """Return the source of a function call in torch and in NumPy, for a function with the same name in both.

    >>> write_both("tril(data)")
    ('torch.tril(data)', 'np.tril(data)')
    """
    return f"torch.{call}", f"np.{call}"


def make_value(draw: Draw = normal, kind: str = "float", *, grad: bool = True) -> Input:
    """Make an input of an elementwise operator; the size of the case sets its shape."""
    return Input((), draw, kind, grad=grad)


@dataclass(frozen=True, slots=True)
class ElementwiseFamily:
    """Definer of the elementwise operators of a category; `shared` are settings of all operators."""

    category: str
    shared: Settings = field(default_factory=dict)

    def define(
        self,
        name: str,
        torch: str = "",
        reference: str = "",
        *,
        inputs: Mapping[str, Input],
        sides: Sides = MATRIX_SIDES,
        **rest: Any,
    ) -> Operator:
        """Define an operator on inputs of the same shape, with one FLOP per output element unless `rest` sets `flops`.

        The default backward pass reads the inputs and the gradient of the output, and writes a gradient per input.
        """
        count = len(inputs)
        costs = {"flops": 1.0, "backward_bytes": (2 * count + 1) / (count + 1)}
        sizes = make_sizes(lambda n: {key: replace(one, shape=(n, n)) for key, one in inputs.items()}, *sides)
        return define_operator(self.category, name, torch, reference, sizes, **{**costs, **self.shared, **rest})

    def define_inplace(
        self, name: str, torch: str = "", reference: str = "", *, inputs: Mapping[str, Input], **rest: Any
    ) -> Operator:
        """Define an operator that overwrites its first input, with the method of torch that ends in an underscore.

        Its inputs must be drawn so that a million calls cause no overflow and no denormals.
        """
        function = rest.pop("function", name)
        attributes: Settings = rest.get("attributes", {})
        first, *others = [*inputs, *attributes]
        if "(" not in torch:
            torch = f"{first}.{(torch or function).rpartition('.')[2]}_({', '.join(others)})"
        if "(" not in reference:
            reference = f"{reference or f'np.{function}'}({', '.join([first, *others])}, out={first})"
        settings = {"aliases": (f"{name}_",), "differentiable": False, **rest}
        return self.define(f"inplace_{name}", torch, reference, inputs=inputs, **settings)

    def define_unary(
        self, name: str, draw: Draw = normal, *, kind: str = "float", inplace: bool = False, **rest: Any
    ) -> Operator:
        """Define an operator on one input, `data`."""
        define = self.define_inplace if inplace else self.define
        return define(name, inputs={"data": make_value(draw, kind)}, **rest)

    def define_binary(
        self,
        name: str,
        lhs: Draw = normal,
        rhs: Draw = normal,
        *,
        kind: str = "float",
        inplace: bool = False,
        **rest: Any,
    ) -> Operator:
        """Define an operator on two inputs, `lhs` and `rhs`."""
        define = self.define_inplace if inplace else self.define
        return define(name, inputs={"lhs": make_value(lhs, kind), "rhs": make_value(rhs, kind)}, **rest)


# sizes (small, medium, large) of one input `data`, for operators of several categories


def make_square(draw: Draw = normal, kind: str = "float") -> Sizes:
    """Make a square matrix for each size: 4 thousand, 1 million, 16 million elements."""
    return make_sizes(lambda n: {"data": Input((n, n), draw, kind)}, *MATRIX_SIDES)


def make_rows(draw: Draw = distinct_values, kind: str = "float") -> Sizes:
    """Make a matrix with few long rows, for sorting: 4 thousand, 128 thousand, 4 million elements."""
    return make_sizes(lambda rows, n: {"data": Input((rows, n), draw, kind)}, (16, 256), (128, 1024), (1024, 4096))


def make_vector(draw: Draw = normal, kind: str = "float") -> Sizes:
    """Make a vector for each size: 4 thousand, 256 thousand, 4 million elements."""
    return make_sizes(lambda n: {"data": Input((n,), draw, kind)}, 2**12, 2**18, 2**22)


def make_images(draw: Draw = normal, kind: str = "float") -> Sizes:
    """Make feature maps (n, channels, height, width): 4 thousand, 1.6 million, 12.8 million elements."""
    scales = ((1, 16, 16), (8, 64, 56), (64, 64, 56))
    return make_sizes(lambda n, c, s: {"data": Input((n, c, s, s), draw, kind)}, *scales)

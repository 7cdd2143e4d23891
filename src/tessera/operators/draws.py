"""Distributions of input values: NumPy expressions over a generator `rng`, a `shape`, and `shapes` of all inputs."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Draw:
    """A distribution as a NumPy expression over `rng` and `shape`, so that it can be written into a program.

    Expressions for indices use `shapes`, the shapes of all inputs by name, to stay in range.

    >>> import numpy as np
    >>> Draw("rng.standard_normal(shape)")(np.random.default_rng(0), (2, 3)).shape
    (2, 3)
    """

    expression: str

    def __call__(self, rng: Any, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]] | None = None) -> Any:
        import numpy as np

        return eval(self.expression, {"np": np, "rng": rng, "shape": shape, "shapes": shapes or {}})


# The names that an expression of a stored record may use: methods of `rng` and functions of NumPy that only compute.
_DRAW_METHODS = """
beta binomial chisquare choice exponential f gamma geometric gumbel integers laplace logistic lognormal normal pareto
permutation poisson power random rayleigh standard_cauchy standard_exponential standard_gamma standard_normal standard_t
triangular uniform vonmises wald weibull zipf
"""
_ARRAY_NAMES = """
abs arange argsort array astype clip cos cumsum exp eye float32 float64 full inf int32 int64 linspace log max maximum
mean min minimum mod nan ones pi prod reshape sign sin sqrt std sum swapaxes tanh transpose tril triu where zeros T
"""
_ATTRIBUTES = frozenset({*_DRAW_METHODS.split(), *_ARRAY_NAMES.split()})
_GLOBAL_NAMES = frozenset({"rng", "np", "shape", "shapes", "int", "float", "len"})
_PLAIN_NODES = (
    ast.Expression, ast.Call, ast.keyword, ast.Attribute, ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.List,
    ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.Slice, ast.Starred, ast.operator, ast.unaryop, ast.cmpop,
    ast.Lambda, ast.arguments, ast.arg,
)  # fmt: skip


def is_plain_draw(expression: str) -> bool:
    """Return whether an expression only draws numbers and computes with them, so that running it is harmless.

    >>> is_plain_draw("rng.uniform(0.1, 1.0, shape) * 2"), is_plain_draw("__import__('os').system('id')")
    (True, False)
    """
    try:
        tree = ast.parse(expression, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return len(expression) <= 1000 and _is_plain_node(tree, _GLOBAL_NAMES)


def _is_plain_node(node: ast.AST, names: frozenset[str]) -> bool:
    """Return whether a part of an expression is harmless; `names` are the names that it may use.

    The parameters of a lambda are known inside its body only. Default values are refused, because Python evaluates them
    outside of the body.
    """
    match node:
        case ast.Name():
            return node.id in names
        case ast.Attribute() if node.attr not in _ATTRIBUTES:
            return False
        case ast.Lambda():
            if node.args.defaults or node.args.kw_defaults:
                return False
            names |= {each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)}
    return isinstance(node, _PLAIN_NODES) and all(_is_plain_node(each, names) for each in ast.iter_child_nodes(node))


# standard normal values, the default
normal = Draw("rng.standard_normal(shape)")
# true and false with equal probability
booleans = Draw("rng.random(shape) < 0.5")
# 1 or -1: a buffer that is multiplied by these values in place many times keeps its magnitude
signs = Draw("rng.integers(0, 2, shape) * 2.0 - 1.0")
# a random permutation of 0 to n - 1, where n is the number of elements
permutation = Draw("rng.permutation(int(np.prod(shape))).reshape(shape)")
# square matrices far from singular: noise plus a large diagonal
well_conditioned = Draw("rng.standard_normal(shape) + 2 * shape[-1] ** 0.5 * np.eye(shape[-1])")
# symmetric matrices, and symmetric positive definite matrices
symmetric = Draw("(lambda m: (m + m.swapaxes(-1, -2)) / 2)(rng.standard_normal(shape))")
positive_definite = Draw(
    "(lambda m: m @ m.swapaxes(-1, -2) + np.eye(shape[-1]))(rng.standard_normal(shape) / shape[-1] ** 0.5)"
)
# positive values that sum to one over the last dim
probabilities = Draw("(lambda w: w / w.sum(-1, keepdims=True))(rng.uniform(0.1, 1.0, shape))")
# one value in ten is NaN or infinite
not_all_finite = Draw(
    "np.where(rng.random(shape) < 0.1, rng.choice([np.nan, np.inf, -np.inf], shape), rng.standard_normal(shape))"
)
# about half of the values are zero, the rest are positive
half_zero = Draw("np.maximum(rng.standard_normal(shape), 0)")
# normal values with a unique maximum and a unique minimum
unique_extremes = Draw("(lambda v: v + 4.0 * (v == v.max()) - 4.0 * (v == v.min()))(rng.standard_normal(shape))")
# values that are distinct within a row even in 16-bit types, so that the sorted order is unique; rows up to 4096 values
distinct_values = Draw(
    "(lambda k: (1 - 2 * (k % 2)) * (1 + k // 2 % 128 / 128) * 2.0 ** (k // 256 - shape[-1] // 512))"
    "(rng.random(shape).argsort(-1))"
)
# values that are distinct within a row of any length, but not in 16-bit types
spaced_values = Draw("(rng.random(shape).argsort(-1) - shape[-1] / 2) / 1024")


def uniform(low: float, high: float) -> Draw:
    """Return a uniform distribution between two bounds, for operators with a bounded domain, such as logarithms."""
    return Draw(f"rng.uniform({low}, {high}, shape)")


def integers(below: int | str, low: int = 0) -> Draw:
    """Return a distribution of uniform integers from `low` to `below` - 1; `below` may be an expression."""
    return Draw(f"rng.integers({low}, {below}, shape)")


def constant(value: float) -> Draw:
    """Return a distribution of one constant value."""
    return Draw(f"np.full(shape, {value})")


def between_multiples(low: int, high: int, start: float = 0.1, stop: float = 0.9, width: float = 1.0) -> Draw:
    """Return a distribution that avoids multiples of `width`, where an operator such as `floor` is not differentiable.

    A value is `width * (i + f)`, with a random integer `low <= i < high` and a random fraction between `start` and
    `stop`. Two inputs whose fractions do not overlap never have close values.

    >>> between_multiples(-3, 3)
    Draw(expression='1.0 * (rng.integers(-3, 3, shape) + rng.uniform(0.1, 0.9, shape))')
    """
    return Draw(f"{width} * (rng.integers({low}, {high}, shape) + rng.uniform({start}, {stop}, shape))")


def distinct_integers(below: int) -> Draw:
    """Return a distribution of integers below a bound without repetition within a row, for scatter indices."""
    return Draw(f"rng.random((*shape[:-1], {below})).argsort(-1)[..., : shape[-1]]")

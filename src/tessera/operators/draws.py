"""How the values of an input are drawn: expressions over a NumPy generator `rng`, a `shape`, all inputs' `shapes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Draw:
    """Values as an expression over `rng` and `shape`, in NumPy (`np`), so that a program can write it down again.

    Indices look at the `shapes` of the inputs, by name, for what they point into.

    >>> import numpy as np
    >>> Draw("rng.standard_normal(shape)")(np.random.default_rng(0), (2, 3)).shape
    (2, 3)
    """

    expression: str

    def __call__(self, rng: Any, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]] | None = None) -> Any:
        import numpy as np

        return eval(self.expression, {"np": np, "rng": rng, "shape": shape, "shapes": shapes or {}})


# what most operators get
normal = Draw("rng.standard_normal(shape)")
# true and false, equally often
booleans = Draw("rng.random(shape) < 0.5")
# one and minus one: a buffer multiplied by them in place a million times is still what it was
signs = Draw("rng.integers(0, 2, shape) * 2.0 - 1.0")
# every number below the count once
permutation = Draw("rng.permutation(int(np.prod(shape))).reshape(shape)")
# square matrices far from singular: noise around a heavy diagonal
well_conditioned = Draw("rng.standard_normal(shape) + 2 * shape[-1] ** 0.5 * np.eye(shape[-1])")
# symmetric matrices, and symmetric positive definite ones
symmetric = Draw("(lambda m: (m + m.swapaxes(-1, -2)) / 2)(rng.standard_normal(shape))")
positive_definite = Draw(
    "(lambda m: m @ m.swapaxes(-1, -2) + np.eye(shape[-1]))(rng.standard_normal(shape) / shape[-1] ** 0.5)"
)
# positive values that sum to one over the last dim
probabilities = Draw("(lambda w: w / w.sum(-1, keepdims=True))(rng.uniform(0.1, 1.0, shape))")
# one value in ten is not a number or infinite
not_all_finite = Draw(
    "np.where(rng.random(shape) < 0.1, rng.choice([np.nan, np.inf, -np.inf], shape), rng.standard_normal(shape))"
)
# half of them zero, the others positive
half_zero = Draw("np.maximum(rng.standard_normal(shape), 0)")
# normal values with one clear maximum and one clear minimum
lone_extremes = Draw("(lambda v: v + 4.0 * (v == v.max()) - 4.0 * (v == v.min()))(rng.standard_normal(shape))")
# no two values of a row equal or near, so that their order has one answer: up to 4096 a row, also in 16 bits
distinct = Draw(
    "(lambda k: (1 - 2 * (k % 2)) * (1 + k // 2 % 128 / 128) * 2.0 ** (k // 256 - shape[-1] // 512))"
    "(rng.random(shape).argsort(-1))"
)
# the same for longer rows, not in 16 bits
spaced = Draw("(rng.random(shape).argsort(-1) - shape[-1] / 2) / 1024")


def uniform(low: float, high: float) -> Draw:
    """Between two bounds, for operators that are defined there only: logarithms, arc sines, probabilities."""
    return Draw(f"rng.uniform({low}, {high}, shape)")


def integers(below: int | str, low: int = 0) -> Draw:
    """Whole numbers from `low` up to, not including, `below`, which may be an expression: indices, labels, counts."""
    return Draw(f"rng.integers({low}, {below}, shape)")


def constant(value: float) -> Draw:
    """The same value everywhere."""
    return Draw(f"np.full(shape, {value})")


def cells(low: int, high: int, start: float = 0.1, stop: float = 0.9, width: float = 1.0) -> Draw:
    """Inside the cells of a grid, from cell `low` up to `high`: for operators with kinks or jumps on its lines.

    `start` and `stop` bound the place within a cell; two inputs with bounds apart never lie close to one another.

    >>> cells(-3, 3)
    Draw(expression='1.0 * (rng.integers(-3, 3, shape) + rng.uniform(0.1, 0.9, shape))')
    """
    return Draw(f"{width} * (rng.integers({low}, {high}, shape) + rng.uniform({start}, {stop}, shape))")


def picks(below: int) -> Draw:
    """Whole numbers below a bound, none twice in a row: places to write to."""
    return Draw(f"rng.random((*shape[:-1], {below})).argsort(-1)[..., : shape[-1]]")

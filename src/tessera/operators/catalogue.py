"""The operators: one definition each, with inputs of three sizes, their FLOPs and their bytes."""

from __future__ import annotations

import difflib
import fnmatch
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tessera.errors import TesseraError

Shape = tuple[int, ...]
SIZES = ("small", "medium", "large")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """An operator: `sizes` gives the shapes of its named tensors, `attributes` its other arguments.

    `call` names the function, `module:name`, so that the catalogue can be read without importing torch; it gets the
    tensors in order and the attributes by name. `flops` gets the shapes. The backward pass takes `backward_flops` and
    `backward_bytes` times as many: two products of the same size where the forward pass is one.
    """

    name: str
    category: str
    sizes: Mapping[str, Mapping[str, Shape]]
    call: str
    flops: Callable[[Mapping[str, Shape]], float]
    output: Callable[[Mapping[str, Shape]], Shape]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    backward_flops: float = 2.0
    backward_bytes: float = 2.0
    version: str = "1"

    def shapes(self, size: str) -> Mapping[str, Shape]:
        if size not in self.sizes:
            raise TesseraError("unknown size", got=size, allowed=self.sizes)
        return self.sizes[size]

    def work(self, size: str, which: str, itemsize: int) -> tuple[float, float]:
        """FLOPs and bytes of one call of a pass."""
        shapes = self.shapes(size)
        elements = sum(math.prod(s) for s in shapes.values()) + math.prod(self.output(shapes))
        forward, backward = {"forward": (1, 0), "backward": (0, 1), "both": (1, 1)}[which]
        flops = self.flops(shapes) * (forward + backward * self.backward_flops)
        return flops, elements * itemsize * (forward + backward * self.backward_bytes)


OPERATORS: dict[str, Operator] = {}


def register(operator: Operator) -> Operator:
    """Add an operator to the catalogue; a name is taken once."""
    if operator.name in OPERATORS:
        raise ValueError(f"operator {operator.name!r} is registered twice")
    OPERATORS[operator.name] = operator
    return operator


def find(patterns: Sequence[str]) -> list[Operator]:
    """Operators by name or glob, in the catalogue's order; an unknown name is refused with the nearest ones."""
    found: dict[str, Operator] = {}
    for pattern in patterns:
        names = fnmatch.filter(OPERATORS, pattern)
        if not names:
            near = difflib.get_close_matches(pattern, OPERATORS, n=3, cutoff=0.5)
            raise TesseraError(
                "unknown operator",
                got=pattern,
                allowed=OPERATORS,
                do=f"did you mean {' or '.join(near)}?" if near else "see `tessera list ops`",
            )
        found.update((name, OPERATORS[name]) for name in names)
    return list(found.values())


def _same(shapes: Mapping[str, Shape]) -> Shape:
    return shapes["lhs"]


def _conv2d_output(shapes: Mapping[str, Shape]) -> Shape:
    (n, _, h, w), (out, *_) = shapes["data"], shapes["weight"]
    return (n, out, h, w)


def _conv2d_flops(shapes: Mapping[str, Shape]) -> float:
    return 2.0 * math.prod(_conv2d_output(shapes)) * math.prod(shapes["weight"][1:])


register(
    Operator(
        name="add",
        category="arithmetic",
        sizes={size: {"lhs": (n, n), "rhs": (n, n)} for size, n in zip(SIZES, (64, 1024, 4096), strict=True)},
        call="operator:add",
        backward_flops=0.0,
        backward_bytes=0.0,
        flops=lambda shapes: float(math.prod(shapes["lhs"])),
        output=_same,
    )
)
register(
    Operator(
        name="matmul",
        category="gemm",
        sizes={size: {"lhs": (n, n), "rhs": (n, n)} for size, n in zip(SIZES, (64, 512, 2048), strict=True)},
        call="operator:matmul",
        flops=lambda shapes: 2.0 * math.prod(shapes["lhs"]) * shapes["rhs"][1],
        output=lambda shapes: (shapes["lhs"][0], shapes["rhs"][1]),
    )
)
register(
    Operator(
        name="conv2d",
        category="convolution",
        sizes={
            "small": {"data": (1, 16, 28, 28), "weight": (16, 16, 3, 3)},
            "medium": {"data": (1, 64, 56, 56), "weight": (64, 64, 3, 3)},
            "large": {"data": (8, 64, 56, 56), "weight": (64, 64, 3, 3)},
        },
        call="torch.nn.functional:conv2d",
        flops=_conv2d_flops,
        output=_conv2d_output,
        attributes={"stride": 1, "padding": 1},
    )
)

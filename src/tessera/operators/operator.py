"""What an operator is: its named inputs, how torch and the reference call it, its FLOPs and its bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from tessera.errors import TesseraError
from tessera.operators.draws import Draw, normal

Shape = tuple[int, ...]
Attributes = Mapping[str, Any]
SIZES = ("small", "medium", "large")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One named tensor: its shape, its kind of numbers, and how its values are drawn.

    `kind` "float" and "complex" follow the dtype of the case; any other is a dtype itself, such as "int64" or "bool".
    A float input with `grad=False` is a constant to the backward pass.
    """

    shape: Shape
    kind: str = "float"
    draw: Draw = normal
    grad: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes as it is generated, at most eight a value."""
        return 8 * math.prod(self.shape)

    @property
    def differentiable(self) -> bool:
        return self.grad and self.kind in ("float", "complex")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call of an operator, as its FLOPs and bytes are counted from it."""

    shapes: Mapping[str, Shape]
    attributes: Attributes
    outputs: tuple[Shape, ...]
    read: Mapping[str, int]
    written: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of the catalogue.

    `torch` and `reference` are expressions over the names of the inputs and attributes: `torch.add(lhs, rhs)` and, in
    NumPy and float64, `np.add(lhs, rhs)`. `sizes` gives the inputs of each size; `attributes` the other arguments, as
    values or as a function of the shapes. `flops` counts arithmetic, `moved` the bytes that have to cross memory once
    (by default all inputs and outputs); the backward pass takes `backward_flops` and `backward_bytes` times as many.

    `aliases` are other names that find it: torch's own where the catalogue has another.

    `check` says how outputs are held against the reference: by their `values`, by the `moments` of random ones, or by
    their `shape` alone. Where an output is not unique (the signs of singular vectors), `checked` is an expression over
    `out`, the outputs, and `i`, the inputs by name, that gives what is. `tolerance` widens the
    comparison, `gradient_tolerance` that of the gradients.
    """

    name: str
    category: str
    torch: str
    reference: str
    sizes: Mapping[str, Mapping[str, Input]]
    attributes: Attributes | Callable[[Mapping[str, Shape]], Attributes] = field(default_factory=dict)
    flops: Callable[[Call], float] = lambda call: 0.0
    moved: Callable[[Call], float] | None = None
    differentiable: bool = True
    backward_flops: float = 2.0
    backward_bytes: float = 2.0
    check: Literal["values", "moments", "shape"] = "values"
    checked: str = ""
    tolerance: float = 1.0
    gradient_tolerance: float = 1.0
    aliases: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("float32", "float64", "bfloat16", "float16")
    version: str = "1"

    def inputs(self, size: str, overrides: Mapping[str, Any] | None = None) -> dict[str, Input]:
        """The inputs of a size, with the shapes that a user gave instead."""
        if size not in self.sizes:
            raise TesseraError("unknown size", got=size, allowed=self.sizes)
        given = overrides or {}
        self._known(given)
        return {
            name: replace(one, shape=_shape(name, given[name])) if name in given else one
            for name, one in self.sizes[size].items()
        }

    def attributes_for(self, shapes: Mapping[str, Shape], overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The other arguments of a call on inputs of these shapes."""
        found = dict(self.attributes(shapes) if callable(self.attributes) else self.attributes)
        given = overrides or {}
        return {name: _like(value, given[name]) if name in given else value for name, value in found.items()}

    def input_names(self) -> list[str]:
        """Every name that `--input NAME=VALUE` may set."""
        inputs = self.inputs(next(iter(self.sizes)))
        shapes = {name: one.shape for name, one in inputs.items()}
        return [*inputs, *self.attributes_for(shapes)]

    def _known(self, names: Iterable[str]) -> None:
        unknown = [name for name in names if name not in (allowed := self.input_names())]
        if unknown:
            raise TesseraError(f"{self.name} has no such input", got=unknown[0], allowed=[*allowed, "dtype"])

    def work(self, call: Call, which: str) -> tuple[float, float]:
        """FLOPs and bytes of one call of a pass."""
        flops = self.flops(call)
        moved = sum(call.read.values()) + sum(call.written) if self.moved is None else self.moved(call)
        forward, backward = {"forward": (1, 0), "backward": (0, 1), "both": (1, 1)}[which]
        return flops * (forward + backward * self.backward_flops), moved * (forward + backward * self.backward_bytes)


def by_size(inputs: Callable[..., Mapping[str, Input]], *scales: Any) -> dict[str, Mapping[str, Input]]:
    """The inputs of small, medium and large, from a function of a scale (a number, or several in a tuple).

    >>> sizes = by_size(lambda n: {"x": Input(shape=(n, n))}, 64, 1024, 4096)
    >>> sizes["medium"]["x"].shape
    (1024, 1024)
    """
    return {
        size: inputs(*scale) if isinstance(scale, tuple) else inputs(scale)
        for size, scale in zip(SIZES, scales, strict=True)
    }


def _shape(name: str, value: Any) -> Shape:
    sizes = (value,) if isinstance(value, int) else value
    if not isinstance(sizes, list | tuple) or not all(isinstance(n, int) and n >= 0 for n in sizes):
        raise TesseraError(f"shape of {name}", got=value, allowed="sizes, for example (1024,1024)")
    return tuple(sizes)


def _like(default: Any, value: Any) -> Any:
    """A given attribute in the type of the one it replaces: JSON has lists where Python has tuples."""
    return tuple(value) if isinstance(default, tuple) and isinstance(value, list) else value

"""The definition of an operator: named inputs, expressions for torch and the reference, FLOPs and bytes."""

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


@dataclass(frozen=True, slots=True)
class Input:
    """One named input tensor: its shape, the distribution of its values, and their kind.

    The kinds "float" and "complex" follow the dtype of the case; any other kind is a dtype, such as "int64" or "bool".
    A float input with `grad=False` has no gradient.
    """

    shape: Shape
    draw: Draw = normal
    kind: str = "float"
    grad: bool = field(default=True, kw_only=True)

    @property
    def nbytes(self) -> int:
        """Upper bound of the size of the generated array in bytes, at eight bytes per value."""
        return 8 * math.prod(self.shape)

    @property
    def differentiable(self) -> bool:
        return self.grad and self.kind in ("float", "complex")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCall:
    """The shapes, attributes and byte counts of one call: the argument of FLOP and byte counting functions."""

    shapes: Mapping[str, Shape]
    attributes: Attributes
    outputs: tuple[Shape, ...]
    read: Mapping[str, int]
    written: tuple[int, ...]


CountFunction = Callable[[OperatorCall], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator of the catalogue.

    `torch` and `reference` are expressions over the names of the inputs and attributes: `torch.add(lhs, rhs)`, and
    `np.add(lhs, rhs)` in float64. `sizes` holds the inputs of each size; `attributes` the other arguments, as values or
    as a function of the shapes. `flops` counts arithmetic operations, `moved` the bytes read from and written to memory
    (default: all inputs and outputs once). `backward_flops` and `backward_bytes` multiply these counts for the backward
    pass.

    `setup` maps names to torch expressions that are evaluated once before timing, in order, such as prepacked weights;
    the expression `torch` may use these names.

    `aliases` are other names of the operator, such as torch's own.

    `check` selects the comparison with the reference: by `values`, by the `moments` of random outputs, or by `shape`
    only. Where an output is not unique (the signs of singular vectors), `checked` is an expression over `out` (the
    outputs) and `i` (the inputs by name) whose value is unique and is compared instead. `tolerance` and
    `gradient_tolerance` are factors on the default tolerances.
    """

    name: str
    category: str
    torch: str
    reference: str
    sizes: Mapping[str, Mapping[str, Input]]
    attributes: Attributes | Callable[[Mapping[str, Shape]], Attributes] = field(default_factory=dict)
    flops: CountFunction = lambda call: 0.0
    moved: CountFunction | None = None
    differentiable: bool = True
    backward_flops: float = 2.0
    backward_bytes: float = 2.0
    check: Literal["values", "moments", "shape"] = "values"
    checked: str = ""
    tolerance: float = 1.0
    gradient_tolerance: float = 1.0
    setup: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ("float32", "float64", "bfloat16", "float16")
    version: str = "1"

    def get_inputs(self, size: str, overrides: Mapping[str, Any] | None = None) -> dict[str, Input]:
        """Return the inputs of a size; `overrides` replaces shapes by name."""
        if size not in self.sizes:
            raise TesseraError("unknown size", got=size, allowed=self.sizes)
        shapes = overrides or {}
        self._check_names(shapes)
        return {
            name: replace(entry, shape=_parse_shape(name, shapes[name])) if name in shapes else entry
            for name, entry in self.sizes[size].items()
        }

    def get_attributes(self, shapes: Mapping[str, Shape], overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the other arguments of a call on inputs of these shapes; `overrides` replaces values by name."""
        defaults = dict(self.attributes(shapes) if callable(self.attributes) else self.attributes)
        values = overrides or {}
        return {
            name: _coerce_like(value, values[name]) if name in values else value for name, value in defaults.items()
        }

    def list_input_names(self) -> list[str]:
        """Return the names of inputs and attributes that `--input NAME=VALUE` may set."""
        inputs = self.get_inputs(next(iter(self.sizes)))
        shapes = {name: entry.shape for name, entry in inputs.items()}
        return [*inputs, *self.get_attributes(shapes)]

    def _check_names(self, names: Iterable[str]) -> None:
        unknown = [name for name in names if name not in (allowed := self.list_input_names())]
        if unknown:
            raise TesseraError(
                f"{self.name} has no input or argument of this name", got=unknown[0], allowed=[*allowed, "dtype"]
            )

    def count_work(self, call: OperatorCall, pass_name: str) -> tuple[float, float]:
        """Return the FLOPs and moved bytes of one call of a pass: forward, backward or both."""
        flops = self.flops(call)
        moved = sum(call.read.values()) + sum(call.written) if self.moved is None else self.moved(call)
        forward, backward = {"forward": (1, 0), "backward": (0, 1), "both": (1, 1)}[pass_name]
        return flops * (forward + backward * self.backward_flops), moved * (forward + backward * self.backward_bytes)


def make_sizes(inputs: Callable[..., Mapping[str, Input]], *scales: Any) -> dict[str, Mapping[str, Input]]:
    """Make the inputs of the sizes small, medium and large by calling `inputs` with each scale (a number or a tuple).

    >>> sizes = make_sizes(lambda n: {"x": Input(shape=(n, n))}, 64, 1024, 4096)
    >>> sizes["medium"]["x"].shape
    (1024, 1024)
    """
    return {
        size: inputs(*scale) if isinstance(scale, tuple) else inputs(scale)
        for size, scale in zip(SIZES, scales, strict=True)
    }


# counting functions for `Operator.flops` and `Operator.moved`; a transcendental function counts as one FLOP


def count_per_output(count: float = 1.0) -> CountFunction:
    """Return a function that counts `count` FLOPs per element of the first output."""
    return lambda call: count * math.prod(call.outputs[0])


def count_per_input(name: str, count: float = 1.0) -> CountFunction:
    """Return a function that counts `count` FLOPs per element of the input `name`, for reductions."""
    return lambda call: count * math.prod(call.shapes[name])


def count_convolution_flops(call: OperatorCall) -> float:
    """Return the FLOPs of a convolution with a `weight` (out, in, *kernel): 2 * outputs * in * kernel elements."""
    return 2.0 * math.prod(call.outputs[0]) * math.prod(call.shapes["weight"][1:])


def count_copy_bytes(call: OperatorCall) -> float:
    """Return the bytes of an operator that reads as many bytes as it writes, such as a gather or a copied slice."""
    return 2.0 * sum(call.written)


def count_no_bytes(call: OperatorCall) -> float:
    """Return zero, the bytes that a view moves."""
    return 0.0


def _parse_shape(name: str, value: Any) -> Shape:
    sizes = (value,) if isinstance(value, int) else value
    if not isinstance(sizes, list | tuple) or not all(isinstance(n, int) and n >= 0 for n in sizes):
        raise TesseraError(f"invalid shape of {name}", got=value, allowed="non-negative sizes, for example (1024,1024)")
    return tuple(sizes)


def _coerce_like(default: Any, value: Any) -> Any:
    """Convert a value to the type of the default, such as a list from JSON to a tuple."""
    return tuple(value) if isinstance(default, tuple) and isinstance(value, list) else value

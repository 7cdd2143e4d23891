"""A call of a function in a network's graph, who adds its steps, and how its tensors come to lie alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from tessera.errors import TesseraError
from tessera.models.structure import mapped, members
from tessera.spatial.network.steps import Shape, Steps, Value
from tessera.spatial.placed import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Values stand for tensors among the arguments; `uncut` is what the call gives on the uncut image."""

    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    uncut: Any

    @property
    def values(self) -> list[Value]:
        """The values among the arguments, in their order."""
        return members((self.args, self.kwargs), Value)

    @property
    def shape(self) -> Shape:
        return tuple(self.uncut.shape)

    def __call__(self, *tensors: Tensor) -> Any:
        """The function with tensors in the places of the values."""
        left = iter(tensors)
        args, kwargs = mapped((self.args, self.kwargs), lambda entry: next(left) if isinstance(entry, Value) else entry)
        return self.function(*args, **kwargs)

    def argument(self, name: str, position: int, default: Any) -> Any:
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)

    def refused(self, why: str) -> TesseraError:
        called = getattr(self.function, "__name__", str(self.function))
        do = "call it on whole images (gather_at=… names a module before it), or replace it by a module with a layer"
        return TesseraError(f"{self.name}: {called} {why}", do=do)


Handler = Callable[[Call, Steps], Any]
H = TypeVar("H", bound=Handler)
FUNCTIONS: dict[object, Handler] = {}  # by function, or by the name of a method


def handles(*functions: object) -> Callable[[H], H]:
    """Register who adds the steps of a function: `handler(call, steps)` gives the value of its result."""

    def register(handler: H) -> H:
        for function in functions:
            if function in FUNCTIONS:
                raise ValueError(f"{function} has a handler already")
            FUNCTIONS[function] = handler
        return handler

    return register


def alike(call: Call, steps: Steps) -> tuple[Kind, list[Value]]:
    """The values of a call, moved so that each rank's parts belong together, and how the result then lies."""
    values = call.values
    shape = call.shape if isinstance(call.uncut, Tensor) else values[0].shape
    full = [value for value in values if value.placed is not None and _same_pixels(value.shape, shape)]
    kinds: tuple[Kind, ...] = ("samples", "tiles", "whole")
    kind = next((kind for kind in kinds if any(value.has(kind) for value in full)), None)
    if kind is None:
        raise call.refused("spreads its tensors over one another")
    return kind, [_beside(call, steps, value, kind, shape) for value in values]


def _beside(call: Call, steps: Steps, value: Value, kind: Kind, shape: Shape) -> Value:
    """A value as it is needed beside one of this shape and kind."""
    if value.placed is None:
        pixels = value.shape[-(len(shape) - 2) :] if len(shape) > 2 else ()
        samples = value.shape[0] if len(value.shape) == len(shape) else 1
        if kind != "whole" and (samples != 1 or any(size != 1 for size in pixels)):
            raise call.refused("meets a weight that is not one number per channel")
        return value
    if _same_pixels(value.shape, shape):
        return steps.moved(value, kind)
    if value.is_spread and len(value.shape) == len(shape) and value.shape[0] == shape[0]:
        if kind == "tiles":
            return steps.shared(value, steps.placed(kind, shape))
        return steps.moved(value, kind)
    raise call.refused("spreads its tensors over one another")


def _same_pixels(shape: Shape, other: Shape) -> bool:
    """Whether two tensors differ in channels at most."""
    return len(shape) == len(other) and shape[:1] == other[:1] and shape[2:] == other[2:]

"""What a backend is: something that can run operators of the catalogue on NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tessera.errors import Refused
from tessera.operators.arrays import Array
from tessera.operators.operator import Input, Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One operator to be made ready: its inputs as arrays, its other arguments, dtype and pass."""

    operator: Operator
    inputs: Mapping[str, Input]
    arrays: Mapping[str, Array]
    attributes: Mapping[str, Any]
    dtype: str
    which: str
    seed: int

    @property
    def differentiated(self) -> tuple[str, ...]:
        """The inputs that get a gradient in this pass."""
        if self.which == "forward":
            return ()
        found = tuple(name for name, one in self.inputs.items() if one.differentiable)
        if not self.operator.differentiable or not found:
            raise Refused(f"{self.operator.name} does not differentiate", got=self.which, allowed="forward")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """An operator ready to be timed: `call` runs the pass and returns when its work is done.

    The rest is what it gives, to be checked: the outputs of the forward pass and, when there is a backward pass, the
    gradients of the inputs for the given gradients of the floating-point outputs. `shared` says that all of it lies in
    the memory of what the pass was given: views, for which nothing was copied.
    """

    call: Callable[[], Any]
    outputs: tuple[Array, ...]
    gradients: Mapping[str, Array]
    output_gradients: tuple[Array, ...] = ()
    shared: bool = False


class Backend(Protocol):
    """A framework at work in this process."""

    def preload(self) -> None:
        """Import what every operator needs, without computing: processes are forked after this."""
        ...

    def prepare(self, request: Request, expression: str) -> Prepared:
        """Make an operator ready; `expression` is how this backend writes it."""
        ...


def output_gradients(outputs: Sequence[Array]) -> tuple[Array, ...]:
    """A fixed random gradient for every floating-point output, the same on every backend."""
    rng = np.random.default_rng(1)
    return tuple(
        np.asarray(
            rng.standard_normal(out.shape) + (1j * rng.standard_normal(out.shape) if out.dtype.kind == "c" else 0)
        )
        for out in outputs
        if out.dtype.kind in "fc"
    )

"""The interface of a backend: a framework that runs operators of the catalogue on inputs given as NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from tessera.errors import Refused
from tessera.operators.arrays import Array
from tessera.operators.operator import Input, Operator


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorRequest:
    """A request to prepare an operator: its input arrays, its other arguments, its dtype and the pass to run."""

    operator: Operator
    inputs: Mapping[str, Input]
    arrays: Mapping[str, Array]
    attributes: Mapping[str, Any]
    dtype: str
    pass_name: str
    seed: int
    device: str = "cpu"

    @property
    def differentiated(self) -> tuple[str, ...]:
        """Names of the inputs that receive a gradient in this pass."""
        if self.pass_name == "forward":
            return ()
        names = tuple(name for name, one in self.inputs.items() if one.differentiable)
        if not self.operator.differentiable or not names:
            raise Refused(f"{self.operator.name} has no backward pass", got=self.pass_name, allowed="forward")
        return names


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedOperator:
    """An operator ready to be timed: `call` runs the pass and returns when its work is complete.

    The fields with results are for checking: the outputs of the forward pass and, for a backward pass, the gradients
    of the inputs and the gradients of the floating-point outputs that they were computed from. `shared` is true if all
    results are views of the inputs' memory, so that nothing was copied.
    """

    call: Callable[[], Any]
    outputs: tuple[Array, ...]
    gradients: Mapping[str, Array]
    output_gradients: tuple[Array, ...] = ()
    shared: bool = False


class Backend(Protocol):
    """Protocol of a backend whose framework is imported in this process."""

    def preload(self) -> None:
        """Import the modules that every operator requires. Compute nothing: the process is forked afterwards."""
        ...

    def prepare(self, request: OperatorRequest, expression: str) -> PreparedOperator:
        """Prepare an operator for timing; `expression` is its Python source for this backend."""
        ...


def draw_output_gradients(outputs: Sequence[Array]) -> tuple[Array, ...]:
    """Draw a fixed random gradient for every floating-point output; all backends get equal gradients."""
    rng = np.random.default_rng(1)
    return tuple(
        np.asarray(
            rng.standard_normal(out.shape) + (1j * rng.standard_normal(out.shape) if out.dtype.kind == "c" else 0)
        )
        for out in outputs
        if out.dtype.kind in "fc"
    )

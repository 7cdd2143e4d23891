"""A network cut into phases: what goes in, what each phase computes, what comes out."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx

from tessera.errors import TesseraError
from tessera.models.structure import mapped
from tessera.phased.memory.activations import Values
from tessera.phased.network.programs import Part, Program
from tessera.phased.network.skeleton import Skeleton
from tessera.phased.store.dtypes import computed_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The parts of a traced model. `widen` says that inputs of 16 bits are widened, as the weights are."""

    skeleton: Skeleton
    graph: fx.Graph
    parts: tuple[Part, ...]
    widen: bool

    def programs(self) -> list[Program]:
        """Programs for one device, with modules that no other device has."""
        model = self.skeleton.another()
        return [Program.of(part, model) for part in self.parts]

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Values:
        """The values that a call begins with, by name, as Python would bind them."""
        model = self.skeleton.model
        try:
            bound = inspect.signature(type(model).forward).bind(model, *args, **kwargs)
        except TypeError as error:
            raise TesseraError(f"the network does not take these arguments: {error}") from None
        inputs = {str(node.target): node.name for node in self.graph.nodes if node.op == "placeholder"}
        given = list(bound.arguments.items())[1:]  # after `self`
        if extra := [name for name, value in given if name not in inputs and value is not None]:
            raise TesseraError(
                "the network was traced without what may be left out of a call",
                got=extra[0],
                allowed=inputs,
                do="make it an argument without a default",
            )
        bound.apply_defaults()
        return {name: mapped(bound.arguments[argument], self._entering) for argument, name in inputs.items()}

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the values that the network gives."""
        return tuple(node.name for node in self._output.all_input_nodes)

    @property
    def _output(self) -> fx.Node:
        output: fx.Node
        [output] = (node for node in self.graph.nodes if node.op == "output")
        return output

    def result(self, values: Values) -> Any:
        """What the network gives, in the structure in which it gives it."""
        return mapped(self._output.args[0], lambda one: values[one.name] if isinstance(one, fx.Node) else one)

    def _entering(self, value: Any) -> Any:
        return value.to(computed_dtype(value.dtype)) if self.widen and isinstance(value, Tensor) else value

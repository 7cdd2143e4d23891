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
        empty = inspect.Parameter.empty
        inputs = [node for node in self.graph.nodes if node.op == "placeholder"]
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters = [
            inspect.Parameter(str(node.target), kind, default=node.args[0] if node.args else empty) for node in inputs
        ]
        try:
            bound = inspect.Signature(parameters).bind(*args, **kwargs)
        except TypeError as error:
            raise TesseraError(f"the network does not take these arguments: {error}") from None
        bound.apply_defaults()
        return {node.name: mapped(bound.arguments[str(node.target)], self._entering) for node in inputs}

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

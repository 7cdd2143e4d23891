"""The network split into phases: the inputs and outputs of each phase, and an executable program for it.

A program is a torch module with the calls of one phase. The weights of the module are set before it runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx, nn

from tessera.errors import TesseraError
from tessera.models.structure import map_structure
from tessera.phased.memory.activations import Values
from tessera.phased.network.graph import Unit, list_used_weights
from tessera.phased.network.skeleton import Skeleton
from tessera.phased.store.weights_file import get_compute_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseBoundary:
    """Values that cross the boundary of a phase: `inputs` from earlier phases, `outputs` for later phases.

    `last_use` are inputs that no later phase needs. `weights` maps the stored name of each weight to the names by which
    the phase uses it.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    last_use: tuple[str, ...]
    weights: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePart:
    """The calls of one phase, and the values that cross its boundary."""

    graph: fx.Graph
    boundary: PhaseBoundary


def split_parts(skeleton: Skeleton, graph: fx.Graph, groups: Sequence[Sequence[Unit]]) -> list[PhasePart]:
    """Return the part of every phase; `groups` holds the units of each phase."""
    [output] = (node for node in graph.nodes if node.op == "output")
    phase_of = {node: index for index, group in enumerate(groups) for unit in group for node in unit.nodes}
    last = len(groups) - 1
    final = set(output.all_input_nodes)
    needed_until: dict[
        fx.Node, int
    ] = {}  # number of the last phase that reads each value; the number of phases for outputs of the network
    for node in graph.nodes:
        users = [phase_of[user] for user in node.users if user in phase_of]
        needed_until[node] = last + 1 if node in final else max(users, default=-1)
    parts = []
    for index, group in enumerate(groups):
        nodes = [node for unit in group for node in unit.nodes]
        inside = set(nodes)
        if index == last:
            nodes += [node for node in output.all_input_nodes if node.op == "get_attr"]
        read = dict.fromkeys(source for node in nodes for source in node.all_input_nodes)
        inputs = [node for node in read if node not in inside and node.op != "get_attr"]
        outputs = [node for node in nodes if needed_until[node] > index]
        parts.append(
            PhasePart(
                graph=_build_subgraph(nodes, inputs, outputs),
                boundary=PhaseBoundary(
                    inputs=tuple(node.name for node in inputs),
                    outputs=tuple(node.name for node in outputs),
                    last_use=tuple(node.name for node in inputs if needed_until[node] <= index),
                    weights=_collect_weight_names(skeleton, nodes),
                ),
            )
        )
    return parts


class PhaseProgram:
    """An executable phase. Its module has torch's layers without weights, and can be sent to another process."""

    def __init__(self, module: fx.GraphModule, boundary: PhaseBoundary) -> None:
        self.module, self.boundary = module, boundary
        self._places = {
            stored: [self._find_table(name) for name in names] for stored, names in boundary.weights.items()
        }

    @classmethod
    def from_part(cls, part: PhasePart, model: nn.Module) -> PhaseProgram:
        """Build a program that uses the modules of `model`; programs that run concurrently need separate models."""
        return cls(fx.GraphModule(model, part.graph), part.boundary)

    def run(self, values: dict[str, Any]) -> dict[str, Any]:
        """Run the phase: return the values after it, for the values before it, by name."""
        inputs = [values[name] for name in self.boundary.inputs]
        for name in self.boundary.last_use:
            del values[name]
        return values | dict(zip(self.boundary.outputs, self.module.forward(inputs), strict=True))

    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Set the weights of the program's modules, without a copy."""
        for stored, places in self._places.items():
            for table, name in places:
                table[name] = weights[stored]

    def _find_table(self, name: str) -> tuple[dict[str, Tensor | None], str]:
        owner, _, attribute = name.rpartition(".")
        module = self.module.get_submodule(owner)
        # bypasses nn.Module, which would require an nn.Parameter
        table: dict[str, Tensor | None] = module._parameters if attribute in module._parameters else module._buffers  # type: ignore[assignment]
        return table, attribute


def _build_subgraph(nodes: Sequence[fx.Node], inputs: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> fx.Graph:
    """Build the graph of a phase. It pops its inputs from a list, so that an input is freed after its last use."""
    graph = fx.Graph()
    remaining = graph.placeholder("remaining")
    copies = {node: graph.call_method("pop", (remaining,)) for node in reversed(inputs)}
    for node in nodes:
        for source in node.all_input_nodes:
            if source.op == "get_attr" and source not in copies:
                copies[source] = graph.node_copy(source)
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in outputs))
    return graph


def _collect_weight_names(skeleton: Skeleton, nodes: Sequence[fx.Node]) -> dict[str, tuple[str, ...]]:
    used: dict[str, dict[str, None]] = {}
    for node in nodes:
        names = [str(node.target)] if node.op == "get_attr" else list_used_weights(skeleton.model, node)
        for name in names:
            if name in skeleton.stored_name:
                used.setdefault(skeleton.stored_name[name], {})[name] = None
    return {stored: tuple(names) for stored, names in used.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasedNetwork:
    """A traced model split into parts, one per phase. With `widen`, 16-bit inputs are converted to float32."""

    skeleton: Skeleton
    graph: fx.Graph
    parts: tuple[PhasePart, ...]
    widen: bool

    def build_programs(self) -> list[PhaseProgram]:
        """Build the programs of one device, with a separate copy of the modules."""
        model = self.skeleton.copy_model()
        return [PhaseProgram.from_part(part, model) for part in self.parts]

    def bind_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Values:
        """Bind the arguments of a call to the inputs of the graph, as Python would."""
        model = self.skeleton.model
        try:
            bound = inspect.signature(type(model).forward).bind(model, *args, **kwargs)
        except TypeError as error:
            raise TesseraError(f"the arguments do not match the `forward` of the network: {error}") from None
        inputs = {str(node.target): node.name for node in self.graph.nodes if node.op == "placeholder"}
        arguments = list(bound.arguments.items())[1:]  # after `self`
        if extra := [name for name, value in arguments if name not in inputs and value is not None]:
            raise TesseraError(
                "PhasedModel does not support optional arguments of the network",
                got=extra[0],
                allowed=inputs,
                do="remove the default value of this argument in `forward`",
            )
        bound.apply_defaults()
        return {name: map_structure(bound.arguments[argument], self._widen_input) for argument, name in inputs.items()}

    @property
    def results(self) -> tuple[str, ...]:
        """Names of the values that the network returns."""
        return tuple(node.name for node in self._output.all_input_nodes)

    @property
    def _output(self) -> fx.Node:
        output: fx.Node
        [output] = (node for node in self.graph.nodes if node.op == "output")
        return output

    def build_result(self, values: Values) -> Any:
        """Return the result of the network, in the structure (tuple, dict, ...) that its `forward` returns."""
        results = self._output.args[0]
        return map_structure(results, lambda leaf: values[leaf.name] if isinstance(leaf, fx.Node) else leaf)

    def _widen_input(self, value: Any) -> Any:
        return value.to(get_compute_dtype(value.dtype)) if self.widen and isinstance(value, Tensor) else value

"""The calls of each phase as a small module of its own, whose weights are set from outside before it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, fx, nn

from tessera.phased.network.graph import Unit, used_weights
from tessera.phased.network.skeleton import Skeleton


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """What crosses into a phase and out of it: `inputs` come from earlier phases, `outputs` are needed by later ones.

    `last_use` are the values that nobody needs after this phase. `weights` are stored names, each with the names that
    this phase reads it by.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    last_use: tuple[str, ...]
    weights: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The calls of one phase, and what crosses its border."""

    graph: fx.Graph
    border: Border


def parts_of(skeleton: Skeleton, graph: fx.Graph, groups: Sequence[Sequence[Unit]]) -> list[Part]:
    """The part of every phase; `groups` are the units of each."""
    [output] = (node for node in graph.nodes if node.op == "output")
    phase_of = {node: index for index, group in enumerate(groups) for unit in group for node in unit.nodes}
    last = len(groups) - 1
    final = set(output.all_input_nodes)
    needed_until: dict[fx.Node, int] = {}  # the last phase that reads a value; one past the end for the outputs
    for node in graph.nodes:
        users = [phase_of[user] for user in node.users if user in phase_of]
        needed_until[node] = last + 1 if node in final else max(users, default=-1)
    parts = []
    for index, group in enumerate(groups):
        nodes = [node for unit in group for node in unit.nodes]
        own = set(nodes)
        if index == last:
            nodes += [node for node in output.all_input_nodes if node.op == "get_attr"]
        read = dict.fromkeys(source for node in nodes for source in node.all_input_nodes)
        inputs = [node for node in read if node not in own and node.op != "get_attr"]
        outputs = [node for node in nodes if needed_until[node] > index]
        parts.append(
            Part(
                graph=_subgraph(nodes, inputs, outputs),
                border=Border(
                    inputs=tuple(node.name for node in inputs),
                    outputs=tuple(node.name for node in outputs),
                    last_use=tuple(node.name for node in inputs if needed_until[node] <= index),
                    weights=_weights(skeleton, nodes),
                ),
            )
        )
    return parts


class Program:
    """A part that can run. Its module can be sent to another process; it holds torch's own layers and no weights."""

    def __init__(self, module: fx.GraphModule, border: Border) -> None:
        self.module, self.border = module, border
        self._places = {stored: [self._place(name) for name in names] for stored, names in border.weights.items()}

    @classmethod
    def of(cls, part: Part, model: nn.Module) -> Program:
        """A program with modules of this model; programs that run at the same time need models of their own."""
        return cls(fx.GraphModule(model, part.graph), part.border)

    def run(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values after the phase, of those before it."""
        inputs = [values[name] for name in self.border.inputs]
        for name in self.border.last_use:
            del values[name]
        return values | dict(zip(self.border.outputs, self.module.forward(inputs), strict=True))

    def set_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Let the modules compute with these tensors as they lie; nothing is copied."""
        for stored, places in self._places.items():
            for held, name in places:
                held[name] = weights[stored]

    def _place(self, name: str) -> tuple[dict[str, Tensor | None], str]:
        owner, _, own = name.rpartition(".")
        module = self.module.get_submodule(owner)
        # straight into the module's own table: a parameter of another kind than nn.Parameter is fine for computing
        table: dict[str, Tensor | None] = module._parameters if own in module._parameters else module._buffers  # type: ignore[assignment]
        return table, own


def _subgraph(nodes: Sequence[fx.Node], inputs: Sequence[fx.Node], outputs: Sequence[fx.Node]) -> fx.Graph:
    """The calls of a phase, which takes its inputs out of a list: what it needs no more is freed while it runs."""
    graph = fx.Graph()
    given = graph.placeholder("given")
    copies = {node: graph.call_method("pop", (given,)) for node in reversed(inputs)}
    for node in nodes:
        for source in node.all_input_nodes:
            if source.op == "get_attr" and source not in copies:
                copies[source] = graph.node_copy(source)
        if node not in copies:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[node] for node in outputs))
    return graph


def _weights(skeleton: Skeleton, nodes: Sequence[fx.Node]) -> dict[str, tuple[str, ...]]:
    found: dict[str, dict[str, None]] = {}
    for node in nodes:
        names = [str(node.target)] if node.op == "get_attr" else used_weights(skeleton.model, node)
        for name in names:
            if name in skeleton.stored_name:
                found.setdefault(skeleton.stored_name[name], {})[name] = None
    return {stored: tuple(names) for stored, names in found.items()}

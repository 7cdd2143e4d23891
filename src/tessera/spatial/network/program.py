"""A network as a rank runs it: the steps from its tile of the image to its part of the output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter, getitem
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from tessera.errors import TesseraError
from tessera.models.structure import mapped, members
from tessera.spatial.network import functions as _functions  # noqa: F401  (fills the table)
from tessera.spatial.network.calls import FUNCTIONS, Call
from tessera.spatial.network.steps import Steps, Value
from tessera.spatial.network.trace import entered, uncut_results
from tessera.spatial.placed import Settings


class Program(nn.Module):
    """The steps for images of one shape and dtype; their buffers are its own and stay for the next round.

    `outputs` is what the network gives, with values for tensors. `summed` names the weights of which each rank finds
    a part of the gradient.
    """

    def __init__(self, model: nn.Module, steps: Steps, outputs: Any) -> None:
        super().__init__()
        self.model, self.outputs, self.summed = model, outputs, steps.summed_weights()
        self._steps, self._slots = steps.found, steps.slots
        needed = {value.slot for value in members(outputs, Value)}
        freed = []
        for step in reversed(self._steps):
            last = {*step.inputs, step.output} - needed
            freed.append(sorted(last))
            needed |= last
        self._freed = freed[::-1]

    def forward(self, tile: Tensor) -> Any:
        tensors: list[Any] = [None] * self._slots
        tensors[0] = tile
        for step, freed in zip(self._steps, self._freed, strict=True):
            tensors[step.output] = step.call(*[tensors[slot] for slot in step.inputs])
            for slot in freed:  # nobody reads it any more
                tensors[slot] = None
        return mapped(self.outputs, lambda known: tensors[known.slot] if isinstance(known, Value) else known)


def program_of(
    model: nn.Module,
    graph: fx.Graph,
    shape: Sequence[int],
    dtype: torch.dtype,
    settings: Settings,
    gather_at: str | None = None,
) -> Program:
    """The program of a traced model for images of a shape; every rank asks for it at the same point."""
    return _Reader(model, uncut_results(model, graph, shape, dtype), settings, gather_at).read(graph)


class _Reader:
    """Goes through a graph once and finds the steps of its nodes."""

    def __init__(self, model: nn.Module, uncut: dict[fx.Node, Any], settings: Settings, gather_at: str | None) -> None:
        self._model, self._uncut, self._gather_at = model, uncut, gather_at
        self._steps = Steps(model, settings)
        self._known: dict[fx.Node, Any] = {}  # values, or what does not depend on pixels: sizes, numbers
        self._gathered = False

    def read(self, graph: fx.Graph) -> Program:
        for node in graph.nodes:
            if node.op == "output":
                return Program(self._model, self._steps, map_arg(node.args[0], self._known.__getitem__))
            self._gathered = self._gathered or self._gather_at in entered(node)
            if self._gathered:
                for source in node.all_input_nodes:
                    self._known[source] = mapped(self._known[source], self._gather)
            self._known[node] = self._read(node)
        raise AssertionError("a graph ends with its output")

    def _gather(self, known: Any) -> Any:
        """From the gathering on, every rank has whole images; whoever uses a value later, uses the gathered one."""
        return self._steps.moved(known, "samples") if isinstance(known, Value) and known.has("tiles") else known

    def _read(self, node: fx.Node) -> Any:
        uncut = self._uncut[node]
        if not members(uncut, Tensor):
            if isinstance(uncut, torch.device):
                raise TesseraError(f"{node.name}: the network asks where its tensors are", do="leave the device out")
            return uncut
        if node.op == "placeholder":
            return self._steps.value(uncut.shape, self._steps.placed("tiles", uncut.shape))
        if node.op == "get_attr":
            read: Callable[[], Tensor] = partial(attrgetter(str(node.target)), self._model)
            return self._steps.weight(read(), read, node.name)
        args, kwargs = map_arg((node.args, node.kwargs), self._known.__getitem__)
        if node.op == "call_module":
            return self._module(str(node.target), args, kwargs, uncut)
        return self._function(node, args, dict(kwargs), uncut)

    def _module(self, name: str, args: Any, kwargs: Any, uncut: Any) -> Value:
        module = self._model.get_submodule(name)
        given = [value for value in members((args, kwargs), Value) if value.placed is not None]
        if len(given) != 1 or len(args) != 1 or kwargs or not isinstance(uncut, Tensor):
            called = f"{name} ({type(module).__name__})"
            raise TesseraError(f"{called} does not make one activation of another", do="replace it by layers that do")
        return self._steps.layer(name, module, given[0], tuple(uncut.shape))

    def _function(self, node: fx.Node, args: Any, kwargs: dict[str, Any], uncut: Any) -> Any:
        if node.target is getitem and isinstance(args[0], tuple):
            return args[0][args[1]]
        if isinstance(node.target, type) and issubclass(node.target, tuple):  # named: a structure of values
            return node.target(*args, **kwargs)
        function: Any = getattr(Tensor, node.target) if isinstance(node.target, str) else node.target
        name = ".".join((*entered(node)[-1:], node.name))
        call = Call(name=name, function=function, args=args, kwargs=kwargs, uncut=uncut)
        values = call.values
        if values and all(value.placed is None for value in values):
            return self._steps.add(name, call, values, uncut.shape, None)
        if not values or node.target not in FUNCTIONS:
            raise call.refused("is not known on images that are cut")
        return FUNCTIONS[node.target](call, self._steps)

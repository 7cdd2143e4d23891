"""The calls of a network in order, and the smallest parts that phases are made of."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from tessera.errors import TesseraError, first_line
from tessera.phased.network.skeleton import Skeleton
from tessera.phased.network.tracer import Tracer
from tessera.phased.network.writes import refuse_writes

_one_at_a_time = threading.Lock()  # torch.fx patches every module of the process while it traces


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One layer with weights and the calls up to the next such layer: what no cut divides.

    `weights` are the names by which they are stored.
    """

    nodes: tuple[fx.Node, ...]
    weights: tuple[str, ...]
    module: str


def trace(skeleton: Skeleton) -> fx.Graph:
    """The calls that a model makes, as a graph."""
    name = type(skeleton.model).__name__
    try:
        with _one_at_a_time:
            graph = Tracer().trace(skeleton.model)
    except Exception as error:
        raise TesseraError(
            f"torch.fx cannot trace {name}: {first_line(error)}",
            do="keep branches and loops on data out of `forward`, or give the part of the model that is traceable",
        ) from error
    for node in graph.nodes:
        if node.op == "get_attr" and _lacks_values(skeleton, str(node.target)):
            raise TesseraError(
                f"{name} computes a constant from its weights outside of torch.fx's sight ({node.target})"
            )
    refuse_writes(skeleton.model, graph)
    return graph


def units_of(skeleton: Skeleton, graph: fx.Graph) -> list[Unit]:
    """The units of a graph, in the order of their calls; a network without weights has none."""
    stored = skeleton.stored_name
    units: list[Unit] = []
    nodes: list[fx.Node] = []
    weights: list[str] = []
    module = ""

    def close() -> None:
        units.append(Unit(nodes=tuple(nodes), weights=tuple(dict.fromkeys(weights)), module=module))
        nodes.clear()
        weights.clear()

    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            continue
        own = [stored[name] for name in used_weights(skeleton.model, node) if name in stored]
        if own and node.op != "output":
            if weights:
                close()
            module = _module_of(node)
        weights += own
        if node.op != "output":
            nodes.append(node)
    if not units and not weights:
        raise TesseraError("this network has no weights to stream", got=type(skeleton.model).__name__)
    close()
    return units


def used_weights(model: nn.Module, node: fx.Node) -> list[str]:
    """The full names of the parameters and buffers that one call reads."""
    found = [str(source.target) for source in node.all_input_nodes if source.op == "get_attr"]
    if node.op == "call_module":
        called = model.get_submodule(str(node.target))
        if isinstance(called, nn.RNNBase):
            raise TesseraError(
                f"{node.target} is recurrent: such layers hold their weights where they cannot be changed"
            )
        own = (*called.named_parameters(remove_duplicate=False), *called.named_buffers(remove_duplicate=False))
        found += [f"{node.target}.{name}" for name, _ in own]
    return found


def flops_of(skeleton: Skeleton, graph: fx.Graph, units: Sequence[Unit], shapes: Sequence[Sequence[int]]) -> list[int]:
    """FLOPs of every unit for inputs of these shapes, counted on the meta device by torch's own counter."""
    from torch.utils.flop_counter import FlopCounterMode

    owner = {node: index for index, unit in enumerate(units) for node in unit.nodes}
    found = [0] * len(units)

    class Counting(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            counter = FlopCounterMode(display=False)
            with counter:
                result = super().run_node(n)
            if n in owner:
                found[owner[n]] += counter.get_total_flops()
            return result

        def get_attr(self, target: object, args: object, kwargs: object) -> object:
            value = super().get_attr(target, args, kwargs)  # type: ignore[arg-type]
            return value.to("meta") if isinstance(value, Tensor) else value

    run = Counting(skeleton.model, graph=graph)
    run.extra_traceback = False
    dtype = input_dtype(skeleton)
    inputs = [torch.empty(tuple(shape), dtype=dtype, device="meta") for shape in shapes]
    try:
        with torch.no_grad():
            run.run(*inputs)
    except Exception as error:
        name, told = type(skeleton.model).__name__, first_line(error)
        if isinstance(error, NotImplementedError) or "meta" in told:
            raise TesseraError(
                f"{name} asks for the values of tensors, so that its FLOPs cannot be counted beforehand: {told}",
                do="make a PhasedModel of it without `input_shape`",
            ) from error
        sizes = ", ".join("x".join(map(str, shape)) for shape in shapes)
        raise TesseraError(f"{name} does not run on {sizes}: {told}") from error
    return found


def input_dtype(skeleton: Skeleton) -> torch.dtype:
    """The dtype of the first floating weight of a model."""
    for names in skeleton.names:
        tensor = skeleton.tensor(names[0])
        if tensor.is_floating_point():
            return tensor.dtype
    return torch.get_default_dtype()


def _module_of(node: fx.Node) -> str:
    """The innermost module that a call is made in, by the name that a user knows; the root has none."""
    if node.op == "call_module":
        return str(node.target)
    stack: dict[str, tuple[str, object]] = node.meta.get("nn_module_stack", {})
    return [name for name, _ in stack.values()][-1] if stack else node.name


def _lacks_values(skeleton: Skeleton, target: str) -> bool:
    """Whether this is a constant that tracing made of weights on the meta device."""
    if target in skeleton.stored_name:
        return False
    owner, _, own = target.rpartition(".")
    value = getattr(skeleton.model.get_submodule(owner), own)
    return isinstance(value, Tensor) and value.is_meta

"""The traced calls of a network as a graph, and its units: the smallest parts that phases are composed of."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn

from tessera.errors import TesseraError, get_first_line
from tessera.models.tracing import InPlaceTracer
from tessera.phased.network.skeleton import Skeleton
from tessera.phased.network.writes import refuse_writes

_trace_lock = threading.Lock()  # torch.fx patches every module of the process while it traces


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One layer with weights and the calls up to the next such layer; a unit is never split.

    `weights` are the stored names of the unit's weights.
    """

    nodes: tuple[fx.Node, ...]
    weights: tuple[str, ...]
    module: str


def trace_model(skeleton: Skeleton) -> fx.Graph:
    """Trace the calls of a model with torch.fx; raise an error for models that cannot run in phases."""
    name = type(skeleton.model).__name__
    try:
        with _trace_lock:
            graph = PhaseTracer().trace(skeleton.model)
    except Exception as error:
        raise TesseraError(
            f"torch.fx cannot trace {name}: {get_first_line(error)}",
            do="keep branches and loops on data out of `forward`, or pass the part of the model that can be traced",
        ) from error
    for node in graph.nodes:
        if node.op == "get_attr" and _is_valueless_constant(skeleton, str(node.target)):
            raise TesseraError(
                f"{name} computes the constant {node.target} from its weights, which PhasedModel does not support"
            )
    refuse_writes(skeleton.model, graph)
    return graph


def split_units(skeleton: Skeleton, graph: fx.Graph) -> list[Unit]:
    """Split a graph into units, in the order of their calls."""
    stored = skeleton.stored_name
    units: list[Unit] = []
    nodes: list[fx.Node] = []
    weights: list[str] = []
    module = ""

    def end_unit() -> None:
        units.append(Unit(nodes=tuple(nodes), weights=tuple(dict.fromkeys(weights)), module=module))
        nodes.clear()
        weights.clear()

    for node in graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            continue
        used = [stored[name] for name in list_used_weights(skeleton.model, node) if name in stored]
        if used and node.op != "output":
            if weights:
                end_unit()
            module = _get_module_name(node)
        weights += used
        if node.op != "output":
            nodes.append(node)
    if not units and not weights:
        raise TesseraError("the network has no weights to stream", got=type(skeleton.model).__name__)
    end_unit()
    return units


def list_used_weights(model: nn.Module, node: fx.Node) -> list[str]:
    """Return the full names of the parameters and buffers that one call reads."""
    names = [str(source.target) for source in node.all_input_nodes if source.op == "get_attr"]
    if node.op == "call_module":
        called = model.get_submodule(str(node.target))
        if isinstance(called, nn.RNNBase):
            raise TesseraError(f"{node.target} is a recurrent layer, which PhasedModel does not support")
        own = (*called.named_parameters(remove_duplicate=False), *called.named_buffers(remove_duplicate=False))
        names += [f"{node.target}.{name}" for name, _ in own]
    return names


def count_unit_flops(
    skeleton: Skeleton, graph: fx.Graph, units: Sequence[Unit], shapes: Sequence[Sequence[int]]
) -> list[int]:
    """Count the FLOPs of every unit for inputs of these shapes, with torch's FLOP counter on the meta device."""
    from torch.utils.flop_counter import FlopCounterMode

    owner = {node: index for index, unit in enumerate(units) for node in unit.nodes}
    flops = [0] * len(units)

    class FlopCounter(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            counter = FlopCounterMode(display=False)
            with counter:
                result = super().run_node(n)
            if n in owner:
                flops[owner[n]] += counter.get_total_flops()
            return result

        def get_attr(self, target: object, args: object, kwargs: object) -> object:
            value = super().get_attr(target, args, kwargs)  # type: ignore[arg-type]
            return value.to("meta") if isinstance(value, Tensor) else value

    interpreter = FlopCounter(skeleton.model, graph=graph)
    interpreter.extra_traceback = False
    dtype = get_input_dtype(skeleton)
    inputs = [torch.empty(tuple(shape), dtype=dtype, device="meta") for shape in shapes]
    try:
        with torch.no_grad():
            interpreter.run(*inputs)
    except Exception as error:
        name, reason = type(skeleton.model).__name__, get_first_line(error)
        if isinstance(error, NotImplementedError) or "meta" in reason:
            raise TesseraError(
                f"cannot count the FLOPs of {name}, because it reads values of tensors: {reason}",
                do="create the PhasedModel without `input_shape`",
            ) from error
        sizes = ", ".join("x".join(map(str, shape)) for shape in shapes)
        raise TesseraError(f"{name} does not run on inputs of shape {sizes}: {reason}") from error
    return flops


def get_input_dtype(skeleton: Skeleton) -> torch.dtype:
    """Return the dtype of the first floating-point weight of a model."""
    for names in skeleton.names:
        tensor = skeleton.get_tensor(names[0])
        if tensor.is_floating_point():
            return tensor.dtype
    return torch.get_default_dtype()


def _get_module_name(node: fx.Node) -> str:
    """Return the name of the innermost module that makes a call; the node's name if that is the root module."""
    if node.op == "call_module":
        return str(node.target)
    stack: dict[str, tuple[str, object]] = node.meta.get("nn_module_stack", {})
    return [name for name, _ in stack.values()][-1] if stack else node.name


def _is_valueless_constant(skeleton: Skeleton, target: str) -> bool:
    """Return whether `target` is a constant without values: tracing computed it from weights on the meta device."""
    if target in skeleton.stored_name:
        return False
    owner, _, name = target.rpartition(".")
    value = getattr(skeleton.model.get_submodule(owner), name)
    return isinstance(value, Tensor) and value.is_meta


class _NoArguments(tuple[Any, ...]):
    """Empty `*args` of a call. A subclass, because torch.fx unpacks plain tuples."""


class _NoKeywords(dict[str, Any]):
    """Empty `**kwargs` of a call."""


class PhaseTracer(InPlaceTracer):
    """A tracer that records calls down to torch's own modules, for a call with the required arguments only.

    Arguments that default to None, `*args` and `**kwargs` are traced as omitted: a traced value would fix the
    branch of `if mask is not None`.
    """

    proxy_buffer_attributes = True  # else values computed from a meta buffer would become constants without values

    def create_proxy(
        self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *rest: Any, **more: Any
    ) -> Any:
        if kind == "placeholder":
            if str(target).startswith("**"):
                return _NoKeywords()
            if str(target).startswith("*"):
                return _NoArguments()
            if args and args[0] is None:
                return None
        return super().create_proxy(kind, target, args, kwargs, *rest, **more)

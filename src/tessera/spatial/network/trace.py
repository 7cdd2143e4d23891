"""A model as a graph of calls, and what each call would give on the uncut image."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor, fx, nn

from tessera.errors import TesseraError, first_line
from tessera.models.tracing import WritingTracer
from tessera.spatial.layers.layer import LAYERS

_one_at_a_time = threading.Lock()


class _Tracer(WritingTracer):
    """Follows a model down to the modules that have a layer, and to torch's own."""

    proxy_buffer_attributes = True  # else what is computed from a buffer would be a constant of today's value

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        kind = type(module)
        has_layer = any(base in LAYERS and kind.forward is base.forward for base in kind.__mro__)
        return has_layer or super().is_leaf_module(module, name)


def is_leaf(module: nn.Module) -> bool:
    """Whether tracing stops at a module: it has a layer, or is one of torch's own."""
    return _Tracer().is_leaf_module(module, "")


def trace(model: nn.Module) -> fx.Graph:
    """The calls that a model makes, in its present mode of training: branches on it are taken here, once.

    Meanwhile torch.fx patches every module of the process. Ranks that are threads must not compute before all of
    them have traced.
    """
    try:
        with _one_at_a_time:
            return _Tracer().trace(model)
    except Exception as error:
        raise TesseraError(
            f"torch.fx cannot trace {type(model).__name__}: {first_line(error)}",
            do="keep branches and loops on data out of `forward`, or give only the part of the model that is traceable",
        ) from error


def uncut_results(model: nn.Module, graph: fx.Graph, shape: Sequence[int], dtype: torch.dtype) -> dict[fx.Node, Any]:
    """What every node gives for an image of a shape: tensors without memory, sizes, numbers."""
    image = torch.empty(tuple(shape), dtype=dtype, device="meta")
    own = chain(model.named_parameters(), model.named_buffers())
    bare = {f"model.{name}": _without_memory(tensor) for name, tensor in own}
    try:
        with torch.no_grad():
            found: dict[fx.Node, Any] = torch.func.functional_call(_Uncut(model, graph), bare, (image,))
    except Exception as error:
        size = "x".join(map(str, shape))
        raise TesseraError(f"{type(model).__name__} does not run on images of {size}: {first_line(error)}") from error
    return found


def entered(node: fx.Node) -> list[str]:
    """The modules inside of which a call is made, outermost first, a module that is called included."""
    stack: dict[str, tuple[str, Any]] = node.meta.get("nn_module_stack", {})
    return [name for name, _ in stack.values()]


class _Uncut(nn.Module):
    """Runs a graph and keeps what every node gave."""

    def __init__(self, model: nn.Module, graph: fx.Graph) -> None:
        super().__init__()
        self.model, self.graph = model, graph

    def forward(self, image: Tensor) -> dict[fx.Node, Any]:
        run = _Interpreter(self.model, garbage_collect_values=False, graph=self.graph)
        run.extra_traceback = False
        run.run(image)
        return run.env


class _Interpreter(fx.Interpreter):
    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Constants that tracing found have memory; nothing here should."""
        found = super().get_attr(target, args, kwargs)
        return _without_memory(found) if isinstance(found, Tensor) else found


def _without_memory(tensor: Tensor) -> Tensor:
    """The same on the meta device; counters are copied, as normalisations read them: one number fits any device."""
    is_counter = tensor.dim() == 0 and not tensor.is_floating_point()
    return tensor.clone() if is_counter else torch.empty_like(tensor, device="meta")

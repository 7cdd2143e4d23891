"""The layers of a network as the grid sees them, from the model's graph with batch norms folded and ReLUs fused."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tessera.coregrid.convolution import Convolution
from tessera.errors import TesseraError
from tessera.models.registry import image_size_of, lay_out

if TYPE_CHECKING:
    from torch import fx, nn

Kind = Literal["conv", "max_pool", "global_pool", "linear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One operation; a pool has the window of a convolution from its channels to as many, a linear one is 1x1."""

    name: str
    kind: Kind
    conv: Convolution


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """Two ways from one tensor that are added up in the end; a shortcut without layers is the tensor itself."""

    name: str
    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...]


Part = Layer | Residual


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A network for a batch of images: its parts one after the other."""

    name: str
    batch: int
    parts: tuple[Part, ...]

    @property
    def layers(self) -> list[Layer]:
        """All layers, in the order in which they run."""
        found: list[Layer] = []
        for part in self.parts:
            found += [part] if isinstance(part, Layer) else [*part.body, *part.shortcut]
        return found

    @property
    def convolutions(self) -> list[Layer]:
        return [layer for layer in self.layers if layer.kind == "conv"]


def network(name: str, batch: int, image_size: int | None = None) -> Network:
    """A model of the registry as parts; one whose graph is no chain of layers and residual blocks is refused."""
    graph = _graph(name, batch, image_size)
    last = next(iter(reversed(graph.graph.nodes))).args[0]
    return Network(name=name, batch=batch, parts=tuple(_parts(graph, last, None)))


def convolutions(name: str, batch: int, image_size: int | None = None) -> list[Layer]:
    """Every convolution of a model, whatever its graph, in the order in which they run."""
    from torch import nn

    graph = _graph(name, batch, image_size)
    found = []
    for node in graph.graph.nodes:
        module = graph.get_submodule(str(node.target)) if node.op == "call_module" else None
        if isinstance(module, nn.Conv2d):
            found.append(Layer(name=str(node.target), kind="conv", conv=_convolution(node, module)))
    return found


def _graph(name: str, batch: int, image_size: int | None) -> fx.GraphModule:
    """The model's graph with the shape of every value, from a pass on the meta device."""
    import torch
    from torch import fx
    from torch.fx.passes.shape_prop import ShapeProp

    size = image_size or image_size_of(name)
    module = lay_out(name).eval()
    try:
        traced = fx.symbolic_trace(module)
    except (fx.proxy.TraceError, TypeError) as error:
        raise TesseraError("a model without a static graph", got=name, do=f"use another model ({error})") from None
    with torch.device("meta"):
        ShapeProp(traced.to("meta")).propagate(torch.empty(batch, 3, size, size))
    return traced


def _parts(graph: fx.GraphModule, last: Any, stop: Any) -> Sequence[Part]:
    """The parts between two nodes of a graph, in the order in which they run."""
    found: list[Part] = []
    node = last
    while node is not stop and node.op != "placeholder":
        if node.target in (operator.add, operator.iadd):
            fork, part = _residual(graph, node)
            found.append(part)
            node = fork
            continue
        layer = _layer(graph, node)
        if layer is not None:
            found.append(layer)
        node = node.args[0]
    return found[::-1]


def _residual(graph: fx.GraphModule, node: fx.Node) -> tuple[Any, Residual]:
    """The block that an addition ends, and the value that both its ways begin with."""
    long, short = node.args
    ways = [_ancestors(long), _ancestors(short)]
    fork = next(value for value in ways[1] if value in set(ways[0]))
    body, shortcut = (tuple(_parts(graph, way, fork)) for way in (long, short))
    if len(body) < len(shortcut):
        body, shortcut = shortcut, body
    if any(isinstance(part, Residual) for part in (*body, *shortcut)):
        raise TesseraError("a residual block within another is not planned", got=node.name)
    layers = [part for part in body if isinstance(part, Layer)], [p for p in shortcut if isinstance(p, Layer)]
    return fork, Residual(name=str(node.name), body=tuple(layers[0]), shortcut=tuple(layers[1]))


def _ancestors(node: Any) -> list[Any]:
    found = []
    while True:
        found.append(node)
        if node.op == "placeholder":
            return found
        node = node.args[0]


def _layer(graph: fx.GraphModule, node: fx.Node) -> Layer | None:
    """What a node costs; None for what is folded, fused or a mere view. Other operations are refused."""
    from torch import nn

    module = graph.get_submodule(str(node.target)) if node.op == "call_module" else None
    name = str(node.target)
    if isinstance(module, nn.Conv2d):
        return Layer(name=name, kind="conv", conv=_convolution(node, module))
    if isinstance(module, nn.MaxPool2d):
        return Layer(name=name, kind="max_pool", conv=_convolution(node, module))
    batch, channels, *image = _shape(node.args[0])
    if isinstance(module, nn.AdaptiveAvgPool2d) and _shape(node) == _shape(node.args[0]):
        return None  # every pixel is its own average
    if isinstance(module, nn.AdaptiveAvgPool2d) and _shape(node)[2:] == (1, 1):
        whole = _as_convolution(batch, image, channels, channels, kernel=tuple(image))
        return Layer(name=name, kind="global_pool", conv=whole)
    if isinstance(module, nn.Linear):
        point = _as_convolution(batch, (1, 1), channels, module.out_features, kernel=(1, 1))
        return Layer(name=name, kind="linear", conv=point)
    if isinstance(module, nn.BatchNorm2d | nn.ReLU | nn.ReLU6 | nn.Identity | nn.Dropout):
        return None
    if node.op == "call_method" and node.target in ("flatten", "reshape", "view"):
        return None
    raise TesseraError("an operation that the grid does not plan", got=f"{node.op} {node.target}")


def _convolution(node: fx.Node, module: nn.Conv2d | nn.MaxPool2d) -> Convolution:
    from torch import nn

    batch, channels, *image = _shape(node.args[0])
    groups = module.groups if isinstance(module, nn.Conv2d) else channels
    outputs = module.out_channels if isinstance(module, nn.Conv2d) else channels
    down, right = _pair(module.padding)
    return _as_convolution(
        batch,
        image,
        channels,
        outputs,
        kernel=_pair(module.kernel_size),
        stride=_pair(module.stride),
        padding=((down, down), (right, right)),
        dilation=_pair(module.dilation),
        groups=groups,
    )


def _as_convolution(batch: int, image: Sequence[int], inputs: int, outputs: int, **window: Any) -> Convolution:
    height, width = image
    return Convolution(batch=batch, height=height, width=width, in_channels=inputs, out_channels=outputs, **window)


def _shape(node: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in node.meta["tensor_meta"].shape)


def _pair(value: Any) -> tuple[int, int]:
    if isinstance(value, str):
        raise TesseraError("padding is given in numbers", got=value)
    return (int(value), int(value)) if isinstance(value, int) else (int(value[0]), int(value[1]))

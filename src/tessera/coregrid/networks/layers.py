"""The layers of a network as the grid sees them, from the model's graph with batch norms folded and ReLUs fused."""

from __future__ import annotations

import io
import operator
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tessera.coregrid.convolution import Convolution
from tessera.coregrid.networks.fusing import IDLE, Waiting, module_of, refused
from tessera.errors import TesseraError, first_line
from tessera.models.registry import image_size_of, lay_out

if TYPE_CHECKING:
    from torch import fx, nn

Kind = Literal["conv", "max_pool", "global_pool", "linear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One operation; a pool has the window of a convolution from its channels to as many, a linear one is 1x1.

    `activation` follows it on the same cores. `flattened` are channels, height and width of the images that a linear
    layer reads as one row of numbers each.
    """

    name: str
    kind: Kind
    conv: Convolution
    activation: str = ""
    flattened: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """Two ways from one tensor that are added up in the end; a shortcut without layers is the tensor itself."""

    name: str
    body: tuple[Layer, ...]
    shortcut: tuple[Layer, ...]
    activation: str = ""


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
    def image(self) -> tuple[int, int]:
        """Height and width of the images that it reads."""
        first = self.layers[0].conv
        return first.height, first.width

    @property
    def convolutions(self) -> list[Layer]:
        return [layer for layer in self.layers if layer.kind == "conv"]


def network(name: str, batch: int, image_size: int | None = None) -> Network:
    """A model by its name as parts; one whose graph is no chain of layers and residual blocks is refused."""
    graph = _graph(name, batch, image_size)
    last = next(iter(reversed(graph.graph.nodes))).args[0]
    return Network(name=name, batch=batch, parts=tuple(_parts(graph, last, None)))


def convolutions(name: str, batch: int, image_size: int | None = None) -> list[Layer]:
    """Every convolution of a model, whatever its graph, in the order in which they run."""
    from torch import nn

    graph = _graph(name, batch, image_size)
    found = []
    for node in graph.graph.nodes:
        module = module_of(graph, node)
        if isinstance(module, nn.Conv2d):
            found.append(Layer(name=str(node.target), kind="conv", conv=_convolution(node, module)))
    return found


def _graph(name: str, batch: int, image_size: int | None) -> fx.GraphModule:
    """The model's graph with the shape of every value, from a pass on the meta device."""
    import torch
    from torch import fx
    from torch.fx.passes.shape_prop import ShapeProp

    size = image_size_of(name) if image_size is None else image_size
    if min(batch, size) < 1:
        raise TesseraError("a network reads images", got=f"{batch} of {size}x{size}", allowed="1 or more of each")
    module = lay_out(name).eval()
    try:
        traced = fx.symbolic_trace(module)
    except (fx.proxy.TraceError, TypeError) as error:
        raise TesseraError("a model without a static graph", got=name, do=f"use another model ({error})") from None
    try:
        # torch prints where it failed, besides raising it
        with torch.device("meta"), redirect_stderr(io.StringIO()):
            ShapeProp(traced.to("meta")).propagate(torch.empty(batch, 3, size, size))
    except RuntimeError as error:
        raise TesseraError(
            f"{name} does not take images of {size}x{size}", got=first_line(error.__cause__ or error)
        ) from None
    return traced


def _parts(graph: fx.GraphModule, last: Any, stop: Any) -> list[Part]:
    """The parts between two nodes of a graph, in the order in which they run; it is gone through backwards."""
    found: list[Part] = []
    node, waiting = last, Waiting()
    while node is not stop and node.op != "placeholder":
        before = _before(node)
        if node.target in (operator.add, operator.iadd):
            before, part = _residual(graph, node, waiting.used_by(node, fits=not waiting.norm))
            found.append(part)
        elif not waiting.takes(graph, node) and (layer := _layer(graph, node)) is not None:
            fits = layer.kind == "conv" or (layer.kind == "linear" and not waiting.norm)
            found.append(replace(layer, activation=waiting.used_by(node, fits=fits)))
        node = before
    waiting.used_by(node, fits=False)  # nothing is left where a way begins
    return found[::-1]


def _residual(graph: fx.GraphModule, node: fx.Node, activation: str) -> tuple[Any, Residual]:
    """The block that an addition ends, and the value that both its ways begin with."""
    from torch import fx

    long, short = node.args
    if not isinstance(long, fx.Node) or not isinstance(short, fx.Node):
        raise refused(node, "it adds a number")
    ways = [_ancestors(long), _ancestors(short)]
    fork = next(value for value in ways[1] if value in set(ways[0]))
    body, shortcut = (tuple(_parts(graph, way, fork)) for way in (long, short))
    if len(body) < len(shortcut):
        body, shortcut = shortcut, body
    if any(isinstance(part, Residual) for part in (*body, *shortcut)):
        raise refused(node, "a residual block within another")
    layers = [part for part in body if isinstance(part, Layer)], [p for p in shortcut if isinstance(p, Layer)]
    return fork, Residual(name=str(node.name), body=tuple(layers[0]), shortcut=tuple(layers[1]), activation=activation)


def _ancestors(node: Any) -> list[Any]:
    found = []
    while True:
        found.append(node)
        if node.op == "placeholder":
            return found
        node = _before(node)


def _before(node: fx.Node) -> fx.Node:
    """The value that a node reads; of several, the first."""
    from torch import fx

    if not node.args or not isinstance(node.args[0], fx.Node):
        raise refused(node, "it does not read one value")
    return node.args[0]


def _layer(graph: fx.GraphModule, node: fx.Node) -> Layer | None:
    """What a node costs; None for a mere view. Other operations are refused."""
    from torch import nn

    module = module_of(graph, node)
    name = str(node.target)
    if isinstance(module, nn.Conv2d):
        return Layer(name=name, kind="conv", conv=_convolution(node, module))
    if isinstance(module, nn.MaxPool2d) and not module.ceil_mode:
        return Layer(name=name, kind="max_pool", conv=_convolution(node, module))
    batch, channels, *image = _shape(node.args[0])
    if isinstance(module, nn.AdaptiveAvgPool2d) and _shape(node) == _shape(node.args[0]):
        return None  # every pixel is its own average
    if _averages_images(module, node):
        whole = _as_convolution(batch, image, channels, channels, kernel=tuple(image))
        return Layer(name=name, kind="global_pool", conv=whole)
    if isinstance(module, nn.Linear) and not image:
        point = _as_convolution(batch, (1, 1), channels, module.out_features, kernel=(1, 1))
        return Layer(name=name, kind="linear", conv=point, flattened=_flattened(graph, node.args[0]))
    if _is_view(graph, node) and len(_shape(node)) == 2 and _shape(node)[0] == batch:
        return None
    raise refused(node, "only convolutions, maximum pools, global averages, linear layers and residual sums are")


def _averages_images(module: nn.Module | None, node: fx.Node) -> bool:
    """Whether every image becomes one pixel, its mean."""
    from torch import nn

    if isinstance(module, nn.AdaptiveAvgPool2d):
        return _shape(node)[2:] == (1, 1)
    if node.op != "call_method" or node.target != "mean" or len(_shape(node.args[0])) != 4:
        return False
    return _shape(node) in (_shape(node.args[0])[:2], (*_shape(node.args[0])[:2], 1, 1))


def _is_view(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Whether a node gives the numbers another shape."""
    import torch

    if node.op == "call_method":
        return node.target in ("flatten", "reshape", "view")
    return node.target is torch.flatten or isinstance(module_of(graph, node), torch.nn.Flatten)


def _flattened(graph: fx.GraphModule, node: Any) -> tuple[int, int, int] | None:
    """The channels, height and width of images that were made one row of numbers each, if they have many pixels."""
    while type(module_of(graph, node)).__name__ in IDLE:
        node = node.args[0]
    if not _is_view(graph, node):
        return None
    _, *image = _shape(node.args[0])
    return (image[0], image[1], image[2]) if len(image) == 3 and image[1:] != [1, 1] else None


def _convolution(node: fx.Node, module: nn.Conv2d | nn.MaxPool2d) -> Convolution:
    from torch import nn

    batch, channels, *image = _shape(node.args[0])
    if isinstance(module, nn.Conv2d) and module.padding_mode != "zeros":
        raise TesseraError("padding is zeros", got=module.padding_mode, do="pad the images before")
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

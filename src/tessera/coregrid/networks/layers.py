"""Layers of a network, extracted from the graph of a model. Batch norms are folded and activations fused."""

from __future__ import annotations

import copy
import io
import operator
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import fx, nn
from torch.fx.passes.shape_prop import ShapeProp
from torch.nn.utils.fusion import fuse_conv_bn_eval

from tessera.coregrid.convolution import Convolution, parse_padding, parse_pair
from tessera.errors import TesseraError, get_first_line
from tessera.models.registry import build_layers, get_image_size

# Activation functions that can be fused into the preceding layer, by the class name of the torch module.
ACTIVATION_NAMES = {
    "ReLU": "relu",
    "ReLU6": "relu6",
    "SiLU": "silu",
    "Hardswish": "hardswish",
    "Sigmoid": "sigmoid",
    "Tanh": "tanh",
}
BATCH_NORM_CLASS = "BatchNorm2d"
NO_OP_CLASSES = ("Identity", "Dropout")  # no effect in evaluation mode


class PendingFusion:
    """Batch norm and activation that a backward walk of the graph has found, to be fused into the preceding layer.

    Fusion requires that no other node reads the intermediate values.
    """

    def __init__(self) -> None:
        self.activation, self.norm = "", False

    def try_add(self, graph: fx.GraphModule, node: fx.Node) -> bool:
        """Record a batch norm or activation as pending. Return False if the node is neither of them nor a no-op."""
        kind = type(get_module(graph, node)).__name__
        if kind in NO_OP_CLASSES:
            return True
        if kind not in ACTIVATION_NAMES and kind != BATCH_NORM_CLASS:
            return False
        if self.norm or (self.activation and kind in ACTIVATION_NAMES):
            raise build_unsupported_error(node, "it does not follow a convolution, linear layer or sum")
        if (self.activation or self.norm) and len(node.users) > 1:
            raise build_unsupported_error(node, "the operation after it cannot be fused into it")
        self.activation, self.norm = ACTIVATION_NAMES.get(kind, self.activation), kind == BATCH_NORM_CLASS
        return True

    def take_activation(self, node: Any, *, fits: bool) -> str:
        """Return and clear the pending activation. Raises an error if it cannot be fused into the layer of `node`."""
        if (self.activation or self.norm) and (not fits or len(node.users) > 1):
            raise build_unsupported_error(node, "the operation after it cannot be fused into it")
        activation, self.activation, self.norm = self.activation, "", False
        return activation


def get_module(graph: fx.GraphModule, node: fx.Node) -> nn.Module | None:
    """Return the module that a graph node calls, or None if the node calls no module."""
    return graph.get_submodule(str(node.target)) if node.op == "call_module" else None


def build_unsupported_error(node: Any, why: str) -> TesseraError:
    """Build the error for a graph node that the core grid does not support."""
    return TesseraError(
        "the core grid cannot plan this operation",
        got=f"{node.op} {node.target}: {why}",
        do="plan its convolutions one by one (--table)",
    )


def fold_batch_norms(module: nn.Module) -> fx.GraphModule:
    """Return the graph of a model in evaluation mode, with batch norms folded into the preceding convolutions."""
    graph = fx.symbolic_trace(copy.deepcopy(module).eval())
    for node in list(graph.graph.nodes):
        norm, before = get_module(graph, node), node.args[0] if node.args else None
        if not isinstance(norm, nn.BatchNorm2d) or not isinstance(before, fx.Node) or len(before.users) > 1:
            continue
        conv = get_module(graph, before)
        if isinstance(conv, nn.Conv2d):
            graph.set_submodule(str(before.target), fuse_conv_bn_eval(conv, norm))
            node.replace_all_uses_with(before)
            graph.graph.erase_node(node)
    graph.recompile()
    return graph


LayerKind = Literal["conv", "max_pool", "global_pool", "linear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GridLayer:
    """One layer. `conv` also describes a pool (by its window) and a linear layer (as a 1x1 convolution).

    `activation` names the fused activation function. `flattened` is the (channels, height, width) of the images that a
    linear layer reads in flattened form.
    """

    name: str
    kind: LayerKind
    conv: Convolution
    activation: str = ""
    flattened: tuple[int, int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualBlock:
    """A residual block: the outputs of body and shortcut are added. An identity shortcut has no layers."""

    name: str
    body: tuple[GridLayer, ...]
    shortcut: tuple[GridLayer, ...]
    activation: str = ""


NetworkPart = GridLayer | ResidualBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class GridNetwork:
    """A network for a batch of images, as a sequence of layers and residual blocks."""

    name: str
    batch: int
    parts: tuple[NetworkPart, ...]

    @property
    def layers(self) -> list[GridLayer]:
        """All layers, in execution order."""
        layers: list[GridLayer] = []
        for part in self.parts:
            layers += [part] if isinstance(part, GridLayer) else [*part.body, *part.shortcut]
        return layers

    @property
    def image(self) -> tuple[int, int]:
        """Height and width of the input images."""
        first = self.layers[0].conv
        return first.height, first.width


def describe_network(name: str, batch: int, image_size: int | None = None) -> GridNetwork:
    """Build the `GridNetwork` of a model. Raises an error unless its graph is a chain of layers and residual blocks."""
    graph = _trace_graph(name, batch, image_size)
    last = next(iter(reversed(graph.graph.nodes))).args[0]
    return GridNetwork(name=name, batch=batch, parts=tuple(_build_parts(graph, last, None)))


def list_convolutions(name: str, batch: int, image_size: int | None = None) -> list[GridLayer]:
    """Return all convolutions of a model in execution order. Other operations of the model may be unsupported."""
    graph = _trace_graph(name, batch, image_size)
    layers = []
    for node in graph.graph.nodes:
        module = get_module(graph, node)
        if isinstance(module, nn.Conv2d):
            layers.append(GridLayer(name=str(node.target), kind="conv", conv=_build_convolution(node, module)))
    return layers


def _trace_graph(name: str, batch: int, image_size: int | None) -> fx.GraphModule:
    """Trace the graph of a model, and annotate every node with its output shape. No values are computed."""
    size = get_image_size(name) if image_size is None else image_size
    if min(batch, size) < 1:
        raise TesseraError(
            "batch and image size must be positive", got=f"{batch} of {size}x{size}", allowed="1 or more of each"
        )
    module = build_layers(name).eval()
    try:
        traced = fx.symbolic_trace(module)
    except (fx.proxy.TraceError, TypeError) as error:
        raise TesseraError(f"the model has no static graph ({error})", got=name, do="use another model") from None
    try:
        # torch also prints the failing node to stderr
        with torch.device("meta"), redirect_stderr(io.StringIO()):
            ShapeProp(traced.to("meta")).propagate(torch.empty(batch, 3, size, size))
    except RuntimeError as error:
        raise TesseraError(
            f"{name} does not accept images of {size}x{size}", got=get_first_line(error.__cause__ or error)
        ) from None
    return traced


def _build_parts(graph: fx.GraphModule, last: Any, stop: Any) -> list[NetworkPart]:
    """Return the parts after node `stop` up to node `last`, in execution order. The graph is walked backwards."""
    parts: list[NetworkPart] = []
    node, pending = last, PendingFusion()
    while node is not stop and node.op != "placeholder":
        before = _get_source(node)
        if node.target in (operator.add, operator.iadd):
            before, part = _build_residual(graph, node, pending.take_activation(node, fits=not pending.norm))
            parts.append(part)
        elif not pending.try_add(graph, node) and (layer := _build_layer(graph, node)) is not None:
            fits = layer.kind == "conv" or (layer.kind == "linear" and not pending.norm)
            parts.append(replace(layer, activation=pending.take_activation(node, fits=fits)))
        node = before
    pending.take_activation(node, fits=False)  # raises if a fusion without preceding layer is pending
    return parts[::-1]


def _build_residual(graph: fx.GraphModule, node: fx.Node, activation: str) -> tuple[Any, ResidualBlock]:
    """Return the residual block that ends with the addition `node`, and the node from which both branches start."""
    long, short = node.args
    if not isinstance(long, fx.Node) or not isinstance(short, fx.Node):
        raise build_unsupported_error(node, "it adds a constant")
    ancestors = [_list_ancestors(long), _list_ancestors(short)]
    fork = next(value for value in ancestors[1] if value in set(ancestors[0]))
    body, shortcut = (tuple(_build_parts(graph, branch, fork)) for branch in (long, short))
    if len(body) < len(shortcut):
        body, shortcut = shortcut, body
    if any(isinstance(part, ResidualBlock) for part in (*body, *shortcut)):
        raise build_unsupported_error(node, "nested residual blocks are not supported")
    layers = [part for part in body if isinstance(part, GridLayer)], [p for p in shortcut if isinstance(p, GridLayer)]
    return fork, ResidualBlock(
        name=str(node.name), body=tuple(layers[0]), shortcut=tuple(layers[1]), activation=activation
    )


def _list_ancestors(node: Any) -> list[Any]:
    ancestors = []
    while True:
        ancestors.append(node)
        if node.op == "placeholder":
            return ancestors
        node = _get_source(node)


def _get_source(node: fx.Node) -> fx.Node:
    """Return the node whose output is the first argument of `node`."""
    if not node.args or not isinstance(node.args[0], fx.Node):
        raise build_unsupported_error(node, "its first argument is not a value of the graph")
    return node.args[0]


def _build_layer(graph: fx.GraphModule, node: fx.Node) -> GridLayer | None:
    """Return the layer of a node, or None for a view. Raises an error for an unsupported operation."""
    module = get_module(graph, node)
    name = str(node.target)
    if isinstance(module, nn.Conv2d):
        return GridLayer(name=name, kind="conv", conv=_build_convolution(node, module))
    if isinstance(module, nn.MaxPool2d) and not module.ceil_mode:
        return GridLayer(name=name, kind="max_pool", conv=_build_convolution(node, module))
    batch, channels, *image = _get_shape(node.args[0])
    if isinstance(module, nn.AdaptiveAvgPool2d) and _get_shape(node) == _get_shape(node.args[0]):
        return None  # no-op: the average of a single pixel
    if _is_global_average(module, node):
        whole = _make_convolution(batch, image, channels, channels, kernel=tuple(image))
        return GridLayer(name=name, kind="global_pool", conv=whole)
    if isinstance(module, nn.Linear) and not image:
        point = _make_convolution(batch, (1, 1), channels, module.out_features, kernel=(1, 1))
        return GridLayer(name=name, kind="linear", conv=point, flattened=_find_flattened_shape(graph, node.args[0]))
    if _is_view(graph, node) and len(_get_shape(node)) == 2 and _get_shape(node)[0] == batch:
        return None
    raise build_unsupported_error(
        node, "only convolutions, maximum pools, global averages, linear layers and residual sums are supported"
    )


def _is_global_average(module: nn.Module | None, node: fx.Node) -> bool:
    """Return whether a node is a global average pool: the mean over all pixels of an image."""
    if isinstance(module, nn.AdaptiveAvgPool2d):
        return _get_shape(node)[2:] == (1, 1)
    if node.op != "call_method" or node.target != "mean" or len(_get_shape(node.args[0])) != 4:
        return False
    return _get_shape(node) in (_get_shape(node.args[0])[:2], (*_get_shape(node.args[0])[:2], 1, 1))


def _is_view(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether a node is a view, which only changes the shape of a tensor."""
    if node.op == "call_method":
        return node.target in ("flatten", "reshape", "view")
    return node.target is torch.flatten or isinstance(get_module(graph, node), nn.Flatten)


def _find_flattened_shape(graph: fx.GraphModule, node: Any) -> tuple[int, int, int] | None:
    """Return the (channels, height, width) before flattening; None without flattening or for images of one pixel."""
    while type(get_module(graph, node)).__name__ in NO_OP_CLASSES:
        node = node.args[0]
    if not _is_view(graph, node):
        return None
    _, *image = _get_shape(node.args[0])
    return (image[0], image[1], image[2]) if len(image) == 3 and image[1:] != [1, 1] else None


def _build_convolution(node: fx.Node, module: nn.Conv2d | nn.MaxPool2d) -> Convolution:
    batch, channels, *image = _get_shape(node.args[0])
    if isinstance(module, nn.Conv2d) and module.padding_mode != "zeros":
        raise TesseraError(f"unsupported padding mode of layer {node.target}", got=module.padding_mode, allowed="zeros")
    if isinstance(module.padding, str):
        raise TesseraError(f"the padding of layer {node.target} must be numeric", got=module.padding)
    groups = module.groups if isinstance(module, nn.Conv2d) else channels
    outputs = module.out_channels if isinstance(module, nn.Conv2d) else channels
    return _make_convolution(
        batch,
        image,
        channels,
        outputs,
        kernel=parse_pair("kernel_size", module.kernel_size),
        stride=parse_pair("stride", module.stride),
        padding=parse_padding(module.padding),
        dilation=parse_pair("dilation", module.dilation),
        groups=groups,
    )


def _make_convolution(batch: int, image: Sequence[int], inputs: int, outputs: int, **window: Any) -> Convolution:
    height, width = image
    return Convolution(batch=batch, height=height, width=width, in_channels=inputs, out_channels=outputs, **window)


def _get_shape(node: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in node.meta["tensor_meta"].shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvTableRow:
    """A distinct convolution shape of a model: name of the first layer with this shape, and number of such layers."""

    name: str
    conv: Convolution
    count: int


def build_table(name: str, batch: int = 1, image_size: int | None = None) -> list[ConvTableRow]:
    """Return the distinct convolution shapes of a model.

    >>> rows = build_table("resnet50", batch=8)
    >>> rows[0].name, rows[0].conv.kernel, sum(row.count for row in rows)
    ('conv1', (7, 7), 53)
    """
    rows: dict[Convolution, ConvTableRow] = {}
    for layer in list_convolutions(name, batch, image_size):
        row = rows.get(layer.conv)
        count = row.count + 1 if row else 1
        rows[layer.conv] = ConvTableRow(name=row.name if row else layer.name, conv=layer.conv, count=count)
    return list(rows.values())

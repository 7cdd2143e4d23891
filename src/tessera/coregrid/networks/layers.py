"""Layers of a network and how they are connected, described from a recording of the network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from tessera.coregrid.convolution import Convolution
from tessera.coregrid.networks.recording import RecordedCall, record_network
from tessera.errors import TesseraError
from tessera.models.registry import build_layers, get_image_size

LayerKind = Literal[
    "conv",
    "conv_transpose",
    "linear",
    "max_pool",
    "avg_pool",
    "global_pool",
    "upsample",
    "add",
    "mul",
    "concat",
    "elementwise",
    "fold",
    "norm",
    "other",
]
CONVOLUTION_KINDS = ("conv", "conv_transpose", "linear")  # kinds with weights, planned as convolutions
NETWORK_INPUT = -1  # number of the network's input among the inputs of a layer


@dataclass(frozen=True, slots=True, kw_only=True)
class GridLayer:
    """One layer: an operation on the device, with the numbers of the layers whose outputs it reads.

    `shape` is torch's shape of the output. `conv` describes the window of convolutions and pools; a linear layer is a
    1x1 convolution, and a transposed convolution is the convolution of its zero-stuffed images. `activation` names the
    fused activation function. `flattened` is the (channels, height, width) of images that a linear layer reads in
    flattened form. `folding` is the stride of a `fold` layer, or of a convolution whose images were folded.

    `calls` are the recorded calls in execution order. `weight`, `bias` and `norm` (the folded batch norm) give the
    weights of a convolution.
    """

    name: str
    kind: LayerKind
    inputs: tuple[int, ...] = (NETWORK_INPUT,)
    shape: tuple[int, ...] = ()
    conv: Convolution | None = None
    activation: str = ""
    flattened: tuple[int, int, int] | None = None
    folding: int = 1
    calls: tuple[int, ...] = ()
    weight: Any = None
    bias: Any = None
    norm: int | None = None

    @property
    def window(self) -> Convolution:
        """The convolution or pool of a layer that has one."""
        assert self.conv is not None
        return self.conv

    @property
    def matrix_size(self) -> tuple[int, int]:
        """Rows and columns of the output on the device: pixels and channels, or tokens and features."""
        return count_matrix_size(self.shape)


def count_matrix_size(shape: Sequence[int]) -> tuple[int, int]:
    """Return rows and columns of the matrix that stores a tensor: channels are columns, if there are pixels.

    >>> count_matrix_size((2, 64, 7, 7)), count_matrix_size((2, 10)), count_matrix_size((5,))
    ((98, 64), (2, 10), (1, 5))
    """
    columns = shape[1] if len(shape) == 4 else (shape[-1] if shape else 1)
    total = 1
    for size in shape:
        total *= size
    return total // max(columns, 1), columns


@dataclass(frozen=True, slots=True, kw_only=True)
class GridNetwork:
    """A network for a batch of images: its layers in execution order, and the recorded calls that they execute.

    `aliases` maps a recorded value to the layer that computes it and to the shape in which it is read.
    """

    name: str
    batch: int
    layers: tuple[GridLayer, ...]
    input_shape: tuple[int, ...] = ()
    outputs: tuple[int, ...] = ()
    output_shapes: tuple[tuple[int, ...], ...] = ()
    calls: tuple[RecordedCall, ...] = ()
    aliases: Any = None

    @property
    def image(self) -> tuple[int, int]:
        """Height and width of the input images."""
        return self.input_shape[-2], self.input_shape[-1]

    def find_last_uses(self) -> list[int]:
        """Return for every layer the number of the last layer that reads it; outputs are read after all layers."""
        last = list(range(len(self.layers)))
        for number, layer in enumerate(self.layers):
            for source in layer.inputs:
                if source >= 0:
                    last[source] = number
        for output in self.outputs:
            last[output] = len(self.layers)
        return last


def describe_network(name: str, batch: int, image_size: int | tuple[int, int] | None = None) -> GridNetwork:
    """Describe a model by name (`tessera list models`) or `module:callable`, for images of its own size by default."""
    size = get_image_size(name) if image_size is None else image_size
    height, width = (size, size) if isinstance(size, int) else size
    if min(batch, height, width) < 1:
        got = f"{batch} of {height}x{width}"
        raise TesseraError("batch and image size must be positive", got=got, allowed="1 or more of each")
    module = build_layers(name)
    return describe_module(module, torch.empty(batch, 3, height, width, device="meta"), name)


def describe_module(module: nn.Module, images: torch.Tensor, name: str = "model") -> GridNetwork:
    """Describe any module that maps images `(N, C, H, W)` to tensors. Only the shape of `images` matters."""
    from tessera.coregrid.networks.matching import match_layers

    recording = record_network(module, [images], name)
    return match_layers(recording, name)


def list_convolutions(name: str, batch: int, image_size: int | None = None) -> list[GridLayer]:
    """Return all convolutions of a model in execution order, with the windows of the model (images are not folded)."""
    layers = describe_network(name, batch, image_size).layers
    return [
        replace(layer, conv=layers[layer.inputs[0]].conv, folding=1) if layer.folding > 1 else layer
        for layer in layers
        if layer.kind == "conv"
    ]


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
        conv = layer.window
        row = rows.get(conv)
        count = row.count + 1 if row else 1
        rows[conv] = ConvTableRow(name=row.name if row else layer.name, conv=conv, count=count)
    return list(rows.values())

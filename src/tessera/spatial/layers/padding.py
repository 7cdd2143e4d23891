"""Padding as a layer of its own: an exchange in which every rank reads its pixels of the padded image."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tessera.errors import TesseraError
from tessera.geometry import HaloPlan, Window
from tessera.geometry.halo import Mode
from tessera.spatial.layers.framed import Frames
from tessera.spatial.layers.layer import AsItIs, Layer, is_cut, makes
from tessera.spatial.placed import Placed, Settings


@makes(nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d)
def constant_padding(module: Any, placed: Placed, settings: Settings) -> Layer:
    return _padding(module, placed, settings, "zeros", fill=float(module.value))


@makes(nn.ReflectionPad1d, nn.ReflectionPad2d, nn.ReflectionPad3d)
def mirrored_padding(module: Any, placed: Placed, settings: Settings) -> Layer:
    return _padding(module, placed, settings, "reflect")


@makes(nn.ReplicationPad1d, nn.ReplicationPad2d, nn.ReplicationPad3d)
def repeated_padding(module: Any, placed: Placed, settings: Settings) -> Layer:
    return _padding(module, placed, settings, "replicate")


@makes(nn.CircularPad1d, nn.CircularPad2d, nn.CircularPad3d)
def circular_padding(module: Any, placed: Placed, settings: Settings) -> Layer:
    return _padding(module, placed, settings, "circular")


def _padding(module: Any, placed: Placed, settings: Settings, mode: Mode, fill: float = 0.0) -> Layer:
    lengths = module.padding
    if min(lengths) < 0:
        raise TesseraError("padding that cuts off is not known on cut images", got=lengths, allowed="0 or more")
    pairs = list(zip(lengths[::2], lengths[1::2], strict=True))[::-1]  # torch names the last dim first
    window = Window.of([1] * len(pairs), padding=pairs)
    output = placed.resized(window.output_size(placed.sizes[1:]))
    if not is_cut(placed):
        return AsItIs(module, placed, output)
    return Padding(Frames(HaloPlan(placed.partition, window, output.partition, mode), settings, fill=fill), output)


class Padding:
    """The frame itself, as a tensor of its own."""

    def __init__(self, frames: Frames, placed: Placed) -> None:
        self._frames, self.placed = frames, placed

    def __call__(self, tile: Tensor) -> Tensor:
        return self._frames.apply(tile, torch.clone)

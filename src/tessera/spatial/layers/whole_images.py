"""Layers that need all pixels of an image on one rank: they run on whole images, and refuse tiles."""

from __future__ import annotations

from typing import Any

from torch import nn

from tessera.errors import TesseraError
from tessera.spatial.layers.adaptive import target_sizes
from tessera.spatial.layers.layer import AsItIs, Layer, makes
from tessera.spatial.placed import Placed, Settings


@makes(nn.Flatten)
def flatten(module: nn.Flatten, placed: Placed, settings: Settings) -> Layer:
    _refuse_tiles(placed)
    if module.start_dim != 1 or module.end_dim % (len(placed.sizes) + 1) != len(placed.sizes):
        got = f"start_dim={module.start_dim}, end_dim={module.end_dim}"
        raise TesseraError("an image is flattened as a whole", got=got, allowed="start_dim=1, end_dim=-1")
    return AsItIs(module, placed, placed.resized(()))


@makes(nn.Linear)
def linear(module: nn.Linear, placed: Placed, settings: Settings) -> Layer:
    _refuse_tiles(placed)
    if len(placed.sizes) > 1:
        raise TesseraError("a Linear takes flattened images", got=placed.sizes, do="put nn.Flatten() before it")
    return AsItIs(module, placed, placed)


@makes(nn.LayerNorm)
def layer_norm(module: nn.LayerNorm, placed: Placed, settings: Settings) -> Layer:
    _refuse_tiles(placed)
    return AsItIs(module, placed, placed)


@makes(nn.PixelShuffle)
def pixel_shuffle(module: nn.PixelShuffle, placed: Placed, settings: Settings) -> Layer:
    _refuse_tiles(placed)
    factor = module.upscale_factor
    return AsItIs(module, placed, placed.resized([size * factor for size in placed.sizes[1:]]))


@makes(nn.PixelUnshuffle)
def pixel_unshuffle(module: nn.PixelUnshuffle, placed: Placed, settings: Settings) -> Layer:
    _refuse_tiles(placed)
    factor = module.downscale_factor
    return AsItIs(module, placed, placed.resized([size // factor for size in placed.sizes[1:]]))


def _refuse_tiles(placed: Placed) -> None:
    if placed.kind == "tiles":
        raise TesseraError(
            "it needs whole images, and here they are cut into tiles",
            do="pool to one pixel before it (nn.AdaptiveAvgPool2d(1)), or gather before it (gather_at=)",
        )


@makes(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d)
def adaptive_max(module: Any, placed: Placed, settings: Settings) -> Layer:
    _refuse_tiles(placed)
    if module.return_indices:
        raise TesseraError("the indices of a maximum are not passed on", do="use return_indices=False")
    return AsItIs(module, placed, placed.resized(target_sizes(module.output_size, placed.sizes[1:])))

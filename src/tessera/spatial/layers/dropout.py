"""Dropout on tiles: every rank draws for its own pixels, and all the same where they share what is dropped."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tessera.spatial.layers.layer import AsItIs, Layer, makes
from tessera.spatial.placed import Placed, Settings
from tessera.transport.transport import Transport

ChannelDropout = nn.Dropout1d | nn.Dropout2d | nn.Dropout3d


@makes(nn.Dropout)
def dropout(module: nn.Dropout, placed: Placed, settings: Settings) -> Layer:
    if placed.kind == "whole" and placed.mesh.size > 1:
        return SharedDropout(module, placed, settings.transport)
    return AsItIs(module, placed, placed)


@makes(nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
def channel_dropout(module: ChannelDropout, placed: Placed, settings: Settings) -> Layer:
    """A channel of an image is dropped on all its tiles, or on none."""
    if placed.kind == "samples" or placed.mesh.size == 1:
        return AsItIs(module, placed, placed)
    return SharedDropout(module, placed, settings.transport)


class SharedDropout:
    """The first rank draws for all, so that they stay the same network."""

    def __init__(self, module: nn.Dropout | ChannelDropout, placed: Placed, transport: Transport) -> None:
        self._module, self.placed, self._transport = module, placed, transport

    def __call__(self, tile: Tensor) -> Tensor:
        if not self._module.training:
            return tile
        samples, *spatial = self.placed.sizes
        pixels = spatial if isinstance(self._module, nn.Dropout) else [1 for _ in spatial]
        factors = torch.zeros(samples, tile.shape[1], *pixels, dtype=tile.dtype)
        if self._transport.rank == 0:
            factors = self._module(torch.ones_like(factors))
        self._transport.all_reduce(factors)
        return tile * factors[: tile.shape[0]]

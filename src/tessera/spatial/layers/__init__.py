"""How each kind of layer runs on a rank's tile: one module per family, which fills the table of layers."""

from tessera.spatial.layers import (
    adaptive,
    batch_norm,
    convolution,
    dropout,
    group_norm,
    padding,
    pointwise,
    pooling,
    resampling,
    transposed,
    whole_images,
)
from tessera.spatial.layers.layer import LAYERS, Layer, layer_of, makes

__all__ = [
    "LAYERS",
    "Layer",
    "adaptive",
    "batch_norm",
    "convolution",
    "dropout",
    "group_norm",
    "layer_of",
    "makes",
    "padding",
    "pointwise",
    "pooling",
    "resampling",
    "transposed",
    "whole_images",
]

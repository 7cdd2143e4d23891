"""Rules: how operators are computed on the parts of split tensors. Importing this package registers all rules."""

from tessera.spatial.tensor.rules import (
    attention,
    convolution,
    creation,
    joins,
    normalisation,
    padding,
    pointwise,
    pooling,
    products,
    reductions,
    resampling,
    views,
)

__all__ = [
    "attention",
    "convolution",
    "creation",
    "joins",
    "normalisation",
    "padding",
    "pointwise",
    "pooling",
    "products",
    "reductions",
    "resampling",
    "views",
]

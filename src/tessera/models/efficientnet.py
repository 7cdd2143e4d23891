"""EfficientNet B0 to B7 in plain torch: one network, scaled in width, depth and image size.

`group_dim` is the number of channels per group of the spatial convolutions (1: depthwise, as published). Together with
`expand_ratio` and `norm="group"` it gives the variants for machines that are slow at depthwise convolution. If the
channels of a block are not divisible by `group_dim`, its groups have more channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

from torch import nn

from tessera.errors import TesseraError
from tessera.models.mobile import (
    Activation,
    ConvNorm,
    InvertedResidual,
    Norm,
    SqueezeExcitation,
    build_classifier,
    make_inplace,
    round_channels,
)


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of identical blocks, with the width and depth of EfficientNet-B0."""

    expand: int
    kernel: int
    stride: int
    channels: int
    depth: int


STAGES = (
    Stage(1, 3, 1, 16, 1),
    Stage(6, 3, 2, 24, 2),
    Stage(6, 5, 2, 40, 2),
    Stage(6, 3, 2, 80, 3),
    Stage(6, 5, 1, 112, 3),
    Stage(6, 5, 2, 192, 4),
    Stage(6, 3, 1, 320, 1),
)
# By B-number: width factor, depth factor, image size, dropout.
SCALES = (
    (1.0, 1.0, 224, 0.2),
    (1.0, 1.1, 240, 0.2),
    (1.1, 1.2, 288, 0.3),
    (1.2, 1.4, 300, 0.3),
    (1.4, 1.8, 380, 0.4),
    (1.6, 2.2, 456, 0.4),
    (1.8, 2.6, 528, 0.5),
    (2.0, 3.1, 600, 0.5),
)
NORM_GROUPS, NORM_EPS = 4, 1e-3
# Expected mean square of a convolution's input: after a residual sum, after a SiLU, after a sigmoid gate near 0.5.
MEAN_SQUARE_AFTER_SUM, MEAN_SQUARE_AFTER_SWISH, MEAN_SQUARE_OF_GATE = 1.0, 0.36, 0.25


def build_efficientnet(
    number: int,
    *,
    num_classes: int = 1000,
    in_channels: int = 3,
    group_dim: int = 1,
    expand_ratio: int | None = None,
    norm: str = "batch",
) -> nn.Module:
    """Build EfficientNet-B`number`."""
    width, depth, _, dropout = SCALES[number]
    if group_dim < 1:
        raise TesseraError("group_dim must be positive", got=group_dim, allowed="1 or more")
    if expand_ratio is not None and expand_ratio < 1:
        raise TesseraError("expand_ratio must be positive", got=expand_ratio, allowed="1 or more")
    norms = _build_norm(norm, number)
    swish = make_inplace(nn.SiLU)
    channels = round_channels(32 * width)
    features: list[nn.Module] = [
        ConvNorm(in_channels, channels, 3, 2, norm=norms, activation=swish, input_mean_square=MEAN_SQUARE_AFTER_SUM)
    ]
    for stage in STAGES:
        blocks = []
        expand = stage.expand if stage.expand == 1 or expand_ratio is None else expand_ratio
        outputs = round_channels(stage.channels * width)
        for block in range(math.ceil(stage.depth * depth)):
            stride = stage.stride if block == 0 else 1
            blocks.append(_build_block(channels, outputs, expand, stage.kernel, stride, group_dim, norms, swish))
            channels = outputs
        features.append(nn.Sequential(*blocks))
    features.append(
        ConvNorm(channels, 4 * channels, 1, norm=norms, activation=swish, input_mean_square=MEAN_SQUARE_AFTER_SUM)
    )
    head = nn.Sequential(nn.Dropout(dropout, inplace=True), nn.Linear(4 * channels, num_classes))
    return build_classifier(nn.Sequential(*features), head)


def _build_block(
    inputs: int, outputs: int, expand: int, kernel: int, stride: int, group_dim: int, norm: Norm, swish: Activation
) -> InvertedResidual:
    wide = round_channels(inputs * expand)
    conv = partial(ConvNorm, norm=norm)
    layers: list[nn.Module] = (
        [conv(inputs, wide, 1, activation=swish, input_mean_square=MEAN_SQUARE_AFTER_SUM)] if wide != inputs else []
    )
    groups = _count_groups(wide, group_dim)
    layers.append(
        conv(wide, wide, kernel, stride, groups=groups, activation=swish, input_mean_square=MEAN_SQUARE_AFTER_SWISH)
    )
    layers.append(SqueezeExcitation(wide, max(1, inputs // 4), swish, nn.Sigmoid))
    layers.append(
        conv(wide, outputs, 1, activation=None, input_mean_square=MEAN_SQUARE_OF_GATE * MEAN_SQUARE_AFTER_SWISH)
    )
    return InvertedResidual(nn.Sequential(*layers), stride == 1 and inputs == outputs, "block")


def _count_groups(channels: int, group_dim: int) -> int:
    """Return the largest number of equal groups with at least `group_dim` channels each (1 if there is none).

    >>> _count_groups(96, 16), _count_groups(40, 16), _count_groups(24, 16)
    (6, 2, 1)
    """
    most = max(1, channels // group_dim)
    return next(groups for groups in range(most, 0, -1) if channels % groups == 0)


def _build_norm(kind: str, number: int) -> Norm:
    if kind == "group":
        return lambda channels: nn.GroupNorm(NORM_GROUPS, channels, eps=NORM_EPS)
    if kind != "batch":
        raise TesseraError("unknown norm", got=kind, allowed=("batch", "group"))
    # The large networks were published with a different epsilon of the batch norms.
    return partial(nn.BatchNorm2d, eps=0.001, momentum=0.01) if number >= 5 else nn.BatchNorm2d

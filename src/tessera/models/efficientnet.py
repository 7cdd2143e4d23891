"""EfficientNet B0 to B7 in plain torch: one network, scaled in width, depth and image size.

`group_dim` is the number of channels that the spatial convolutions take together (1: depthwise, as published), and
with `expand_ratio` and `norm="group"` makes the variants that suit machines which are poor at depthwise convolution.
Where the channels of a block cannot be divided so, a group takes a few more.
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
    Norm,
    Residual,
    SqueezeExcitation,
    classifier_on,
    in_place,
    rounded_channels,
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Blocks of one kind at the width and depth of B0."""

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
# by number: width, depth, image size, dropout
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
# mean squares of what convolutions are fed: the sum of residuals, what a swish leaves of it, a gate that is half open
STREAM, AFTER_SWISH, GATE = 1.0, 0.36, 0.25


def efficientnet(
    number: int,
    *,
    num_classes: int = 1000,
    in_channels: int = 3,
    group_dim: int = 1,
    expand_ratio: int | None = None,
    norm: str = "batch",
) -> nn.Module:
    """EfficientNet-B`number`."""
    width, depth, _, dropout = SCALES[number]
    if group_dim < 1:
        raise TesseraError("a group has channels", got=group_dim, allowed="1 or more")
    if expand_ratio is not None and expand_ratio < 1:
        raise TesseraError("an expansion is 1 or more", got=expand_ratio)
    norms = _norm(norm, number)
    swish = in_place(nn.SiLU)
    channels = rounded_channels(32 * width)
    features: list[nn.Module] = [ConvNorm(in_channels, channels, 3, 2, norm=norms, activation=swish, fed=STREAM)]
    for stage in STAGES:
        blocks = []
        expand = stage.expand if stage.expand == 1 or expand_ratio is None else expand_ratio
        outputs = rounded_channels(stage.channels * width)
        for block in range(math.ceil(stage.depth * depth)):
            stride = stage.stride if block == 0 else 1
            blocks.append(_block(channels, outputs, expand, stage.kernel, stride, group_dim, norms, swish))
            channels = outputs
        features.append(nn.Sequential(*blocks))
    features.append(ConvNorm(channels, 4 * channels, 1, norm=norms, activation=swish, fed=STREAM))
    head = nn.Sequential(nn.Dropout(dropout, inplace=True), nn.Linear(4 * channels, num_classes))
    return classifier_on(nn.Sequential(*features), head)


def _block(
    inputs: int, outputs: int, expand: int, kernel: int, stride: int, group_dim: int, norm: Norm, swish: Activation
) -> Residual:
    wide = rounded_channels(inputs * expand)
    conv = partial(ConvNorm, norm=norm)
    layers: list[nn.Module] = [conv(inputs, wide, 1, activation=swish, fed=STREAM)] if wide != inputs else []
    groups = _groups(wide, group_dim)
    layers.append(conv(wide, wide, kernel, stride, groups=groups, activation=swish, fed=AFTER_SWISH))
    layers.append(SqueezeExcitation(wide, max(1, inputs // 4), swish, nn.Sigmoid))
    layers.append(conv(wide, outputs, 1, activation=None, fed=GATE * AFTER_SWISH))
    return Residual(nn.Sequential(*layers), stride == 1 and inputs == outputs, "block")


def _groups(channels: int, group_dim: int) -> int:
    """As many groups of `group_dim` channels as there are, or the next smaller number that divides the channels.

    >>> _groups(96, 16), _groups(40, 16), _groups(24, 16)
    (6, 2, 1)
    """
    most = max(1, channels // group_dim)
    return next(groups for groups in range(most, 0, -1) if channels % groups == 0)


def _norm(kind: str, number: int) -> Norm:
    if kind == "group":
        return lambda channels: nn.GroupNorm(NORM_GROUPS, channels, eps=NORM_EPS)
    if kind != "batch":
        raise TesseraError("unknown norm", got=kind, allowed=("batch", "group"))
    # the large ones were published with another epsilon
    return partial(nn.BatchNorm2d, eps=0.001, momentum=0.01) if number >= 5 else nn.BatchNorm2d

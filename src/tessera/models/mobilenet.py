"""MobileNet V2 and V3 in plain torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from torch import Tensor, nn

from tessera.models.mobile import (
    ConvNorm,
    InvertedResidual,
    SqueezeExcitation,
    build_classifier,
    make_inplace,
    round_channels,
)

# Stages: expansion ratio, channels, number of blocks, stride of the first block.
V2_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


@dataclass(frozen=True, slots=True)
class V3Block:
    """One block of MobileNet V3; `wide` is the number of expanded channels."""

    kernel: int
    wide: int
    channels: int
    squeezes: bool
    swish: bool
    stride: int


V3_LARGE = (
    V3Block(3, 16, 16, False, False, 1),
    V3Block(3, 64, 24, False, False, 2),
    V3Block(3, 72, 24, False, False, 1),
    V3Block(5, 72, 40, True, False, 2),
    V3Block(5, 120, 40, True, False, 1),
    V3Block(5, 120, 40, True, False, 1),
    V3Block(3, 240, 80, False, True, 2),
    V3Block(3, 200, 80, False, True, 1),
    V3Block(3, 184, 80, False, True, 1),
    V3Block(3, 184, 80, False, True, 1),
    V3Block(3, 480, 112, True, True, 1),
    V3Block(3, 672, 112, True, True, 1),
    V3Block(5, 672, 160, True, True, 2),
    V3Block(5, 960, 160, True, True, 1),
    V3Block(5, 960, 160, True, True, 1),
)
V3_SMALL = (
    V3Block(3, 16, 16, True, False, 2),
    V3Block(3, 72, 24, False, False, 2),
    V3Block(3, 88, 24, False, False, 1),
    V3Block(5, 96, 40, True, True, 2),
    V3Block(5, 240, 40, True, True, 1),
    V3Block(5, 240, 40, True, True, 1),
    V3Block(5, 120, 48, True, True, 1),
    V3Block(5, 144, 48, True, True, 1),
    V3Block(5, 288, 96, True, True, 2),
    V3Block(5, 576, 96, True, True, 1),
    V3Block(5, 576, 96, True, True, 1),
)


class MobileNetV2(nn.Module):
    """MobileNet V2: inverted residuals with linear bottlenecks."""

    def __init__(self, *, num_classes: int = 1000, in_channels: int = 3) -> None:
        super().__init__()
        relu6, channels = make_inplace(nn.ReLU6), 32
        features: list[nn.Module] = [ConvNorm(in_channels, channels, 3, 2, activation=relu6)]
        for expand, outputs, depth, first_stride in V2_STAGES:
            for block in range(depth):
                stride = first_stride if block == 0 else 1
                wide = channels * expand
                layers: list[nn.Module] = [ConvNorm(channels, wide, 1, activation=relu6)] if expand > 1 else []
                layers.append(ConvNorm(wide, wide, 3, stride, groups=wide, activation=relu6))
                layers += [nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs)]
                features.append(InvertedResidual(nn.Sequential(*layers), stride == 1 and channels == outputs, "conv"))
                channels = outputs
        features.append(ConvNorm(channels, 1280, 1, activation=relu6))
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(1280, num_classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).mean((2, 3)))  # type: ignore[no-any-return]


def build_mobilenet_v3(
    blocks: tuple[V3Block, ...], last: int, *, num_classes: int = 1000, in_channels: int = 3
) -> nn.Module:
    """Build a MobileNet V3; `last` is the hidden width of the classifier."""
    norm = partial(nn.BatchNorm2d, eps=0.001, momentum=0.01)
    hard, relu, channels = make_inplace(nn.Hardswish), make_inplace(nn.ReLU), 16
    features: list[nn.Module] = [ConvNorm(in_channels, channels, 3, 2, norm=norm, activation=hard)]
    for block in blocks:
        activation, wide = hard if block.swish else relu, block.wide
        layers: list[nn.Module] = []
        if wide != channels:
            layers.append(ConvNorm(channels, wide, 1, norm=norm, activation=activation))
        layers.append(ConvNorm(wide, wide, block.kernel, block.stride, groups=wide, norm=norm, activation=activation))
        if block.squeezes:
            layers.append(SqueezeExcitation(wide, round_channels(wide / 4), nn.ReLU, nn.Hardsigmoid))
        layers.append(ConvNorm(wide, block.channels, 1, norm=norm, activation=None))
        added = block.stride == 1 and channels == block.channels
        features.append(InvertedResidual(nn.Sequential(*layers), added, "block"))
        channels = block.channels
    features.append(ConvNorm(channels, 6 * channels, 1, norm=norm, activation=hard))
    head = nn.Sequential(
        nn.Linear(6 * channels, last), hard(), nn.Dropout(0.2, inplace=True), nn.Linear(last, num_classes)
    )
    return build_classifier(nn.Sequential(*features), head)

"""Small networks with the patterns that engines fold or fuse (batch norm, squeeze and excitation, grouped convolution).

Tests load these networks as `module:callable`.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

IMAGE = 32


class SqueezeExcitationBlock(nn.Module):
    """A depthwise convolution with squeeze and excitation and a residual connection."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 5, padding=2, groups=channels, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, channels, 1), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.silu(self.norm(self.conv(x)))
        return x + y * self.gate(y)


class Classifier(nn.Module):
    """A stem, a pooling layer, a squeeze-and-excitation block, a strided grouped convolution and a classifier."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(channels, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.block = SqueezeExcitationBlock(16)
        self.down = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1, groups=4), nn.BatchNorm2d(32), nn.Hardswish())
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(self.block(self.pool(self.stem(x))))
        return self.head(x.mean((2, 3)))


def build_classifier(channels: int = 3) -> nn.Module:
    """Build a classifier of ten classes with random norm statistics, so that errors in folding the norms show."""
    module = Classifier(channels)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.3)
            layer.running_var.uniform_(0.5, 2)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, 0, 0.3)
    return module


class TwoHeads(nn.Module):
    """A network with two outputs: classes for every pixel, and one value for the image."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3, padding=1)
        self.pixels = nn.ConvTranspose2d(8, 4, 2, 2)
        self.value = nn.Linear(8, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.body(x).relu()
        return self.pixels(nn.functional.avg_pool2d(y, 2)), self.value(y.mean((2, 3)))


def build_two_heads() -> nn.Module:
    return TwoHeads()


def build_nan_network() -> nn.Module:
    """Build a network whose outputs are NaN."""
    module = Classifier()
    nn.init.constant_(module.head.bias, torch.nan)
    return module


class CentringNetwork(Classifier):
    """A network with a plain tensor that is not a buffer, so that `to(device)` does not move it."""

    def __init__(self) -> None:
        super().__init__()
        self.mean = torch.rand(1, 3, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - self.mean)


def build_centring_network() -> nn.Module:
    return CentringNetwork()


class ValueChecker(Classifier):
    """A network whose forward pass reads pixel values, so that it cannot run on the meta device."""

    def forward(self, x: Tensor) -> Tensor:
        if x.isnan().any():
            raise ValueError("a pixel is not a number")
        return super().forward(x)


def build_value_checker() -> nn.Module:
    return ValueChecker()


class CachingNetwork(Classifier):
    """A network that caches a tensor in its first forward pass, on the device of that pass."""

    grid: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.grid is None:
            self.grid = torch.arange(x.shape[-1], device=x.device, dtype=x.dtype)
        return super().forward(x + self.grid)


def build_caching_network() -> nn.Module:
    return CachingNetwork()

"""Building blocks of mobile networks: inverted residuals, squeeze and excitation.

Modules are named as in torchvision, so that torchvision's state dicts load unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

Norm = Callable[[int], nn.Module]
Activation = Callable[[], nn.Module]
MEAN_SQUARE_AFTER_RELU = 0.5  # mean square of the output of a ReLU whose input has mean square 1


def round_channels(channels: float) -> int:
    """Round a number of channels to the nearest multiple of 8, but not below 90 % of the number.

    >>> round_channels(33.6), round_channels(12)
    (32, 16)
    """
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * channels else rounded


def make_inplace(activation: Callable[..., nn.Module]) -> Activation:
    """Return a factory of the in-place variant of an activation, which saves memory."""
    return lambda: activation(inplace=True)


class ConvNorm(nn.Sequential):
    """A padded convolution, a norm and optionally an activation.

    `input_mean_square` is the expected mean square of the input; random weights are scaled to compensate for it.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        stride: int = 1,
        *,
        groups: int = 1,
        norm: Norm = nn.BatchNorm2d,
        activation: Activation | None,
        input_mean_square: float = MEAN_SQUARE_AFTER_RELU,
    ) -> None:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
        super().__init__(conv, norm(outputs), *([activation()] if activation else []))
        conv.gain = math.sqrt(MEAN_SQUARE_AFTER_RELU / input_mean_square)  # type: ignore[assignment]
        self[1].before_swish = isinstance(self[-1], nn.SiLU | nn.Hardswish)  # type: ignore[assignment]


class SqueezeExcitation(nn.Module):
    """Squeeze and excitation: every channel is scaled by the output of a small network of the channel means."""

    def __init__(self, channels: int, squeezed: int, activation: Activation, scale: Activation) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation = activation()
        self.scale_activation = scale()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(x)))))  # type: ignore[no-any-return]


class InvertedResidual(nn.Module):
    """A block of layers with a residual connection if `added`; `name` is the name of the layers' sub-module."""

    def __init__(self, layers: nn.Sequential, added: bool, name: str) -> None:
        super().__init__()
        self.add_module(name, layers)
        self._name, self._added = name, added
        if added:
            norms = [layer for layer in layers.modules() if isinstance(layer, nn.BatchNorm2d | nn.GroupNorm)]
            norms[-1].ends_branch = True  # type: ignore[assignment]  # scaled down by `weights.initialise_weights`

    def forward(self, x: Tensor) -> Tensor:
        layers: Any = self.get_submodule(self._name)
        return x + layers(x) if self._added else layers(x)  # type: ignore[no-any-return]


def build_classifier(features: nn.Module, classifier: nn.Module) -> nn.Module:
    """Build a network of a feature extractor, global average pooling, and a classifier."""
    return _ClassifierNetwork(features, classifier)


class _ClassifierNetwork(nn.Module):
    def __init__(self, features: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))  # type: ignore[no-any-return]

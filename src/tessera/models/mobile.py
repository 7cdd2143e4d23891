"""What mobile networks are made of: inverted residuals, with squeeze and excitation where a network has it.

Modules are named as in torchvision, whose state dicts load unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

Norm = Callable[[int], nn.Module]
Activation = Callable[[], nn.Module]
AFTER_RELU = 0.5  # the mean square that a ReLU leaves of numbers whose mean square was 1


def rounded_channels(channels: float, multiple: int = 8) -> int:
    """The nearest multiple, but never less than nine tenths of what was asked for.

    >>> rounded_channels(33.6), rounded_channels(12)
    (32, 16)
    """
    found = max(multiple, int(channels + multiple / 2) // multiple * multiple)
    return found + multiple if found < 0.9 * channels else found


def in_place(activation: Callable[..., nn.Module]) -> Activation:
    """An activation that writes over its input: a network then holds one activation less."""
    return lambda: activation(inplace=True)


class ConvNorm(nn.Sequential):
    """A convolution that keeps the size at stride 1, a norm and, unless it is left out, an activation.

    `fed` is the mean square of what the convolution gets, for random weights to make up for.
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
        fed: float = AFTER_RELU,
    ) -> None:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
        super().__init__(conv, norm(outputs), *([activation()] if activation else []))
        conv.gain = math.sqrt(AFTER_RELU / fed)  # type: ignore[assignment]
        self[1].before_swish = isinstance(self[-1], nn.SiLU | nn.Hardswish)  # type: ignore[assignment]


class SqueezeExcitation(nn.Module):
    """Scales every channel by what a small network makes of all channels' means."""

    def __init__(self, channels: int, squeezed: int, activation: Activation, scale: Activation) -> None:
        super().__init__()
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.activation = activation()
        self.scale_activation = scale()

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale_activation(self.fc2(self.activation(self.fc1(self.avgpool(x)))))  # type: ignore[no-any-return]


class Residual(nn.Module):
    """Layers, and their input added to their output if both have one shape; `name` is what the layers are called."""

    def __init__(self, layers: nn.Sequential, added: bool, name: str) -> None:
        super().__init__()
        self.add_module(name, layers)
        self._name, self._added = name, added
        if added:
            norms = [layer for layer in layers.modules() if isinstance(layer, nn.BatchNorm2d | nn.GroupNorm)]
            norms[-1].ends_branch = True  # type: ignore[assignment]  # random weights scale it down, see weights

    def forward(self, x: Tensor) -> Tensor:
        layers: Any = self.get_submodule(self._name)
        return x + layers(x) if self._added else layers(x)  # type: ignore[no-any-return]


def classifier_on(features: nn.Module, classifier: nn.Module) -> nn.Module:
    """Features, their mean over the image, a classifier."""
    return _Classified(features, classifier)


class _Classified(nn.Module):
    def __init__(self, features: nn.Module, classifier: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = classifier

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.avgpool(self.features(x)).flatten(1))  # type: ignore[no-any-return]

"""Small networks that tests name as `module:callable`: networks that the core grid runs, and unsupported networks."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class CustomForward(nn.Module):
    """A module with named layers and a given forward function."""

    def __init__(self, forward: Callable[[CustomForward, Tensor], Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self._forward = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)


def make_norm(channels: int) -> nn.BatchNorm2d:
    """Return a batch norm with random statistics and weights."""
    result = nn.BatchNorm2d(channels)
    result.running_mean.copy_(torch.randn(channels))
    result.running_var.copy_(torch.rand(channels) + 0.5)
    return result


def flattened() -> nn.Module:
    """Build a network that flattens 4 x 4 pixels of 24 channels before its linear layers; images are 16 x 16."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 24, 3, padding=1, bias=False),
        make_norm(24),
        nn.ReLU6(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(24 * 16, 20),
        nn.Hardswish(),
        nn.Dropout(),
        nn.Linear(20, 10),
    )


def squashed() -> nn.Module:
    """Build a network with several activation functions, one of them after a residual sum, and a final mean."""

    def forward(self: CustomForward, x: Tensor) -> Tensor:
        x = self.act(self.first(x))
        x = self.last_act(self.body(x) + self.short(x))
        return self.head(x.mean((2, 3)))

    return CustomForward(
        forward,
        first=nn.Conv2d(3, 16, 3, stride=2, padding=1),
        act=nn.SiLU(),
        body=nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16), make_norm(16), nn.ReLU6(), nn.Conv2d(16, 32, 1)),
        short=nn.Conv2d(16, 32, 1),
        last_act=nn.Tanh(),
        head=nn.Linear(32, 5),
    )


def residual_first() -> nn.Module:
    return CustomForward(
        lambda self, x: self.last(self.first(x) + x), first=nn.Conv2d(3, 3, 1), last=nn.Conv2d(3, 8, 1)
    )


def mean_first() -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 8, 1))


def nothing() -> nn.Module:
    return nn.Sequential(nn.Identity())


def read_before_its_activation() -> nn.Module:
    def forward(self: CustomForward, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.act(x) + x

    return CustomForward(forward, first=nn.Conv2d(3, 8, 3, padding=1), act=nn.ReLU())


def norm_first() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), make_norm(8), nn.Conv2d(8, 8, 1))


def activated_pool() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 1), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(8, 8, 1))


def number_added() -> nn.Module:
    return CustomForward(lambda self, x: self.first(x) + 1, first=nn.Conv2d(3, 8, 1))


def concatenated() -> nn.Module:
    def forward(self: CustomForward, x: Tensor) -> Tensor:
        return self.last(torch.cat([self.first(x), x], dim=1))

    return CustomForward(forward, first=nn.Conv2d(3, 8, 1), last=nn.Conv2d(11, 4, 1))


def wrapped_around() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, padding_mode="circular"))

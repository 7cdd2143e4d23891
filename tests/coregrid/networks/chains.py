"""Small networks of a user's own, by `module:callable`: some that the grid runs, some that it refuses."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Says(nn.Module):
    """Layers, and what a forward does with them."""

    def __init__(self, forward: Callable[[Says, Tensor], Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self._forward = forward
        for name, layer in layers.items():
            self.add_module(name, layer)

    def forward(self, x: Tensor) -> Tensor:
        return self._forward(self, x)


def norm(channels: int) -> nn.BatchNorm2d:
    """A batch norm that does something."""
    found = nn.BatchNorm2d(channels)
    found.running_mean.copy_(torch.randn(channels))
    found.running_var.copy_(torch.rand(channels) + 0.5)
    return found


def flattened() -> nn.Module:
    """Images of 16 x 16 that end as 4 x 4 pixels of 24 channels, flattened."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 24, 3, padding=1, bias=False),
        norm(24),
        nn.ReLU6(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(24 * 16, 20),
        nn.Hardswish(),
        nn.Dropout(),
        nn.Linear(20, 10),
    )


def squashed() -> nn.Module:
    """Activations of many kinds, on a residual sum as well, and a mean in the end."""

    def forward(self: Says, x: Tensor) -> Tensor:
        x = self.act(self.first(x))
        x = self.last_act(self.body(x) + self.short(x))
        return self.head(x.mean((2, 3)))

    return Says(
        forward,
        first=nn.Conv2d(3, 16, 3, stride=2, padding=1),
        act=nn.SiLU(),
        body=nn.Sequential(nn.Conv2d(16, 16, 3, padding=1, groups=16), norm(16), nn.ReLU6(), nn.Conv2d(16, 32, 1)),
        short=nn.Conv2d(16, 32, 1),
        last_act=nn.Tanh(),
        head=nn.Linear(32, 5),
    )


def residual_first() -> nn.Module:
    return Says(lambda self, x: self.last(self.first(x) + x), first=nn.Conv2d(3, 3, 1), last=nn.Conv2d(3, 8, 1))


def mean_first() -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 8, 1))


def nothing() -> nn.Module:
    return nn.Sequential(nn.Identity())


def read_before_its_activation() -> nn.Module:
    def forward(self: Says, x: Tensor) -> Tensor:
        x = self.first(x)
        return self.act(x) + x

    return Says(forward, first=nn.Conv2d(3, 8, 3, padding=1), act=nn.ReLU())


def norm_first() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), norm(8), nn.Conv2d(8, 8, 1))


def activated_pool() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 1), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(8, 8, 1))


def number_added() -> nn.Module:
    return Says(lambda self, x: self.first(x) + 1, first=nn.Conv2d(3, 8, 1))


def concatenated() -> nn.Module:
    def forward(self: Says, x: Tensor) -> Tensor:
        return self.last(torch.cat([self.first(x), x], dim=1))

    return Says(forward, first=nn.Conv2d(3, 8, 1), last=nn.Conv2d(11, 4, 1))


def wrapped_around() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, padding_mode="circular"))

"""U-Net in plain torch, padded so that output and input have the same size."""

from __future__ import annotations

import torch
from torch import Tensor, nn

LEVELS = 4


class UNet(nn.Module):
    """U-Net with four levels and concatenated skip connections. Height and width must be multiples of 16."""

    def __init__(self, *, num_classes: int = 2, in_channels: int = 3, width: int = 64) -> None:
        super().__init__()
        self.first = _build_double_conv(in_channels, width)
        self.down = nn.ModuleList(_build_double_conv(width << level, width << level + 1) for level in range(LEVELS))
        self.pool = nn.MaxPool2d(2)
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(width << level + 1, width << level, 2, stride=2) for level in reversed(range(LEVELS))
        )
        self.joined = nn.ModuleList(
            _build_double_conv(width << level + 1, width << level) for level in reversed(range(LEVELS))
        )
        self.last = nn.Conv2d(width, num_classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        skips = []
        for down in self.down:
            skips.append(x)
            x = down(self.pool(x))
        for up, joined in zip(self.up, self.joined, strict=True):
            x = joined(torch.cat([skips.pop(), up(x)], 1))
        return self.last(x)  # type: ignore[no-any-return]


def _build_double_conv(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers)

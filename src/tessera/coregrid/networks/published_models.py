"""Networks with published times that are not in the model catalogue, named as `module:callable`."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from tessera.models.unet import UNet
from tessera.models.vgg import VGG

VGG_STAGES = (0, 4, 9, 18, 27, 36)  # layers of VGG-19 at which the resolution changes


class VGGUNet(nn.Module):
    """U-Net whose encoder is VGG-19. Height and width must be multiples of 16."""

    def __init__(self) -> None:
        super().__init__()
        features = VGG(19).features
        self.stages = nn.ModuleList(features[first:last] for first, last in pairwise(VGG_STAGES))
        channels = (512, 512, 256, 128, 64)
        self.up = nn.ModuleList(nn.ConvTranspose2d(before, after, 2, stride=2) for before, after in pairwise(channels))
        self.joined = nn.ModuleList(
            nn.Sequential(
                *(
                    layer
                    for inputs in (2 * outputs, outputs)
                    for layer in (nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU(True))
                )
            )
            for outputs in channels[1:]
        )
        self.last = nn.Conv2d(channels[-1], 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for stage in self.stages:
            x = stage(x)
            skips.append(x)
        skips.pop()
        for up, joined in zip(self.up, self.joined, strict=True):
            x = joined(torch.cat([up(x), skips.pop()], 1))
        return self.last(x).sigmoid()  # type: ignore[no-any-return]


def vgg19_unet() -> nn.Module:
    """Build the VGG-19 U-Net."""
    return VGGUNet().eval()


def unet_32() -> nn.Module:
    """Build a U-Net of 32 channels at full resolution."""
    return UNet(num_classes=1, width=32).eval()

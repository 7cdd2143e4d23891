"""A convolution on a device, held against torch's own."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

import tessera.coregrid as ttnn
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import DataType


def by_torch(conv: Convolution, images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """The convolution as torch has it, `(N*Ho*Wo, Co)`, from images `(N, H, W, C)`, in float64."""
    (top, bottom), (left, right) = conv.padding
    found = F.conv2d(
        F.pad(images.double().permute(0, 3, 1, 2), (left, right, top, bottom)),
        weight.double(),
        None if bias is None else bias.double(),
        stride=conv.stride,
        dilation=conv.dilation,
        groups=conv.groups,
    )
    return found.permute(0, 2, 3, 1).reshape(conv.outputs, -1)


class Problem:
    """A convolution with random numbers."""

    def __init__(self, conv: Convolution, bias: bool = True, dtype: DataType = ttnn.float32) -> None:
        self.conv, self.dtype = conv, dtype
        self.images = torch.randn(conv.batch, conv.height, conv.width, conv.in_channels)
        self.weight = torch.randn(conv.out_channels, conv.in_channels // conv.groups, *conv.kernel)
        self.bias = torch.randn(conv.out_channels) if bias else None

    def expected(self) -> torch.Tensor:
        return by_torch(self.conv, self.images, self.weight, self.bias)

    def arguments(self, device: ttnn.Device) -> dict[str, Any]:
        conv = self.conv
        (top, bottom), (left, right) = conv.padding
        bias = None if self.bias is None else ttnn.from_torch(self.bias.reshape(1, 1, 1, -1))
        return {
            "input_tensor": ttnn.from_torch(self.images, self.dtype),
            "weight_tensor": ttnn.from_torch(self.weight),
            "in_channels": conv.in_channels,
            "out_channels": conv.out_channels,
            "device": device,
            "bias_tensor": bias,
            "kernel_size": conv.kernel,
            "stride": conv.stride,
            "padding": (top, bottom, left, right),
            "dilation": conv.dilation,
            "batch_size": conv.batch,
            "input_height": conv.height,
            "input_width": conv.width,
            "groups": conv.groups,
        }

    def run(self, device: ttnn.Device, **settings: Any) -> torch.Tensor:
        """The device's result, `(N*Ho*Wo, Co)`; everything it allocated is freed again."""
        made = ttnn.conv2d(**self.arguments(device) | settings)
        assert made.shape == (1, 1, self.conv.outputs, self.conv.out_channels)
        found = ttnn.to_torch(made).reshape(self.conv.outputs, -1).float()
        ttnn.deallocate(made)
        assert device.arena.used == 0
        assert device.banks.used == 0
        return found


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, as a fraction of the largest number."""
    return float((found.double() - expected).abs().max() / expected.abs().max().clamp(min=1e-12))


def correlation(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Pearson's, over all numbers."""
    both = torch.stack([found.double().flatten(), expected.double().flatten()])
    return float(torch.corrcoef(both)[0, 1])

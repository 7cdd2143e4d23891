"""A random convolution on a device, and its reference in torch."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

import tessera.coregrid as ttnn
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import DataType


def compute_by_torch(
    conv: Convolution, images: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """Convolve images `(N, H, W, C)` in torch in float64; returns `(N*Ho*Wo, Co)`."""
    (top, bottom), (left, right) = conv.padding
    output = F.conv2d(
        F.pad(images.double().permute(0, 3, 1, 2), (left, right, top, bottom)),
        weight.double(),
        None if bias is None else bias.double(),
        stride=conv.stride,
        dilation=conv.dilation,
        groups=conv.groups,
    )
    return output.permute(0, 2, 3, 1).reshape(conv.output_sticks, -1)


class RandomConv:
    """A convolution with random images, weights and bias."""

    def __init__(self, conv: Convolution, bias: bool = True, dtype: DataType = ttnn.float32) -> None:
        self.conv, self.dtype = conv, dtype
        self.images = torch.randn(conv.batch, conv.height, conv.width, conv.in_channels)
        self.weight = torch.randn(conv.out_channels, conv.in_channels // conv.groups, *conv.kernel)
        self.bias = torch.randn(conv.out_channels) if bias else None

    def compute_reference(self) -> torch.Tensor:
        return compute_by_torch(self.conv, self.images, self.weight, self.bias)

    def build_arguments(self, device: ttnn.Device) -> dict[str, Any]:
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
        """Run the convolution on a device, check that all memory is freed, and return its output `(N*Ho*Wo, Co)`."""
        result = ttnn.conv2d(**self.build_arguments(device) | settings)
        assert result.shape == (1, 1, self.conv.output_sticks, self.conv.out_channels)
        output = ttnn.to_torch(result).reshape(self.conv.output_sticks, -1).float()
        ttnn.deallocate(result)
        assert device.arena.used == 0
        assert device.banks.used == 0
        return output


def compute_relative_error(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference relative to the largest value."""
    return float((result.double() - expected).abs().max() / expected.abs().max().clamp(min=1e-12))


def compute_correlation(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Return Pearson's correlation of two tensors over all elements."""
    both = torch.stack([result.double().flatten(), expected.double().flatten()])
    return float(torch.corrcoef(both)[0, 1])

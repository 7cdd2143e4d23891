"""References of pools and of upsampling in torch, of images `(N, H, W, C)`. Pools return `(1, 1, N*H*W, C)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional as F

from tessera.coregrid.convolution import parse_padding


def _split_padding(
    images: torch.Tensor, sizes: tuple[int, int, int, int], padding: Sequence[int], value: float
) -> tuple[torch.Tensor, list[int]]:
    """Return images `(N, C, H, W)` and the padding of a pool: 0 for images that are padded here, unequally."""
    (top, bottom), (left, right) = parse_padding(padding)
    images = images.reshape(sizes).permute(0, 3, 1, 2).float()
    if top == bottom and left == right:
        return images, [top, left]
    return F.pad(images, (left, right, top, bottom), value=value), [0, 0]


def golden_maxpool2d(
    input_tensor: torch.Tensor,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int] = (1, 1),
    ceil_mode: bool = False,
    **_: Any,
) -> torch.Tensor:
    """Return the maxima of windows."""
    sizes = batch_size, input_h, input_w, channels
    images, around = _split_padding(input_tensor, sizes, padding, -torch.inf)
    output = F.max_pool2d(images, list(kernel_size), list(stride), around, list(dilation), ceil_mode)
    return output.permute(0, 2, 3, 1).reshape(1, 1, -1, channels).to(input_tensor.dtype)


def golden_avg_pool2d(
    input_tensor: torch.Tensor,
    batch_size: int,
    input_h: int,
    input_w: int,
    channels: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    **_: Any,
) -> torch.Tensor:
    """Return the means of windows."""
    sizes = batch_size, input_h, input_w, channels
    images, around = _split_padding(input_tensor, sizes, padding, 0.0)
    output = F.avg_pool2d(
        images, list(kernel_size), list(stride), around, ceil_mode, count_include_pad, divisor_override
    )
    return output.permute(0, 2, 3, 1).reshape(1, 1, -1, channels).to(input_tensor.dtype)


def golden_upsample(
    input_tensor: torch.Tensor, scale_factor: float | Sequence[float], mode: str = "nearest", **_: Any
) -> torch.Tensor:
    """Return upsampled images."""
    factors = scale_factor if isinstance(scale_factor, int | float) else tuple(scale_factor)
    images = input_tensor.permute(0, 3, 1, 2).float()
    return F.interpolate(images, scale_factor=factors, mode=mode).permute(0, 2, 3, 1).to(input_tensor.dtype)

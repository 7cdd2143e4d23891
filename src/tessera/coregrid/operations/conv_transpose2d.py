"""A transposed convolution as a convolution: over images with zeros between their pixels, with turned weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, SliceConfig
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.memory_config import MemoryConfig
from tessera.coregrid.device.tensors import Tensor, deallocate, from_torch
from tessera.coregrid.formats import DataType
from tessera.coregrid.operations.conv2d import conv2d
from tessera.coregrid.operations.images import check_images, paddings, pair
from tessera.coregrid.operations.resample import with_zeros_between
from tessera.errors import TesseraError


def conv_transpose2d(
    input_tensor: Tensor,
    weight_tensor: Tensor,
    in_channels: int,
    out_channels: int,
    device: Device,
    bias_tensor: Tensor | None = None,
    kernel_size: Sequence[int] = (1, 1),
    stride: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0),
    output_padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    batch_size: int = 1,
    input_height: int = 1,
    input_width: int = 1,
    conv_config: Conv2dConfig | None = None,
    compute_config: ComputeConfig | None = None,
    groups: int = 1,
    memory_config: MemoryConfig | None = None,
    slice_config: SliceConfig | None = None,
    return_weights_and_bias: bool = False,
    return_output_dim: bool = False,
    dtype: DataType | None = None,
) -> Any:
    """Transposed convolution of images `(N, H, W, C)` with weights `(Ci, Co / groups, Kh, Kw)`; see `conv2d`."""
    sizes = batch_size, input_height, input_width, in_channels
    check_images(input_tensor, sizes, device)
    kernel, apart, steps = pair("kernel_size", kernel_size), pair("dilation", dilation), pair("stride", stride)
    more = pair("output_padding", output_padding)
    sides: list[int] = []
    for axis, (before, after) in enumerate(paddings(padding)):
        reach = apart[axis] * (kernel[axis] - 1)
        if not 0 <= more[axis] < max(steps[axis], apart[axis]):
            raise TesseraError("output_padding is less than the stride or the dilation", got=output_padding)
        around = reach - before, reach - after + more[axis]
        if min(around) < 0:
            raise TesseraError(
                "a transposed convolution is padded by its kernel's reach at most",
                got=padding,
                allowed=f"up to {reach}",
            )
        sides += around
    weights = weight_tensor
    if not weights.is_on_device:
        weights = from_torch(turned(weights.host, groups), weights.dtype, layout=weights.layout)
    spread = with_zeros_between(input_tensor, sizes, steps, device)
    if conv_config is not None and conv_config.deallocate_activation:
        deallocate(input_tensor)
    try:
        return conv2d(
            input_tensor=spread,
            weight_tensor=weights,
            in_channels=in_channels,
            out_channels=out_channels,
            device=device,
            bias_tensor=bias_tensor,
            kernel_size=kernel,
            padding=sides,
            dilation=apart,
            batch_size=batch_size,
            input_height=spread.shape[1],
            input_width=spread.shape[2],
            conv_config=conv_config,
            compute_config=compute_config,
            groups=groups,
            memory_config=memory_config,
            slice_config=slice_config,
            return_weights_and_bias=return_weights_and_bias,
            return_output_dim=return_output_dim,
            dtype=dtype,
        )
    finally:
        deallocate(spread)


def turned(weight: torch.Tensor, groups: int = 1) -> torch.Tensor:
    """Weights `(Ci, Co / groups, Kh, Kw)` as `(Co, Ci / groups, Kh, Kw)` of the convolution that does the same."""
    inputs, outputs, *kernel = weight.shape
    if inputs % groups:
        raise TesseraError("channels are divided evenly over the groups", got=f"{inputs} in_channels, {groups} groups")
    by_group = weight.reshape(groups, inputs // groups, outputs, *kernel).transpose(1, 2)
    return by_group.reshape(groups * outputs, inputs // groups, *kernel).flip(-1, -2)

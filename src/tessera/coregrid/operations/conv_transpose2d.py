"""Transposed convolution as a convolution of zero-stuffed images with flipped weights."""

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
from tessera.coregrid.operations.inputs import check_images, parse_padding, parse_pair
from tessera.coregrid.operations.resample import insert_zeros
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
    """Compute the transposed convolution of images `(N, H, W, C)` with weights `(Ci, Co / groups, Kh, Kw)`.

    The other arguments and the result are described in `conv2d`.
    """
    sizes = batch_size, input_height, input_width, in_channels
    check_images(input_tensor, sizes, device)
    kernel, apart, steps = (
        parse_pair("kernel_size", kernel_size),
        parse_pair("dilation", dilation),
        parse_pair("stride", stride),
    )
    extra_padding = parse_pair("output_padding", output_padding)
    sides: list[int] = []
    for axis, (before, after) in enumerate(parse_padding(padding)):
        reach = apart[axis] * (kernel[axis] - 1)
        if not 0 <= extra_padding[axis] < max(steps[axis], apart[axis]):
            raise TesseraError("output_padding must be less than the stride or the dilation", got=output_padding)
        around = reach - before, reach - after + extra_padding[axis]
        if min(around) < 0:
            raise TesseraError("padding exceeds the extent of the kernel", got=padding, allowed=f"up to {reach}")
        sides += around
    weights = weight_tensor
    if not weights.is_on_device:
        weights = from_torch(transpose_weights(weights.host, groups), weights.dtype, layout=weights.layout)
    spread = insert_zeros(input_tensor, sizes, steps, device)
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


def transpose_weights(weight: torch.Tensor, groups: int = 1) -> torch.Tensor:
    """Convert weights `(Ci, Co / groups, Kh, Kw)` to convolution weights `(Co, Ci / groups, Kh, Kw)`."""
    inputs, outputs, *kernel = weight.shape
    if inputs % groups:
        raise TesseraError("in_channels must be divisible by groups", got=f"{inputs} in_channels, {groups} groups")
    by_group = weight.reshape(groups, inputs // groups, outputs, *kernel).transpose(1, 2)
    return by_group.reshape(groups * outputs, inputs // groups, *kernel).flip(-1, -2)

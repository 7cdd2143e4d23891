"""Test of the unchanged example of the original documentation, with this package imported as `ttnn`."""

from __future__ import annotations

import torch
from torch.nn import functional as F

import tessera.coregrid as ttnn
from tests.coregrid.operations.agreement import compute_correlation


def test_the_example() -> None:
    device = ttnn.open_device(device_id=0)
    batch_size, in_channels, input_height, input_width = 2, 32, 16, 16
    out_channels, groups, kernel_height, kernel_width = 64, 1, 3, 3
    stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w = 2, 2, 1, 1, 1, 1

    input_shape_nchw = [batch_size, in_channels, input_height, input_width]
    torch_input_tensor_nchw = torch.randn(input_shape_nchw, dtype=torch.bfloat16)
    torch_input_tensor_nhwc = torch.permute(torch_input_tensor_nchw, (0, 2, 3, 1))
    ttnn_input_tensor = ttnn.from_torch(torch_input_tensor_nhwc, ttnn.bfloat16)

    weight_shape = [out_channels, in_channels // groups, kernel_height, kernel_width]
    torch_weight_tensor = torch.randn(weight_shape, dtype=torch.bfloat16)
    ttnn_weight_tensor = ttnn.from_torch(torch_weight_tensor, ttnn.bfloat16)

    conv_bias_shape = [1, 1, 1, out_channels]
    torch_bias_tensor = torch.randn(conv_bias_shape, dtype=torch.bfloat16)
    ttnn_bias_tensor = ttnn.from_torch(torch_bias_tensor, ttnn.bfloat16)

    conv_config = ttnn.Conv2dConfig(dtype=ttnn.bfloat16, weights_dtype=ttnn.bfloat16)

    [ttnn_output_tensor_on_device, [out_height, out_width]] = ttnn.conv2d(
        input_tensor=ttnn_input_tensor,
        weight_tensor=ttnn_weight_tensor,
        in_channels=in_channels,
        out_channels=out_channels,
        device=device,
        bias_tensor=ttnn_bias_tensor,
        kernel_size=(kernel_height, kernel_width),
        stride=(stride_h, stride_w),
        padding=(pad_h, pad_w),
        dilation=(dilation_h, dilation_w),
        batch_size=batch_size,
        input_height=input_height,
        input_width=input_width,
        conv_config=conv_config,
        return_output_dim=True,
    )
    assert (out_height, out_width) == (8, 8)

    ttnn_output_tensor = ttnn.from_device(ttnn_output_tensor_on_device)
    torch_output_tensor = ttnn.to_torch(ttnn_output_tensor)
    torch_output_tensor = torch_output_tensor.reshape(batch_size, out_height, out_width, torch_output_tensor.shape[-1])
    torch_output_tensor = torch_output_tensor[:, :, :, :out_channels]
    torch_output_tensor = torch.permute(torch_output_tensor, (0, 3, 1, 2))
    ttnn.close_device(device)

    expected = F.conv2d(
        torch_input_tensor_nchw.float(), torch_weight_tensor.float(), torch_bias_tensor.float().flatten(), 2, 1
    )
    assert torch_output_tensor.dtype == torch.bfloat16
    assert compute_correlation(torch_output_tensor, expected) > 0.999


def test_all_api_names_exist() -> None:
    for name in dir(ttnn):
        assert getattr(ttnn, name) is not None or name.startswith("__")

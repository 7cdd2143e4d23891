"""Tests of weights and bias as matrices: the matrix product with the activations equals the convolution."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from torch.nn import functional as F

from tessera.coregrid.convolution import Convolution
from tessera.coregrid.execution.weights import (
    WeightLayout,
    build_bias_matrix,
    build_weight_matrix,
    lay_out_weights,
)
from tessera.coregrid.planning.halo import PaddedSticks
from tessera.coregrid.planning.plan import plan_one
from tests.coregrid.draws import convolutions
from tests.coregrid.machines import make_small_machine


def build_activation_matrix(images: torch.Tensor, conv: Convolution) -> torch.Tensor:
    """Return the windows of images `(N, H, W, C)` as rows `[N*Ho*Wo, Kh*Kw*Ci]`, in im2col order."""
    sticks = PaddedSticks((conv.batch, conv.height, conv.width), conv.window)
    # all padding refers to one stick of zeros
    padded = torch.cat([images.reshape(-1, conv.in_channels), images.new_zeros(1, conv.in_channels)])
    source = torch.from_numpy(sticks.input_stick_numbers[sticks.corners[:, None] + sticks.taps])
    return padded[source].reshape(conv.output_sticks, -1)


@settings(max_examples=60, deadline=None)
@given(convolutions())
def test_matrix_product_equals_the_convolution(conv: Convolution) -> None:
    images = torch.randn(conv.batch, conv.height, conv.width, conv.in_channels, dtype=torch.float64)
    weight = torch.randn(conv.out_channels, conv.in_channels // conv.groups, *conv.kernel, dtype=torch.float64)
    activations = build_activation_matrix(images, conv)
    assert activations.shape == (conv.output_sticks, conv.kernel[0] * conv.kernel[1] * conv.in_channels)
    (top, bottom), (left, right) = conv.padding
    expected = F.conv2d(
        F.pad(images.permute(0, 3, 1, 2), (left, right, top, bottom)),
        weight,
        stride=conv.stride,
        dilation=conv.dilation,
        groups=conv.groups,
    )
    output = activations @ build_weight_matrix(weight, conv.groups)
    torch.testing.assert_close(output, expected.permute(0, 2, 3, 1).reshape(conv.output_sticks, -1))


def test_order_of_weight_matrix_rows() -> None:
    weight = torch.arange(2 * 3 * 2 * 2, dtype=torch.float32).reshape(2, 3, 2, 2)
    matrix = build_weight_matrix(weight)
    assert matrix.shape == (12, 2)
    for output in range(2):
        for channel in range(3):
            for row in range(2):
                for column in range(2):
                    assert matrix[(row * 2 + column) * 3 + channel, output] == weight[output, channel, row, column]


def test_block_weights_are_ordered_by_shard() -> None:
    conv = Convolution(
        batch=1, height=8, width=8, in_channels=128, out_channels=64, kernel=(3, 3), padding=((1, 1), (1, 1))
    )
    weight = torch.randn(64, 128, 3, 3)
    plan = plan_one(conv, make_small_machine(), layout="BLOCK")
    layout = WeightLayout.of(plan)
    assert (layout.columns, layout.in_width) == (4, 32)
    prepared = lay_out_weights(weight, layout)
    assert prepared.shape == (9 * 128, 64)
    shard, row, column, channel = 2, 1, 2, 5
    assert torch.equal(
        prepared[((shard * 3 + row) * 3 + column) * 32 + channel], weight[:, shard * 32 + channel, row, column]
    )


def test_height_pads_each_kernel_row_to_tiles() -> None:
    conv = Convolution(batch=1, height=8, width=8, in_channels=10, out_channels=5, kernel=(3, 3))
    layout = WeightLayout.of(plan_one(conv, make_small_machine(), layout="HEIGHT"))
    assert (layout.in_width, layout.block_rows, layout.block_height) == (32, 96, 96)
    prepared = lay_out_weights(torch.randn(5, 10, 3, 3), layout)
    assert prepared.shape == (3 * 96, 32)
    assert not prepared[:, 5:].any()
    assert not prepared.view(9, 32, 32)[:, 10:].any()


def test_bias_is_one_tile_high() -> None:
    bias = torch.randn(1, 1, 1, 5)
    matrix = build_bias_matrix(bias, 32)
    assert matrix.shape == (32, 32)
    assert torch.equal(matrix[0, :5], bias.flatten())
    assert not matrix[1:].any()
    assert not matrix[0, 5:].any()

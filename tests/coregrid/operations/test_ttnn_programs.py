"""Tests of programs written for ttnn, with older and newer names of its API."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import tessera.coregrid as ttnn
from tessera.errors import TesseraError
from tests.coregrid.operations.agreement import compute_correlation

BATCH, INPUTS, OUTPUTS, HEIGHT, WIDTH = 2, 32, 64, 14, 14


class Numbers:
    """A convolution with random images, weights and bias, and its output in torch."""

    def __init__(self) -> None:
        self.images = torch.randn(BATCH, INPUTS, HEIGHT, WIDTH, dtype=torch.bfloat16).float()
        self.weight = torch.randn(OUTPUTS, INPUTS, 3, 3, dtype=torch.bfloat16).float() / 16
        self.bias = torch.randn(1, 1, 1, OUTPUTS, dtype=torch.bfloat16).float()

    def compute_reference(self) -> torch.Tensor:
        return F.conv2d(self.images, self.weight, self.bias.flatten(), padding=1)

    def to_nhwc(self) -> torch.Tensor:
        return self.images.permute(0, 2, 3, 1)


def unflatten(output: ttnn.Tensor, height: int, width: int) -> torch.Tensor:
    result = ttnn.to_torch(ttnn.from_device(output)).float()
    return result.reshape(BATCH, height, width, result.shape[-1])[..., :OUTPUTS].permute(0, 3, 1, 2)


def test_a_config_set_field_by_field() -> None:
    numbers, device = Numbers(), ttnn.open_device(device_id=0, l1_small_size=16384)
    conv_config = ttnn.Conv2dConfig(
        weights_dtype=ttnn.bfloat16,
        shard_layout=ttnn.TensorMemoryLayout.HEIGHT_SHARDED,
        deallocate_activation=False,
        enable_act_double_buffer=True,
        enable_split_reader=True,
    )
    conv_config.act_block_h_override = 32
    conv_config.core_grid = ttnn.CoreRangeSet({ttnn.CoreRange(ttnn.CoreCoord(0, 0), ttnn.CoreCoord(3, 1))})
    conv_config.override_sharding_config = True
    compute_config = ttnn.init_device_compute_kernel_config(
        device.arch(),
        math_fidelity=ttnn.MathFidelity.HiFi4,
        math_approx_mode=False,
        fp32_dest_acc_en=True,
        packer_l1_acc=True,
    )
    [output, [out_height, out_width], [weights, bias]] = ttnn.conv2d(
        input_tensor=ttnn.from_torch(
            numbers.to_nhwc(), dtype=ttnn.bfloat16, layout=ttnn.ROW_MAJOR_LAYOUT, device=device
        ),
        weight_tensor=ttnn.from_torch(numbers.weight, ttnn.bfloat16),
        in_channels=INPUTS,
        out_channels=OUTPUTS,
        device=device,
        bias_tensor=ttnn.from_torch(numbers.bias, ttnn.bfloat16),
        kernel_size=(3, 3),
        stride=(1, 1),
        padding=(1, 1),
        dilation=(1, 1),
        batch_size=BATCH,
        input_height=HEIGHT,
        input_width=WIDTH,
        conv_config=conv_config,
        compute_config=compute_config,
        groups=1,
        return_output_dim=True,
        return_weights_and_bias=True,
    )
    assert output.memory_config().shard_spec.grid.size == 8
    assert weights.is_on_device
    assert bias.is_on_device
    assert compute_correlation(unflatten(output, out_height, out_width), numbers.compute_reference()) > 0.9999


def test_the_newer_names() -> None:
    numbers = Numbers()
    with ttnn.manage_device(device_id=0) as device:
        output, (out_height, out_width) = ttnn.conv2d(
            input_tensor=ttnn.to_layout(ttnn.from_torch(numbers.to_nhwc(), ttnn.bfloat16), ttnn.TILE_LAYOUT),
            weight_tensor=ttnn.from_torch(numbers.weight, ttnn.bfloat16),
            bias_tensor=ttnn.from_torch(numbers.bias, ttnn.bfloat16),
            device=device,
            in_channels=INPUTS,
            out_channels=OUTPUTS,
            batch_size=BATCH,
            input_height=HEIGHT,
            input_width=WIDTH,
            kernel_size=(3, 3),
            padding=(1, 1, 1, 1),
            dtype=ttnn.bfloat8_b,
            conv_config=ttnn.Conv2dConfig(
                weights_dtype=ttnn.bfloat8_b, activation=ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU)
            ),
            compute_config=ttnn.WormholeComputeKernelConfig(math_fidelity=ttnn.MathFidelity.LoFi),
            slice_config=ttnn.Conv2dSliceConfig(slice_type=ttnn.Conv2dDRAMSliceHeight, num_slices=2),
            memory_config=ttnn.DRAM_MEMORY_CONFIG,
            return_output_dim=True,
        )
        assert output.dtype is ttnn.bfloat8_b
        assert compute_correlation(unflatten(output, out_height, out_width), numbers.compute_reference().relu()) > 0.99
    assert not device.is_open


@pytest.mark.parametrize("strategy", list(ttnn.ShardStrategy))
def test_an_input_with_a_user_defined_shard_spec(strategy: ttnn.ShardStrategy) -> None:
    numbers, device = Numbers(), ttnn.open_device()
    grid = ttnn.CoreGrid(y=2, x=2) if strategy is not ttnn.ShardStrategy.WIDTH else ttnn.CoreGrid(y=1, x=1)
    config = ttnn.create_sharded_memory_config(
        (1, 1, BATCH * HEIGHT * WIDTH, INPUTS), core_grid=grid, strategy=strategy
    )
    flat = numbers.to_nhwc().reshape(1, 1, -1, INPUTS)
    tensor = ttnn.from_torch(flat, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device, memory_config=config)
    assert tensor.memory_config() == config
    output = ttnn.conv2d(
        input_tensor=tensor,
        weight_tensor=ttnn.from_torch(numbers.weight, ttnn.bfloat16),
        bias_tensor=ttnn.from_torch(numbers.bias, ttnn.bfloat16),
        in_channels=INPUTS,
        out_channels=OUTPUTS,
        device=device,
        kernel_size=[3, 3],
        padding=[1, 1],
        batch_size=BATCH,
        input_height=HEIGHT,
        input_width=WIDTH,
    )
    assert output.memory_config().memory_layout == strategy.value
    assert compute_correlation(unflatten(output, HEIGHT, WIDTH), numbers.compute_reference()) > 0.9999


def test_explicit_shard_shape() -> None:
    config = ttnn.create_sharded_memory_config(
        [1, 1, 64, 32],
        ttnn.CoreGrid(y=2, x=4),
        ttnn.ShardStrategy.BLOCK,
        ttnn.ShardOrientation.COL_MAJOR,
        use_height_and_width_as_shard_shape=True,
    )
    assert config.shard_spec == ttnn.ShardSpec(ttnn.CoreGrid(y=2, x=4), [64, 32], ttnn.ShardOrientation.COL_MAJOR)
    turned = ttnn.create_sharded_memory_config(
        [1, 1, 256, 64], ttnn.CoreGrid(y=2, x=4), ttnn.ShardStrategy.BLOCK, ttnn.ShardOrientation.COL_MAJOR
    )
    assert turned.shard_spec.shape == (64, 32)  # 256 rows over four core columns, 64 columns over two core rows


def test_a_config_may_change_between_two_calls() -> None:
    """Check that the cached program of the first call is not used after the config has changed."""
    numbers, device = Numbers(), ttnn.open_device()
    config = ttnn.Conv2dConfig(dtype=ttnn.float32, weights_dtype=ttnn.float32)

    def run() -> torch.Tensor:
        output = ttnn.conv2d(
            ttnn.from_torch(numbers.to_nhwc(), ttnn.float32),
            ttnn.from_torch(numbers.weight),
            INPUTS,
            OUTPUTS,
            device,
            ttnn.from_torch(numbers.bias),
            (3, 3),
            (1, 1),
            (1, 1),
            (1, 1),
            BATCH,
            HEIGHT,
            WIDTH,
            conv_config=config,
        )
        return unflatten(output, HEIGHT, WIDTH)

    expected = numbers.compute_reference()
    torch.testing.assert_close(run(), expected, atol=1e-4, rtol=1e-4)
    config.activation = "relu"
    torch.testing.assert_close(run(), expected.relu(), atol=1e-4, rtol=1e-4)
    config.activation = None
    torch.testing.assert_close(run(), expected, atol=1e-4, rtol=1e-4)
    config.act_block_h_override = 33
    with pytest.raises(TesseraError, match="multiple of 32"):
        run()

"""Tests of arguments of ttnn's functions: each is applied as in torch, or refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import tessera.coregrid.ttnn as ttnn
from tessera.coregrid.device.device import Device
from tessera.errors import TesseraError
from tests.coregrid.machines import make_small_machine

SHAPE = (1, 1, 32, 64)


def open_small() -> Device:
    return Device(make_small_machine())


def load(values: torch.Tensor, device: Device, **options: Any) -> Any:
    return ttnn.from_torch(values, ttnn.float32, layout=ttnn.TILE_LAYOUT, device=device, **options)


@pytest.mark.parametrize(
    ("name", "arguments", "reference"),
    [
        ("leaky_relu", {"negative_slope": 0.3}, lambda x: F.leaky_relu(x, 0.3)),
        ("elu", {"alpha": 0.123456789}, lambda x: F.elu(x, 0.123456789)),
        ("softplus", {"beta": 2.0, "threshold": 1.0}, lambda x: F.softplus(x, 2.0, 1.0)),
        ("hardtanh", {"min_val": -0.2, "max_val": 0.4}, lambda x: F.hardtanh(x, -0.2, 0.4)),
        ("gelu", {"fast_and_approximate_mode": True}, lambda x: F.gelu(x, approximate="tanh")),
        ("relu", {"queue_id": 0, "output_tensor": None}, F.relu),
    ],
)
def test_parameters_of_an_activation(
    name: str, arguments: dict[str, Any], reference: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    values = torch.randn(SHAPE)
    output = getattr(ttnn, name)(load(values, open_small()), **arguments)
    torch.testing.assert_close(ttnn.to_torch(output), reference(values))


def test_format_of_an_activation() -> None:
    output = ttnn.relu(load(torch.randn(SHAPE), open_small()), dtype=ttnn.bfloat16)
    assert output.dtype is ttnn.bfloat16


def test_activations_of_operands() -> None:
    device, a, b = open_small(), torch.randn(SHAPE), torch.randn(SHAPE)
    for name, compute in (("add", torch.add), ("mul", torch.mul)):
        output = getattr(ttnn, name)(
            load(a, device),
            load(b, device),
            input_tensor_a_activations=[ttnn.UnaryOpType.RELU],
            input_tensor_b_activations=[ttnn.UnaryWithParam(ttnn.UnaryOpType.LEAKY_RELU, 0.5)],
            activations=[ttnn.UnaryOpType.TANH],
        )
        torch.testing.assert_close(ttnn.to_torch(output), compute(a.relu(), F.leaky_relu(b, 0.5)).tanh())


@pytest.mark.parametrize(
    ("name", "count", "arguments"),
    [
        ("relu", 1, {"output_tensor": 1}),
        ("relu", 1, {"memory_confg": 1}),
        ("div", 2, {"rounding_mode": "floor"}),
        ("add", 2, {"output_tensor": 1}),
        ("add_", 2, {"input_tensor_a_activations": ["relu"]}),
        ("softmax", 1, {"output_tensor": 1}),
        ("sum", 1, {"output_tensor": 1}),
        ("tilize", 1, {"pad_value": 1.0}),
        ("upsample", 1, {"scale_factor": 2, "moode": "bilinear"}),
        ("global_avg_pool2d", 1, {"output_tensor": 1}),
    ],
)
def test_an_argument_without_effect_is_refused(name: str, count: int, arguments: dict[str, Any]) -> None:
    device = open_small()
    operands = [load(torch.randn(SHAPE), device) for _ in range(count)]
    wrong = [*arguments][-1]
    with pytest.raises(TesseraError, match=f"{name} does not support the argument {wrong}"):
        getattr(ttnn, name)(*operands, **arguments)


@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_a_misspelt_argument_of_a_pool_is_refused(name: str) -> None:
    images = load(torch.randn(1, 1, 64, 32), open_small())
    pool, sizes = getattr(ttnn, name), (1, 8, 8, 32, (2, 2), (2, 2))
    pool(images, *sizes, applied_shard_scheme=ttnn.TensorMemoryLayout.HEIGHT_SHARDED)
    with pytest.raises(TesseraError, match=f"{name} does not support the argument ceil_mod"):
        pool(images, *sizes, ceil_mod=True)


def test_reductions_and_norms() -> None:
    device, a, b = open_small(), torch.randn(SHAPE), torch.randn(SHAPE)
    x, y = load(a, device), load(b, device)
    torch.testing.assert_close(ttnn.to_torch(ttnn.sum(x, -1, scalar=0.25)), a.sum(-1, keepdim=True) / 4)
    torch.testing.assert_close(ttnn.to_torch(ttnn.mean(x, -1, scalar=3.0)), a.mean(-1, keepdim=True) * 3)
    output = ttnn.layer_norm(x, residual_input_tensor=y, epsilon=1e-5)
    torch.testing.assert_close(ttnn.to_torch(output), F.layer_norm(a + b, (64,)))
    with pytest.raises(TesseraError, match="batch_norm does not compute statistics"):
        ttnn.batch_norm(x, running_mean=y, running_var=y, training=True)


@pytest.mark.parametrize("fused", ["relu", ("leaky_relu", 0.2)])
def test_activation_of_a_matmul_program(fused: Any) -> None:
    device, a, b = open_small(), torch.randn(1, 1, 32, 64), torch.randn(1, 1, 64, 32)
    program = ttnn.MatmulMultiCoreReuseMultiCastProgramConfig(in0_block_w=2, fused_activation=fused)
    output = ttnn.matmul(load(a, device), load(b, device), program_config=program)
    expected = F.leaky_relu(a @ b, 0.2 if fused[1] == 0.2 else 0.0)
    torch.testing.assert_close(ttnn.to_torch(output), expected, atol=1e-4, rtol=1e-4)
    with pytest.raises(TesseraError, match="a matrix product has one activation"):
        ttnn.matmul(load(a, device), load(b, device), program_config=program, activation="relu")


@pytest.mark.parametrize("approximate", [False, True])
def test_approximation_of_a_matmul(approximate: bool) -> None:
    device, a = open_small(), torch.linspace(-4, 4, 2048).reshape(1, 1, 64, 32).bfloat16().float()
    compute = ttnn.ComputeConfig(math_approx_mode=approximate, fp32_dest_acc_en=True)
    x = ttnn.from_torch(a, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    eye = ttnn.from_torch(torch.eye(32)[None, None], ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device)
    output = ttnn.matmul(x, eye, activation="gelu", compute_kernel_config=compute)
    expected = F.gelu(a, approximate="tanh" if approximate else "none").bfloat16()
    assert torch.equal(ttnn.to_torch(output), expected)


def test_formats_and_places_of_conversions() -> None:
    device, values = open_small(), torch.randn(SHAPE)
    rows = ttnn.from_torch(values, ttnn.float32, device=device)
    tiles = ttnn.tilize(rows, dtype=ttnn.bfloat16, memory_config=ttnn.L1_MEMORY_CONFIG)
    assert (tiles.dtype, tiles.memory_config()) == (ttnn.bfloat16, ttnn.L1_MEMORY_CONFIG)
    back = ttnn.untilize(tiles, memory_config=ttnn.DRAM_MEMORY_CONFIG)
    assert (back.layout, back.memory_config()) == (ttnn.ROW_MAJOR_LAYOUT, ttnn.DRAM_MEMORY_CONFIG)
    shards = ttnn.interleaved_to_sharded(rows, ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG, output_dtype=ttnn.bfloat16)
    pages = ttnn.sharded_to_interleaved(shards, output_dtype=ttnn.float32)
    assert (shards.dtype, pages.dtype) == (ttnn.bfloat16, ttnn.float32)
    assert torch.equal(ttnn.to_torch(pages), values.bfloat16().float())


def test_a_tensor_in_the_requested_layout_stays_allocated() -> None:
    values = torch.randn(SHAPE)
    tensor = load(values, open_small())
    copy = ttnn.to_layout(tensor, ttnn.TILE_LAYOUT, memory_config=ttnn.L1_MEMORY_CONFIG)
    assert torch.equal(ttnn.to_torch(tensor), values)
    assert torch.equal(ttnn.to_torch(copy), values)


def test_a_trace_of_rewritten_inputs_is_refused() -> None:
    device, values = open_small(), torch.ones(SHAPE)
    tensor = load(values, device)
    trace = ttnn.begin_trace_capture(device, cq_id=0)
    output = ttnn.mul(tensor, 2.0)
    ttnn.end_trace_capture(device, trace, cq_id=0)
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(values, ttnn.float32), tensor)
    ttnn.execute_trace(device, trace, cq_id=0, blocking=False)
    assert torch.equal(ttnn.to_torch(output), 2 * values)
    ttnn.copy_host_to_device_tensor(ttnn.from_torch(5 * values, ttnn.float32), tensor)
    with pytest.raises(TesseraError, match="execute_trace does not repeat the calls"):
        ttnn.execute_trace(device, trace, cq_id=0, blocking=False)


def test_a_trace_that_accumulates_is_refused() -> None:
    device, values = open_small(), torch.ones(SHAPE)
    total = load(values, device, memory_config=ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG)
    trace = ttnn.begin_trace_capture(device)
    ttnn.add_(ttnn.relu(total), total)
    with pytest.raises(TesseraError, match="a trace cannot rewrite a tensor that was created before it"):
        ttnn.add_(total, total)
    ttnn.end_trace_capture(device, trace)
    ttnn.execute_trace(device, trace)


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize("mirror", [False, True])
def test_weights_are_mirrored_once(prepare: bool, mirror: bool) -> None:
    device, images, weight = open_small(), torch.randn(1, 32, 5, 5), torch.randn(32, 32, 3, 3)
    weights = ttnn.from_torch(weight, ttnn.float32)
    if prepare:
        weights = ttnn.prepare_conv_transpose2d_weights(weight_tensor=weights, mirror_kernel=mirror)
    output = ttnn.conv_transpose2d(
        input_tensor=ttnn.from_torch(images.permute(0, 2, 3, 1), ttnn.float32),
        weight_tensor=weights,
        in_channels=32,
        out_channels=32,
        device=device,
        kernel_size=(3, 3),
        batch_size=1,
        input_height=5,
        input_width=5,
        mirror_kernel=mirror,
    )
    expected = F.conv_transpose2d(images, weight if mirror else weight.flip(-1, -2)).permute(0, 2, 3, 1)
    torch.testing.assert_close(ttnn.to_torch(output).reshape(expected.shape), expected, atol=1e-3, rtol=1e-3)


def convolve(device: Device, weight: Any, kernel: int, **options: Any) -> Any:
    return ttnn.conv2d(
        input_tensor=ttnn.from_torch(torch.randn(1, 8, 8, 3), ttnn.float32),
        weight_tensor=weight,
        in_channels=3,
        out_channels=64,
        device=device,
        kernel_size=(kernel, kernel),
        stride=(kernel, kernel),
        batch_size=1,
        input_height=8,
        input_width=8,
        **options,
    )


@pytest.mark.parametrize(
    ("kernel", "shape"), [(1, (64, 3, 2, 2)), (1, (64, 3)), (4, (64, 4, 4, 3)), (4, (64, 3, 2, 8))]
)
def test_weights_of_another_shape_are_refused(kernel: int, shape: tuple[int, ...]) -> None:
    with pytest.raises(TesseraError, match="the weights do not match the convolution"):
        convolve(open_small(), ttnn.from_torch(torch.randn(shape), ttnn.float32), kernel)


def test_prepared_weights_of_another_convolution_are_refused() -> None:
    device, weight = open_small(), ttnn.from_torch(torch.randn(64, 3, 4, 4), ttnn.float32)
    _, (prepared, _) = convolve(device, weight, 4, return_weights_and_bias=True)
    convolve(device, prepared, 4)
    with pytest.raises(TesseraError, match="the prepared weights do not match the convolution"):
        convolve(device, prepared, 2)


def test_folding_of_overlapping_windows_is_refused() -> None:
    device, weight = open_small(), ttnn.from_torch(torch.randn(64, 3, 3, 3), ttnn.float32)
    config = ttnn.Conv2dConfig(enable_kernel_stride_folding=True)
    with pytest.raises(TesseraError, match="enable_kernel_stride_folding requires windows that do not overlap"):
        convolve(device, weight, 3, conv_config=config)
    weight = ttnn.from_torch(torch.randn(64, 3, 2, 2), ttnn.float32)
    convolve(device, weight, 2, conv_config=config)


def test_slices_in_local_memory() -> None:
    config = ttnn.Conv2dSliceConfig(slice_type=ttnn.Conv2dL1Full.L1_FULL)
    assert config.in_local_memory
    assert ttnn.Op2DSliceConfig is ttnn.Conv2dSliceConfig


def test_reference_of_a_padded_pool_in_ceil_mode() -> None:
    from tessera.coregrid.ttnn.operations.pool import golden_maxpool2d

    images = torch.randn(1, 4, 6, 6)
    output = golden_maxpool2d(images.permute(0, 2, 3, 1), 1, 6, 6, 4, (2, 2), (2, 2), (1, 1), ceil_mode=True)
    expected = F.max_pool2d(images, 2, 2, 1, ceil_mode=True).permute(0, 2, 3, 1).reshape(1, 1, -1, 4)
    assert torch.equal(output, expected)

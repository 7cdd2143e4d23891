"""Tests of `tessera.coregrid.ttnn` in place of ttnn: a program, operations compared with torch, and missing names."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
import torch
from torch.nn import functional as F

import tessera.coregrid.ttnn
import tessera.errors
from tests.coregrid.operations.agreement import compute_correlation


@pytest.fixture
def ttnn(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module that `import ttnn` returns."""
    before = set(sys.modules)
    monkeypatch.setitem(sys.modules, "ttnn", tessera.coregrid.ttnn)
    import ttnn as imported

    yield imported
    for name in set(sys.modules) - before:
        if name.startswith("ttnn."):
            del sys.modules[name]


def test_submodules_are_those_of_this_package(ttnn: ModuleType) -> None:
    from ttnn.device import Arch
    from ttnn.operations.activations import get_golden_function_for_activation

    assert Arch.WORMHOLE_B0.value == "wormhole_b0"
    values = torch.randn(8)
    activation = ttnn.UnaryWithParam(ttnn.UnaryOpType.LEAKY_RELU, 0.1)
    golden = get_golden_function_for_activation(activation)
    torch.testing.assert_close(golden(values), F.leaky_relu(values, 0.1))


def test_a_missing_name_is_one_line(ttnn: ModuleType) -> None:
    with pytest.raises(AttributeError, match=r"^ttnn.bernoulli is not modelled by tessera.coregrid.ttnn;[^\n]*$"):
        _ = ttnn.bernoulli
    assert not hasattr(ttnn, "bernoulli")


@pytest.mark.parametrize("kernel", [1, 3, 4])
def test_a_block_of_a_network(ttnn: ModuleType, kernel: int) -> None:
    """A convolution (matmul, window or folded patch), an activation, a residual, a pool and a classifier."""
    device = ttnn.open_device(device_id=0, l1_small_size=16384)
    images, weight = torch.randn(2, 32, 16, 16), torch.randn(64, 32, kernel, kernel) / (32 * kernel * kernel) ** 0.5
    stride, padding = (4, 0) if kernel == 4 else (1, kernel // 2)
    config = ttnn.Conv2dConfig(activation=ttnn.UnaryWithParam(ttnn.UnaryOpType.RELU))
    output, [height, width], [weights, _] = ttnn.conv2d(
        input_tensor=ttnn.from_torch(images.permute(0, 2, 3, 1), ttnn.bfloat16, device=device),
        weight_tensor=ttnn.from_torch(weight, ttnn.bfloat16),
        in_channels=32,
        out_channels=64,
        device=device,
        kernel_size=(kernel, kernel),
        stride=(stride, stride),
        padding=(padding, padding),
        batch_size=2,
        input_height=16,
        input_width=16,
        conv_config=config,
        return_output_dim=True,
        return_weights_and_bias=True,
    )
    expected = F.conv2d(images, weight, stride=stride, padding=padding).relu()
    assert (height, width) == tuple(expected.shape[2:])
    assert weights.is_on_device
    output = ttnn.add(output, output, memory_config=ttnn.DRAM_MEMORY_CONFIG)
    pooled = ttnn.global_avg_pool2d(ttnn.reshape(output, (2, height, width, 64)))
    head = torch.randn(64, 10)
    logits = ttnn.softmax(ttnn.linear(pooled, ttnn.from_torch(head, ttnn.bfloat16), device=device), dim=-1)
    reference = (2 * expected.mean((2, 3)) @ head).softmax(-1)
    assert compute_correlation(ttnn.to_torch(logits).reshape(2, 10), reference) > 0.99
    del output, pooled, logits, weights
    assert device.arena.used == device.banks.used == 0


@pytest.mark.parametrize("sharded", [True, False])
def test_operations_equal_torch(ttnn: ModuleType, sharded: bool) -> None:
    device = ttnn.open_device(device_id=0)
    a, b = torch.randn(1, 2, 64, 96), torch.randn(1, 2, 64, 96)
    place = ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG if sharded else ttnn.DRAM_MEMORY_CONFIG
    left, right = (ttnn.from_torch(values, ttnn.float32, device=device, memory_config=place) for values in (a, b))
    results = {
        "mul": (ttnn.mul(left, right), a * b),
        "sub": (ttnn.sub(left, 2.0), a - 2),
        "silu": (ttnn.silu(left), F.silu(a)),
        "leaky_relu": (ttnn.leaky_relu(left, 0.2), F.leaky_relu(a, 0.2)),
        "permute": (ttnn.permute(left, (0, 3, 1, 2)), a.permute(0, 3, 1, 2)),
        "slice": (ttnn.slice(left, [0, 0, 3, 1], [1, 2, 60, 90]), a[:, :, 3:60, 1:90]),
        "concat": (ttnn.concat([left, right], dim=3), torch.cat([a, b], 3)),
        "pad": (ttnn.pad(left, [(0, 0), (0, 1), (2, 0), (0, 3)], 1.5), F.pad(a, (0, 3, 2, 0, 0, 1), value=1.5)),
        "mean": (ttnn.mean(left, dim=[2, 3]), a.mean((2, 3), keepdim=True)),
        "sum": (ttnn.sum(left, dim=3), a.sum(3, keepdim=True)),
        "layer_norm": (ttnn.layer_norm(left, epsilon=1e-5), F.layer_norm(a, (96,))),
        "matmul": (ttnn.matmul(left, right, transpose_b=True), a @ b.transpose(2, 3)),
        "linear": (
            ttnn.linear(left, ttnn.from_torch(b[0, 0].T.contiguous()), activation="relu"),
            (a @ b[0, 0].T).relu(),
        ),
        "fold": (
            ttnn.fold(left, 2, 4),
            a.reshape(1, 1, 2, 16, 4, 96).permute(0, 1, 3, 2, 4, 5).reshape(1, 1, 16, -1),
        ),
    }
    for name, (result, expected) in results.items():
        assert tuple(result.shape) == tuple(expected.shape), name
        torch.testing.assert_close(ttnn.to_torch(result), expected, atol=1e-4, rtol=1e-4, msg=name)
    assert device.ledger.total > 0
    before = device.arena.used, device.banks.used
    with pytest.raises(ttnn.OutOfMemory):
        ttnn.concat([left] * 4000, dim=2, memory_config=ttnn.L1_MEMORY_CONFIG)
    assert (device.arena.used, device.banks.used) == before


@pytest.mark.parametrize(("rows", "inputs", "outputs"), [(1, 1280, 1000), (16, 2048, 1000), (1, 25088, 4096)])
def test_classifier_heads_without_settings(ttnn: ModuleType, rows: int, inputs: int, outputs: int) -> None:
    device, values, weight = ttnn.open_device(), torch.randn(rows, inputs), torch.randn(inputs, outputs) / inputs**0.5
    output = ttnn.linear(ttnn.from_torch(values), ttnn.from_torch(weight), device=device)
    torch.testing.assert_close(ttnn.to_torch(output), values @ weight, atol=1e-4, rtol=1e-4)
    assert device.arena.peak <= 1_393_312


@pytest.mark.parametrize("ceil_mode", [True, False])
def test_pools_of_images_that_do_not_fit_the_cores(ttnn: ModuleType, ceil_mode: bool) -> None:
    device, size = ttnn.open_device(), (1, 301, 300, 160)
    images = torch.randn(size)
    tensor, nchw = ttnn.from_torch(images, ttnn.float32, device=device), images.permute(0, 3, 1, 2)
    largest = ttnn.max_pool2d(tensor, *size, (3, 3), (2, 2), (1, 1), ceil_mode=ceil_mode)
    expected = F.max_pool2d(nchw, 3, 2, 1, ceil_mode=ceil_mode)
    assert torch.equal(ttnn.to_torch(largest).reshape(-1, 160), expected.permute(0, 2, 3, 1).reshape(-1, 160))
    averages = ttnn.avg_pool2d(tensor, *size, (3, 3), (2, 2), (1, 1), ceil_mode=ceil_mode, count_include_pad=False)
    expected = F.avg_pool2d(nchw, 3, 2, 1, ceil_mode=ceil_mode, count_include_pad=False)
    torch.testing.assert_close(
        ttnn.to_torch(averages).reshape(-1, 160), expected.permute(0, 2, 3, 1).reshape(-1, 160), atol=1e-5, rtol=1e-5
    )
    assert device.arena.used == 0


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("factor", [1.5, (2.5, 1.3), 3])
def test_upsampling_by_any_factor(ttnn: ModuleType, mode: str, factor: float) -> None:
    device, images = ttnn.open_device(), torch.randn(1, 12, 20, 32)
    output = ttnn.upsample(ttnn.from_torch(images, ttnn.float32, device=device), factor, mode=mode)
    expected = F.interpolate(images.permute(0, 3, 1, 2).double(), scale_factor=factor, mode=mode)
    torch.testing.assert_close(ttnn.to_torch(output).double(), expected.permute(0, 2, 3, 1), atol=1e-4, rtol=1e-4)


def test_whole_image_average_of_a_width_sharded_tensor(ttnn: ModuleType) -> None:
    device, images = ttnn.open_device(), torch.randn(16, 7, 7, 2048)
    tensor = ttnn.from_torch(
        images.reshape(1, 1, -1, 2048),
        ttnn.float32,
        layout=ttnn.TILE_LAYOUT,
        device=device,
        memory_config=ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG,
    )
    output = ttnn.avg_pool2d(tensor, 16, 7, 7, 2048, (7, 7), (1, 1), (0, 0, 0, 0), output_layout=ttnn.TILE_LAYOUT)
    torch.testing.assert_close(ttnn.to_torch(output).reshape(16, 2048), images.mean((1, 2)), atol=1e-5, rtol=1e-5)


def test_convolution_of_sequences(ttnn: ModuleType) -> None:
    device, signal, weight = ttnn.open_device(), torch.randn(2, 16, 40), torch.randn(32, 16, 3)
    output, length = ttnn.conv1d(
        input_tensor=ttnn.from_torch(signal.permute(0, 2, 1), ttnn.float32),
        weight_tensor=ttnn.from_torch(weight),
        in_channels=16,
        out_channels=32,
        device=device,
        kernel_size=3,
        padding=1,
        batch_size=2,
        input_length=40,
        return_output_dim=True,
    )
    expected = F.conv1d(signal, weight, padding=1)
    assert length == 40
    torch.testing.assert_close(
        ttnn.to_torch(output).reshape(2, 40, 32), expected.permute(0, 2, 1), atol=1e-4, rtol=1e-4
    )


def test_padding_with_other_values_than_zeros_is_refused(ttnn: ModuleType) -> None:
    ttnn.Conv2dConfig(padding_mode=ttnn.PaddingMode.Zeros)
    with pytest.raises(tessera.errors.TesseraError, match="unsupported padding_mode"):
        ttnn.Conv2dConfig(padding_mode=ttnn.PaddingMode.Replicate)


def test_formats_by_name_and_refused_indices(ttnn: ModuleType) -> None:
    assert ttnn.DataType("bfloat16") is ttnn.DataType(ttnn.bfloat16) is ttnn.DataType.BFLOAT16
    tensor = ttnn.from_torch(torch.randn(1, 4, 4, 32), ttnn.float32, device=ttnn.open_device())
    with pytest.raises(tessera.errors.TesseraError, match="does not return indices"):
        ttnn.max_pool2d(tensor, 1, 4, 4, 32, (2, 2), (2, 2), return_indices=True)

"""Tests of pools, transposed convolutions, resampling, sums and linear layers on a device, compared with torch."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import tessera.coregrid as ttnn
from tessera.errors import TesseraError
from tests.coregrid.machines import make_small_machine
from tests.coregrid.operations.agreement import compute_correlation

sizes = st.tuples(st.integers(1, 3), st.integers(2, 12), st.integers(2, 12), st.integers(1, 40))
kernels = st.tuples(st.integers(1, 4), st.integers(1, 4))
strides = st.tuples(st.integers(1, 3), st.integers(1, 3))
PLACES = [
    ttnn.L1_HEIGHT_SHARDED_MEMORY_CONFIG,
    ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG,
    ttnn.L1_BLOCK_SHARDED_MEMORY_CONFIG,
    ttnn.DRAM_MEMORY_CONFIG,
]


def to_nchw(images: torch.Tensor) -> torch.Tensor:
    return images.permute(0, 3, 1, 2)


def flatten(images: torch.Tensor) -> torch.Tensor:
    return images.permute(0, 2, 3, 1).reshape(1, 1, -1, images.shape[1])


@settings(max_examples=60, deadline=None)
@given(sizes, kernels, strides, st.tuples(st.integers(0, 2), st.integers(0, 2)), st.booleans(), st.sampled_from(PLACES))
def test_max_pool_equals_torch(
    size: tuple[int, ...],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    ceil_mode: bool,
    place: ttnn.MemoryConfig,
) -> None:
    images = torch.randn(size)
    try:
        expected = F.max_pool2d(to_nchw(images), kernel, stride, padding, ceil_mode=ceil_mode)
    except RuntimeError:
        assume(False)
    device = ttnn.open_device(make_small_machine())
    tensor = ttnn.from_torch(images, ttnn.float32, device=device, memory_config=place)
    output = ttnn.max_pool2d(tensor, *size, kernel, stride, padding, ceil_mode=ceil_mode, deallocate_input=True)
    assert torch.equal(ttnn.to_torch(output), flatten(expected))
    assert tensor.is_allocated() == (place is ttnn.DRAM_MEMORY_CONFIG)  # global memory is kept
    del tensor
    ttnn.deallocate(output)
    assert device.arena.used == device.banks.used == 0


@settings(max_examples=60, deadline=None)
@given(
    sizes,
    kernels,
    strides,
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.booleans(),
    st.booleans(),
    st.sampled_from([None, 1, 7]),
)
def test_avg_pool_equals_torch(
    size: tuple[int, ...],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
    ceil_mode: bool,
    with_padding: bool,
    divisor: int | None,
) -> None:
    images = torch.randn(size)
    try:
        expected = F.avg_pool2d(to_nchw(images), kernel, stride, padding, ceil_mode, with_padding, divisor)
    except RuntimeError:
        assume(False)
    device = ttnn.open_device(make_small_machine())
    output = ttnn.avg_pool2d(
        ttnn.from_torch(images, ttnn.float32),
        *size,
        kernel,
        stride,
        padding,
        device=device,
        ceil_mode=ceil_mode,
        count_include_pad=with_padding,
        divisor_override=divisor,
    )
    torch.testing.assert_close(ttnn.to_torch(output), flatten(expected))


@pytest.mark.parametrize("dtype", [ttnn.bfloat16, ttnn.bfloat8_b])
def test_pools_in_other_formats(dtype: ttnn.DataType) -> None:
    images, device = torch.randn(2, 9, 9, 40), ttnn.open_device(make_small_machine())
    tensor = ttnn.from_torch(images, dtype, device=device)
    expected = F.max_pool2d(to_nchw(ttnn.to_torch(tensor).float()), 3, 2, 1)
    output = ttnn.to_torch(ttnn.max_pool2d(tensor, 2, 9, 9, 40, (3, 3), (2, 2), (1, 1))).float()
    assert (
        torch.equal(output, flatten(expected))
        if dtype is ttnn.bfloat16
        else compute_correlation(output, flatten(expected)) > 0.999
    )


def test_pool_padding_is_limited_to_half_the_kernel() -> None:
    device = ttnn.open_device(make_small_machine())
    with pytest.raises(TesseraError, match="half"):
        ttnn.max_pool2d(ttnn.from_torch(torch.randn(1, 4, 4, 8)), 1, 4, 4, 8, (2, 2), (1, 1), (2, 2), device=device)
    with pytest.raises(TesseraError, match="requires a device"):
        ttnn.max_pool2d(ttnn.from_torch(torch.randn(1, 4, 4, 8)), 1, 4, 4, 8, (2, 2), (1, 1))


@pytest.mark.parametrize("place", PLACES[:3])
@pytest.mark.parametrize("batch", [1, 3])
def test_global_pool_equals_torch(place: ttnn.MemoryConfig, batch: int) -> None:
    images, device = torch.randn(batch, 7, 5, 80), ttnn.open_device(make_small_machine())
    tensor = ttnn.from_torch(images, ttnn.float32, device=device, memory_config=place)
    output = ttnn.global_avg_pool2d(tensor)
    torch.testing.assert_close(ttnn.to_torch(output), images.mean((1, 2), keepdim=True))


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(1, 2), st.integers(1, 6), st.integers(1, 6)),
    kernels,
    strides,
    st.integers(0, 2),
    st.integers(1, 2),
    st.integers(0, 1),
    st.sampled_from([1, 2]),
)
def test_conv_transpose_equals_torch(
    size: tuple[int, int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: int,
    dilation: int,
    more: int,
    groups: int,
) -> None:
    assume(all(padding <= dilation * (k - 1) for k in kernel) and all(more < max(s, dilation) for s in stride))
    batch, height, width = size
    images, weight, bias = torch.randn(*size, 6), torch.randn(6, 4, *kernel), torch.randn(4 * groups)
    try:
        expected = F.conv_transpose2d(to_nchw(images), weight, bias, stride, padding, more, groups, dilation)
    except RuntimeError:
        assume(False)
    assume(expected.numel() > 0)  # the device refuses empty outputs
    device = ttnn.open_device(make_small_machine())
    output, dims = ttnn.conv_transpose2d(
        input_tensor=ttnn.from_torch(images, ttnn.float32),
        weight_tensor=ttnn.from_torch(weight),
        in_channels=6,
        out_channels=4 * groups,
        device=device,
        bias_tensor=ttnn.from_torch(bias.reshape(1, 1, 1, -1)),
        kernel_size=kernel,
        stride=stride,
        padding=(padding, padding),
        output_padding=(more, more),
        dilation=(dilation, dilation),
        batch_size=batch,
        input_height=height,
        input_width=width,
        groups=groups,
        conv_config=ttnn.Conv2dConfig(dtype=ttnn.float32, weights_dtype=ttnn.float32),
        return_output_dim=True,
    )
    assert dims == list(expected.shape[2:])
    torch.testing.assert_close(ttnn.to_torch(output), flatten(expected), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("frees", [True, False])
def test_transposed_convolution_deallocates_its_input(place: ttnn.MemoryConfig, frees: bool) -> None:
    device = ttnn.open_device(make_small_machine())
    tensor = ttnn.from_torch(torch.randn(1, 4, 4, 8), ttnn.float32, device=device, memory_config=place)
    result = ttnn.conv_transpose2d(
        input_tensor=tensor,
        weight_tensor=ttnn.from_torch(torch.randn(8, 8, 2, 2)),
        in_channels=8,
        out_channels=8,
        device=device,
        kernel_size=(2, 2),
        stride=(2, 2),
        input_height=4,
        input_width=4,
        conv_config=ttnn.Conv2dConfig(dtype=ttnn.float32, weights_dtype=ttnn.float32, deallocate_activation=frees),
    )
    assert tensor.is_allocated() != (frees and place is not ttnn.DRAM_MEMORY_CONFIG)  # global memory is kept
    for allocated in (result, tensor):
        ttnn.deallocate(allocated)
    assert device.arena.used == device.banks.used == 0


@settings(max_examples=30, deadline=None)
@given(sizes, st.tuples(st.integers(1, 3), st.integers(1, 3)), st.sampled_from(["nearest", "bilinear"]))
def test_upsample_equals_torch(size: tuple[int, ...], factors: tuple[int, int], mode: str) -> None:
    images, device = torch.randn(size), ttnn.open_device(make_small_machine())
    tensor = ttnn.from_torch(images, ttnn.float32, device=device, memory_config=PLACES[0])
    output = ttnn.to_torch(ttnn.upsample(tensor, factors, mode=mode))
    expected = F.interpolate(to_nchw(images), scale_factor=tuple(map(float, factors)), mode=mode).permute(0, 2, 3, 1)
    torch.testing.assert_close(output, expected)


@pytest.mark.parametrize("first", PLACES[:3])
@pytest.mark.parametrize("second", PLACES)
def test_add_equals_torch(first: ttnn.MemoryConfig, second: ttnn.MemoryConfig) -> None:
    device = ttnn.open_device(make_small_machine())
    left, right = torch.randn(1, 1, 100, 70), torch.randn(1, 1, 100, 70)
    a = ttnn.from_torch(left, ttnn.float32, layout=ttnn.TILE_LAYOUT, device=device, memory_config=first)
    b = ttnn.from_torch(right, ttnn.float32, layout=ttnn.TILE_LAYOUT, device=device, memory_config=second)
    assert torch.equal(ttnn.to_torch(ttnn.add(a, b)), left + right)
    assert torch.equal(ttnn.to_torch(ttnn.add_(a, b, activations=["relu"])), torch.relu(left + right))
    assert torch.equal(ttnn.to_torch(a), torch.relu(left + right))
    with pytest.raises(TesseraError, match="unknown activation"):
        ttnn.add(a, b, activations=["rlu"])


@pytest.mark.parametrize("second", PLACES)
def test_add_in_global_memory(second: ttnn.MemoryConfig) -> None:
    device = ttnn.open_device(make_small_machine())
    left, right = torch.randn(1, 1, 100, 70), torch.randn(1, 1, 100, 70)
    a = ttnn.from_torch(left, ttnn.float32, device=device, memory_config=ttnn.DRAM_MEMORY_CONFIG)
    b = ttnn.from_torch(right, ttnn.float32, device=device, memory_config=second)
    cores, banks = device.arena.used, device.banks.used
    result = ttnn.add(a, b, activations=["relu"])
    assert torch.equal(ttnn.to_torch(result), torch.relu(left + right))
    assert result.memory_config() == a.memory_config()
    assert torch.equal(ttnn.to_torch(a), left)
    ttnn.deallocate(result)
    assert (device.arena.used, device.banks.used) == (cores, banks)
    with pytest.raises(TesseraError, match="use `add`"):
        ttnn.add_(a, b)


@pytest.mark.parametrize("place", [*PLACES, None])
def test_linear_equals_torch(place: ttnn.MemoryConfig | None) -> None:
    device = ttnn.open_device(make_small_machine())
    rows, weight, bias = torch.randn(2, 1, 37, 100), torch.randn(100, 90), torch.randn(90)
    expected = rows @ weight + bias
    for matrix, turned in ((weight, False), (weight.T.contiguous(), True)):
        output = ttnn.linear(
            ttnn.from_torch(rows, ttnn.float32),
            ttnn.from_torch(matrix),
            bias=ttnn.from_torch(bias.reshape(1, 1, 1, -1)),
            transpose_b=turned,
            device=device,
            memory_config=place,
        )
        assert output.shape == (2, 1, 37, 90)
        torch.testing.assert_close(ttnn.to_torch(output), expected, atol=1e-4, rtol=1e-4)

"""Tests of `conv2d` in the chip's number formats: close to torch, and every arithmetic setting affects the output."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tessera.coregrid as ttnn
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.execution.matmul import keep_leading_bits
from tessera.coregrid.formats import DataType, round_values
from tests.coregrid.draws import convolutions
from tests.coregrid.machines import make_small_machine
from tests.coregrid.operations.agreement import (
    RandomConv,
    compute_by_torch,
    compute_correlation,
    compute_relative_error,
)

PADDED = ((1, 1), (1, 1))
LAYOUTS = [ttnn.HEIGHT_SHARDED, ttnn.WIDTH_SHARDED, ttnn.BLOCK_SHARDED]
WIDE = Convolution(batch=1, height=8, width=8, in_channels=64, out_channels=64, kernel=(3, 3), padding=PADDED)


@settings(max_examples=40, deadline=None)
@given(convolutions(channels=4, whole=24), st.sampled_from(LAYOUTS), st.booleans(), st.booleans(), st.booleans())
def test_bfloat16_is_close(conv: Convolution, layout: str, bias: bool, fp32: bool, packer: bool) -> None:
    problem, device = RandomConv(conv, bias, ttnn.bfloat16), ttnn.open_device(make_small_machine())
    config = ttnn.Conv2dConfig(shard_layout=layout)
    compute = ttnn.ComputeConfig(fp32_dest_acc_en=fp32, packer_l1_acc=packer)
    output, expected = problem.run(device, conv_config=config, compute_config=compute), problem.compute_reference()
    assert compute_relative_error(output, expected) < 0.03
    if expected.numel() > 20 and expected.std() > 0:
        assert compute_correlation(output, expected) > 0.999


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("input_dtype", "dtype", "weights", "least"),
    [
        (ttnn.bfloat16, ttnn.bfloat16, ttnn.bfloat8_b, 0.999),
        (ttnn.bfloat16, ttnn.bfloat8_b, ttnn.bfloat8_b, 0.999),
        (ttnn.bfloat8_b, ttnn.bfloat8_b, ttnn.bfloat8_b, 0.999),
        (ttnn.bfloat8_b, ttnn.bfloat16, ttnn.bfloat4_b, 0.95),
        (ttnn.float32, ttnn.bfloat16, ttnn.bfloat16, 0.9999),
        (ttnn.bfloat16, ttnn.float32, ttnn.bfloat8_b, 0.9999),
    ],
)
def test_formats(layout: str, input_dtype: DataType, dtype: DataType, weights: DataType, least: float) -> None:
    for conv in (WIDE, Convolution(batch=2, height=6, width=6, in_channels=64, out_channels=96, kernel=(1, 1))):
        problem, device = RandomConv(conv, dtype=input_dtype), ttnn.open_device(make_small_machine())
        config = ttnn.Conv2dConfig(dtype=dtype, weights_dtype=weights, shard_layout=layout)
        output = problem.run(device, conv_config=config)
        assert compute_correlation(output, problem.compute_reference()) > least
        assert torch.equal(round_values(output, dtype), output)  # all values are representable


@pytest.mark.parametrize("layout", LAYOUTS)
def test_weights_are_rounded_to_their_format(layout: str) -> None:
    problem, device = RandomConv(WIDE, bias=False), ttnn.open_device(make_small_machine())
    config = ttnn.Conv2dConfig(dtype=ttnn.float32, weights_dtype=ttnn.bfloat8_b, shard_layout=layout)
    output = problem.run(device, conv_config=config)
    # 16 adjacent output channels share an exponent
    weight = round_values(problem.weight.permute(1, 2, 3, 0), ttnn.bfloat8_b).permute(3, 0, 1, 2)
    assert compute_relative_error(output, compute_by_torch(WIDE, problem.images, weight, None)) < 1e-5


def test_fidelity_truncates_bits() -> None:
    """Check that LoFi multiplies five bits of a weight by seven bits of an activation, and HiFi4 all bits."""
    problem, device = RandomConv(WIDE, bias=False, dtype=ttnn.bfloat16), ttnn.open_device(make_small_machine())
    images, weight = round_values(problem.images, ttnn.bfloat16), round_values(problem.weight, ttnn.bfloat16)
    high, five = keep_leading_bits(images, 7), keep_leading_bits(weight, 5)
    lofi, hifi2 = compute_by_torch(WIDE, high, five, None), compute_by_torch(WIDE, high, weight, None)
    hifi3 = hifi2 + compute_by_torch(WIDE, images - high, five, None)
    exact = {"LoFi": lofi, "HiFi2": hifi2, "HiFi3": hifi3, "HiFi4": compute_by_torch(WIDE, images, weight, None)}
    errors = []
    for name, expected in exact.items():
        compute = ttnn.ComputeConfig(math_fidelity=ttnn.MathFidelity[name], fp32_dest_acc_en=True, packer_l1_acc=True)
        config = ttnn.Conv2dConfig(shard_layout=ttnn.HEIGHT_SHARDED)
        output = problem.run(device, conv_config=config, compute_config=compute)
        assert (
            torch.equal(output, round_values(expected.float(), ttnn.bfloat16))
            or compute_relative_error(output, expected) < 0.004
        )
        errors.append(float((output.double() - exact["HiFi4"]).pow(2).mean()))
    assert errors[0] > errors[1] > errors[2] >= errors[3]


def test_accumulation_precision() -> None:
    """Check that 32-bit registers and partial sums are more accurate than 16-bit registers and partial sums."""
    conv = Convolution(batch=1, height=8, width=8, in_channels=256, out_channels=32, kernel=(3, 3), padding=PADDED)
    problem, device = RandomConv(conv, bias=False, dtype=ttnn.bfloat16), ttnn.open_device(make_small_machine())
    images, weight = round_values(problem.images, ttnn.bfloat16), round_values(problem.weight, ttnn.bfloat16)
    expected = compute_by_torch(conv, images, weight, None)
    errors = {}
    for fp32 in (False, True):
        for packer in (False, True):
            compute = ttnn.ComputeConfig(fp32_dest_acc_en=fp32, packer_l1_acc=packer)
            config = ttnn.Conv2dConfig(shard_layout=ttnn.HEIGHT_SHARDED)
            output = problem.run(device, conv_config=config, compute_config=compute)
            errors[fp32, packer] = float((output.double() - expected).pow(2).mean())
    assert errors[True, True] < errors[True, False] < errors[False, False]
    assert errors[False, True] != errors[False, False]


def test_float32_is_never_truncated() -> None:
    problem, device = RandomConv(WIDE), ttnn.open_device(make_small_machine())
    compute = ttnn.ComputeConfig(math_fidelity=ttnn.MathFidelity.LoFi, packer_l1_acc=True)
    config = ttnn.Conv2dConfig(dtype=ttnn.float32, weights_dtype=ttnn.float32)
    assert (
        compute_relative_error(
            problem.run(device, conv_config=config, compute_config=compute), problem.compute_reference()
        )
        < 1e-5
    )


@pytest.mark.parametrize(("input_dtype", "dtype"), [(ttnn.bfloat16, ttnn.bfloat16), (ttnn.bfloat16, ttnn.bfloat8_b)])
def test_a_matmul_in_parts_of_its_channels(input_dtype: DataType, dtype: DataType) -> None:
    conv = Convolution(batch=1, height=6, width=6, in_channels=12 * 96, out_channels=64, kernel=(1, 1))
    problem, device = RandomConv(conv, dtype=input_dtype), ttnn.open_device(make_small_machine())
    config = ttnn.Conv2dConfig(dtype=dtype, shard_layout=ttnn.WIDTH_SHARDED, act_block_w_div=3)
    assert compute_correlation(problem.run(device, conv_config=config), problem.compute_reference()) > 0.999

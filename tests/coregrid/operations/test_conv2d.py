"""Tests of `conv2d` in float32: every layout, grid, block size and buffering gives the output of torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import tessera.coregrid as ttnn
from tessera.coregrid.convolution import Convolution
from tessera.errors import TesseraError
from tests.coregrid.conftest import Threads
from tests.coregrid.draws import convolutions
from tests.coregrid.machines import make_small_machine
from tests.coregrid.operations.agreement import RandomConv, compute_by_torch, compute_relative_error

float32 = {"dtype": ttnn.float32, "weights_dtype": ttnn.float32}
LAYOUTS = [ttnn.HEIGHT_SHARDED, ttnn.WIDTH_SHARDED, ttnn.BLOCK_SHARDED]
PADDED = ((1, 1), (1, 1))


@st.composite
def draw_configs(draw: st.DrawFn) -> dict[str, Any]:
    """Draw settings that change the execution of a convolution, but not its output."""
    result: dict[str, Any] = {
        "shard_layout": draw(st.sampled_from([*LAYOUTS, None])),
        "act_block_h_override": draw(st.sampled_from([0, 32, 64])),
        "transpose_shards": draw(st.booleans()),
        "output_layout": draw(st.sampled_from([ttnn.TILE_LAYOUT, ttnn.ROW_MAJOR_LAYOUT])),
        "enable_act_double_buffer": draw(st.booleans()),
        "enable_weights_double_buffer": draw(st.booleans()),
        "enable_split_reader": draw(st.booleans()),
        "deallocate_activation": draw(st.booleans()),
        "reallocate_halo_output": draw(st.booleans()),
        "full_inner_dim": draw(st.booleans()),
        "halo_mode": draw(st.sampled_from(["span", "exact"])),
        "input_channels_alignment": draw(st.sampled_from([8, 16, 32])),
    }
    if result["shard_layout"] is not None and draw(st.booleans()):
        grid = ttnn.CoreGrid(y=draw(st.integers(1, 3)), x=draw(st.integers(1, 4)))
        result |= {"override_sharding_config": True, "core_grid": grid}
    return result


def check_against_torch(conv: Convolution, config: dict[str, Any], bias: bool, memory: int = 1 << 20) -> None:
    device = ttnn.open_device(make_small_machine(memory=memory))
    problem = RandomConv(conv, bias)
    output = problem.run(device, conv_config=ttnn.Conv2dConfig(**float32 | config))
    assert compute_relative_error(output, problem.compute_reference()) < 1e-5


@settings(max_examples=100, deadline=None)
@given(convolutions(), draw_configs(), st.booleans())
def test_agrees_with_torch(conv: Convolution, config: dict[str, Any], bias: bool) -> None:
    check_against_torch(conv, config, bias)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=600, deadline=None)
@given(convolutions(most=20, channels=12, whole=12), draw_configs(), st.booleans())
def test_agrees_with_torch_on_many(conv: Convolution, config: dict[str, Any], bias: bool) -> None:
    check_against_torch(conv, config, bias, memory=1 << 24)


@settings(max_examples=40, deadline=None)
@given(convolutions(channels=5, whole=32), st.sampled_from(LAYOUTS), st.integers(1, 4), st.booleans())
def test_channels_over_columns(conv: Convolution, layout: str, cols: int, turned: bool) -> None:
    grid = ttnn.CoreGrid(y=3, x=cols) if not turned else ttnn.CoreGrid(y=min(3, cols), x=4)
    check_against_torch(
        conv,
        {
            "shard_layout": layout,
            "override_sharding_config": True,
            "core_grid": grid,
            "transpose_shards": not turned,
        },
        bias=True,
    )


@pytest.mark.parametrize("parts", [2, 3, 6])
def test_a_width_sharded_block_may_be_divided(parts: int) -> None:
    conv = Convolution(batch=1, height=6, width=6, in_channels=64, out_channels=64, kernel=(3, 2), padding=PADDED)
    check_against_torch(conv, {"shard_layout": ttnn.WIDTH_SHARDED, "act_block_w_div": parts}, bias=True)


@pytest.mark.parametrize("parts", [2, 3, 6])
def test_a_width_sharded_block_of_a_matmul_may_be_divided(parts: int) -> None:
    """A matmul (1x1 convolution) reads its activation block in parts, directly from the input shard."""
    conv = Convolution(batch=2, height=6, width=6, in_channels=12 * 192, out_channels=64, kernel=(1, 1))
    check_against_torch(conv, {"shard_layout": ttnn.WIDTH_SHARDED, "act_block_w_div": parts}, bias=True)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("activation", ["relu", "relu6", "silu", "gelu", "sigmoid", "tanh", "hardswish"])
def test_activations(layout: str, activation: str) -> None:
    conv = Convolution(batch=2, height=5, width=5, in_channels=33, out_channels=40, kernel=(3, 3), padding=PADDED)
    problem, device = RandomConv(conv), ttnn.open_device(make_small_machine())
    config = ttnn.Conv2dConfig(**float32, shard_layout=layout, activation=activation)
    expected = getattr(F, activation)(problem.compute_reference())
    # float32 sums of about 20 are exact to six digits; relative to an activation of at most 1, to five
    assert compute_relative_error(problem.run(device, conv_config=config), expected) < 1e-4


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", [1, 3])
def test_chained_convolutions_stay_on_the_cores(layout: str, kernel: int) -> None:
    """Check that tensors between convolutions stay on the cores, also if other tensors are allocated there."""
    pad = ((kernel // 2,) * 2,) * 2
    conv = Convolution(batch=2, height=9, width=7, in_channels=40, out_channels=40, kernel=(kernel,) * 2, padding=pad)
    device, problem = ttnn.open_device(make_small_machine()), RandomConv(conv)
    config = ttnn.Conv2dConfig(**float32, shard_layout=layout, deallocate_activation=True)
    arguments = problem.build_arguments(device) | {"conv_config": config}
    first = ttnn.conv2d(**arguments)
    second = ttnn.conv2d(**arguments | {"input_tensor": first})
    assert not first.is_allocated()
    expected = problem.compute_reference().reshape(2, 9, 7, 40)
    expected = compute_by_torch(conv, expected, problem.weight, problem.bias)
    assert compute_relative_error(ttnn.to_torch(second).reshape(conv.output_sticks, -1), expected) < 1e-5
    other_layout = next(other_layout for other_layout in LAYOUTS if other_layout != layout)
    moved = ttnn.conv2d(
        **arguments | {"input_tensor": second, "conv_config": ttnn.Conv2dConfig(**float32, shard_layout=other_layout)}
    )
    expected = compute_by_torch(conv, expected.reshape(2, 9, 7, 40), problem.weight, problem.bias)
    assert compute_relative_error(ttnn.to_torch(moved).reshape(conv.output_sticks, -1), expected) < 1e-5


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("threads", [1, 2])
def test_replayed_calls_read_their_own_input(layout: str, threads: int, torch_threads: Threads) -> None:
    """Check that a replayed call reads the input of that call, also with several threads."""
    torch_threads(threads)
    conv = Convolution(batch=1, height=9, width=9, in_channels=64, out_channels=64, kernel=(3, 3), padding=PADDED)
    device, problem = ttnn.open_device(make_small_machine()), RandomConv(conv)
    config = ttnn.Conv2dConfig(**float32, shard_layout=layout, activation="relu")
    settings = {"conv_config": config, "return_weights_and_bias": True}
    result, [weights, bias] = ttnn.conv2d(**problem.build_arguments(device) | settings)
    for _ in range(3):
        ttnn.deallocate(result)
        problem.images = torch.randn_like(problem.images)
        again = problem.build_arguments(device) | settings | {"weight_tensor": weights, "bias_tensor": bias}
        result, _ = ttnn.conv2d(**again)
        expected = problem.compute_reference().clamp(min=0)
        assert compute_relative_error(ttnn.to_torch(result).reshape(conv.output_sticks, -1), expected) < 1e-5
    problem.weight = torch.randn_like(problem.weight)
    second_result, _ = ttnn.conv2d(**problem.build_arguments(device) | settings)
    expected = problem.compute_reference().clamp(min=0)
    assert compute_relative_error(ttnn.to_torch(second_result).reshape(conv.output_sticks, -1), expected) < 1e-5
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(("memory", "reserved"), [(1 << 20, 1000), ((1 << 20) + 1, 0)])
def test_a_memory_of_any_size_gives_the_same_numbers(memory: int, reserved: int) -> None:
    """Use memory sizes that are no multiple of 16 bytes, the unit in which sticks are gathered."""
    conv = Convolution(batch=2, height=12, width=12, in_channels=32, out_channels=32, kernel=(3, 3), padding=PADDED)
    device, problem = ttnn.open_device(make_small_machine(memory=memory), l1_small_size=reserved), RandomConv(conv)
    config = ttnn.Conv2dConfig(**float32, shard_layout=ttnn.HEIGHT_SHARDED)
    assert compute_relative_error(problem.run(device, conv_config=config), problem.compute_reference()) < 1e-5


@pytest.mark.parametrize("channels", [128, 512])
def test_replayed_calls_read_new_weights(channels: int) -> None:
    """Check that a replayed call reads the new weights, which are stored in the freed pages of the old weights."""
    conv = Convolution(batch=1, height=4, width=4, in_channels=channels, out_channels=64, kernel=(3, 3), padding=PADDED)
    device, problem = ttnn.open_device(make_small_machine(memory=1 << 22)), RandomConv(conv, bias=False)
    config = ttnn.Conv2dConfig(**float32, shard_layout=ttnn.WIDTH_SHARDED)
    for _ in range(20):
        problem.weight = torch.randn_like(problem.weight)
        assert compute_relative_error(problem.run(device, conv_config=config), problem.compute_reference()) < 1e-5


def test_prepared_weights_can_be_reused() -> None:
    conv = Convolution(batch=1, height=8, width=8, in_channels=16, out_channels=24, kernel=(3, 3), padding=PADDED)
    device, problem = ttnn.open_device(make_small_machine()), RandomConv(conv)
    arguments = problem.build_arguments(device) | {
        "conv_config": ttnn.Conv2dConfig(**float32, shard_layout=ttnn.HEIGHT_SHARDED),
        "return_weights_and_bias": True,
        "return_output_dim": True,
    }
    first, [height, width], [weights, bias] = ttnn.conv2d(**arguments)
    assert (height, width) == (8, 8)
    assert weights.is_on_device
    again = arguments | {"weight_tensor": weights, "bias_tensor": bias}
    second, _, [same, _] = ttnn.conv2d(**again)
    assert same is weights
    assert torch.equal(ttnn.to_torch(first), ttnn.to_torch(second))
    block = ttnn.Conv2dConfig(**float32, shard_layout=ttnn.WIDTH_SHARDED, act_block_w_div=3)
    with pytest.raises(TesseraError, match="different convolution, sharding or format"):
        ttnn.conv2d(**again | {"conv_config": block, "in_channels": 16})
    plain = ttnn.to_device(ttnn.from_torch(problem.weight), device)
    with pytest.raises(TesseraError, match="must be prepared by conv2d"):
        ttnn.conv2d(**arguments | {"weight_tensor": plain})


@settings(max_examples=25, deadline=None)
@given(
    convolutions(most=20), st.sampled_from(["height", "width"]), st.integers(2, 4), st.sampled_from([*LAYOUTS, None])
)
def test_slices(conv: Convolution, axis: str, count: int, layout: str | None) -> None:
    device, problem = ttnn.open_device(make_small_machine()), RandomConv(conv)
    config = ttnn.Conv2dConfig(**float32, shard_layout=layout)
    slices = ttnn.SliceConfig(axis=ttnn.SliceAxis(axis), num_slices=count)
    try:
        output = problem.run(device, conv_config=config, slice_config=slices)
    except TesseraError as error:
        if "only padding" not in str(error):
            raise
        return
    assert compute_relative_error(output, problem.compute_reference()) < 1e-5


def test_convolutions_that_do_not_fit_are_sliced() -> None:
    conv = Convolution(batch=1, height=96, width=64, in_channels=32, out_channels=32, kernel=(3, 3), padding=PADDED)
    device, problem = ttnn.open_device(make_small_machine(memory=200_000)), RandomConv(conv)
    config = ttnn.Conv2dConfig(**float32, shard_layout=ttnn.HEIGHT_SHARDED)
    assert compute_relative_error(problem.run(device, conv_config=config), problem.compute_reference()) < 1e-5
    assert device.ledger.global_written == conv.output_sticks * 32 * 4


def test_settings_of_another_layout_are_ignored() -> None:
    """Check that another layout is chosen if `act_block_w_div` does not divide the block of WIDTH."""
    conv = Convolution(batch=1, height=8, width=8, in_channels=64, out_channels=32, kernel=(3, 3), padding=PADDED)
    device, problem = ttnn.open_device(make_small_machine()), RandomConv(conv)
    config = ttnn.Conv2dConfig(**float32, act_block_w_div=2)
    slices = ttnn.SliceConfig(axis="height", num_slices=0)
    for sliced in (None, slices):
        output = problem.run(device, conv_config=config, slice_config=sliced)
        assert compute_relative_error(output, problem.compute_reference()) < 1e-5
    with pytest.raises(TesseraError, match="act_block_w_div must divide"):
        problem.run(device, conv_config=ttnn.Conv2dConfig(act_block_w_div=2, shard_layout=ttnn.WIDTH_SHARDED))


@pytest.mark.parametrize("alignment", [8, 16])
def test_tiled_input_is_padded_to_whole_tiles(alignment: int) -> None:
    conv = Convolution(batch=1, height=8, width=8, in_channels=16, out_channels=32, kernel=(3, 3), padding=PADDED)
    device, problem = ttnn.open_device(make_small_machine()), RandomConv(conv)
    tiled = ttnn.from_torch(problem.images, ttnn.float32, layout=ttnn.TILE_LAYOUT)
    config = ttnn.Conv2dConfig(**float32, shard_layout=ttnn.HEIGHT_SHARDED, input_channels_alignment=alignment)
    output = problem.run(device, conv_config=config, input_tensor=tiled)
    assert compute_relative_error(output, problem.compute_reference()) < 1e-5


def test_memory_config_of_the_output() -> None:
    conv = Convolution(batch=1, height=8, width=8, in_channels=8, out_channels=40, kernel=(3, 3))
    for place in (ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG, ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG):
        device, problem = ttnn.open_device(make_small_machine()), RandomConv(conv)
        result = ttnn.conv2d(
            **problem.build_arguments(device), conv_config=ttnn.Conv2dConfig(**float32), memory_config=place
        )
        assert result.memory_config().memory_layout == place.memory_layout
        assert (
            compute_relative_error(ttnn.to_torch(result).reshape(conv.output_sticks, -1), problem.compute_reference())
            < 1e-5
        )


def test_errors_say_what_to_do() -> None:
    conv = Convolution(batch=1, height=8, width=8, in_channels=4, out_channels=6, kernel=(3, 3))
    device, problem = ttnn.open_device(make_small_machine()), RandomConv(conv)
    arguments = problem.build_arguments(device)
    with pytest.raises(TesseraError, match="divisible by groups"):
        ttnn.conv2d(**arguments | {"groups": 3})
    with pytest.raises(TesseraError, match="does not fit an image"):
        ttnn.conv2d(**arguments | {"kernel_size": (9, 9)})
    with pytest.raises(TesseraError, match=r"do not match.*\(6, 5, 3, 3\)"):
        ttnn.conv2d(**arguments | {"weight_tensor": ttnn.from_torch(torch.randn(6, 5, 3, 3))})
    with pytest.raises(TesseraError, match="the shape of the input does not match"):
        ttnn.conv2d(**arguments | {"input_height": 9})
    with pytest.raises(TesseraError, match="per output channel"):
        ttnn.conv2d(**arguments | {"bias_tensor": ttnn.from_torch(torch.randn(1, 1, 1, 5))})
    with pytest.raises(TesseraError, match="two or four"):
        ttnn.conv2d(**arguments | {"padding": (1, 1, 1)})
    config = ttnn.Conv2dConfig(
        shard_layout=ttnn.HEIGHT_SHARDED, override_sharding_config=True, core_grid=ttnn.CoreGrid(y=9, x=9)
    )
    with pytest.raises(TesseraError, match="larger"):
        ttnn.conv2d(**arguments | {"conv_config": config})
    assert device.arena.used == device.banks.used == 0
    ttnn.close_device(device)
    with pytest.raises(TesseraError, match="closed"):
        ttnn.conv2d(**arguments)

"""conv2d in float32: the same numbers whatever the layout, the grid, the blocks and the buffers."""

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
from tests.coregrid.machines import small
from tests.coregrid.operations.agreement import Problem, by_torch, relative_error

float32 = {"dtype": ttnn.float32, "weights_dtype": ttnn.float32}
LAYOUTS = [ttnn.HEIGHT_SHARDED, ttnn.WIDTH_SHARDED, ttnn.BLOCK_SHARDED]
PADDED = ((1, 1), (1, 1))


@st.composite
def configs(draw: st.DrawFn) -> dict[str, Any]:
    """Everything that changes how a convolution is done, and nothing that changes its numbers."""
    found: dict[str, Any] = {
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
    if found["shard_layout"] is not None and draw(st.booleans()):
        grid = ttnn.CoreGrid(y=draw(st.integers(1, 3)), x=draw(st.integers(1, 4)))
        found |= {"override_sharding_config": True, "core_grid": grid}
    return found


def holds(conv: Convolution, config: dict[str, Any], bias: bool, memory: int = 1 << 20) -> None:
    device = ttnn.open_device(small(memory=memory))
    problem = Problem(conv, bias)
    found = problem.run(device, conv_config=ttnn.Conv2dConfig(**float32 | config))
    assert relative_error(found, problem.expected()) < 1e-5


@settings(max_examples=100, deadline=None)
@given(convolutions(), configs(), st.booleans())
def test_agrees_with_torch(conv: Convolution, config: dict[str, Any], bias: bool) -> None:
    holds(conv, config, bias)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(max_examples=600, deadline=None)
@given(convolutions(most=20, channels=12, whole=12), configs(), st.booleans())
def test_agrees_with_torch_on_many(conv: Convolution, config: dict[str, Any], bias: bool) -> None:
    holds(conv, config, bias, memory=1 << 24)


@settings(max_examples=40, deadline=None)
@given(convolutions(channels=5, whole=32), st.sampled_from(LAYOUTS), st.integers(1, 4), st.booleans())
def test_channels_over_columns(conv: Convolution, layout: str, cols: int, turned: bool) -> None:
    grid = ttnn.CoreGrid(y=3, x=cols) if not turned else ttnn.CoreGrid(y=min(3, cols), x=4)
    holds(
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
    holds(conv, {"shard_layout": ttnn.WIDTH_SHARDED, "act_block_w_div": parts}, bias=True)


@pytest.mark.parametrize("parts", [2, 3, 6])
def test_so_may_that_of_a_matmul(parts: int) -> None:
    """Whose block is read in the input shard: each part of it in its turn."""
    conv = Convolution(batch=2, height=6, width=6, in_channels=12 * 192, out_channels=64, kernel=(1, 1))
    holds(conv, {"shard_layout": ttnn.WIDTH_SHARDED, "act_block_w_div": parts}, bias=True)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("activation", ["relu", "relu6", "silu", "gelu", "sigmoid", "tanh", "hardswish"])
def test_activations(layout: str, activation: str) -> None:
    conv = Convolution(batch=2, height=5, width=5, in_channels=33, out_channels=40, kernel=(3, 3), padding=PADDED)
    problem, device = Problem(conv), ttnn.open_device(small())
    config = ttnn.Conv2dConfig(**float32, shard_layout=layout, activation=activation)
    expected = getattr(F, activation)(problem.expected())
    # sums of twenty or so keep their sixth digit; a bounded activation sees it as the fifth of its own
    assert relative_error(problem.run(device, conv_config=config), expected) < 1e-4


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kernel", [1, 3])
def test_the_output_of_one_is_the_input_of_the_next(layout: str, kernel: int) -> None:
    """Without leaving the cores, whatever lies on them."""
    pad = ((kernel // 2,) * 2,) * 2
    conv = Convolution(batch=2, height=9, width=7, in_channels=40, out_channels=40, kernel=(kernel,) * 2, padding=pad)
    device, problem = ttnn.open_device(small()), Problem(conv)
    config = ttnn.Conv2dConfig(**float32, shard_layout=layout, deallocate_activation=True)
    arguments = problem.arguments(device) | {"conv_config": config}
    first = ttnn.conv2d(**arguments)
    second = ttnn.conv2d(**arguments | {"input_tensor": first})
    assert not first.is_allocated()
    expected = problem.expected().reshape(2, 9, 7, 40)
    expected = by_torch(conv, expected, problem.weight, problem.bias)
    assert relative_error(ttnn.to_torch(second).reshape(conv.outputs, -1), expected) < 1e-5
    other = next(other for other in LAYOUTS if other != layout)
    moved = ttnn.conv2d(
        **arguments | {"input_tensor": second, "conv_config": ttnn.Conv2dConfig(**float32, shard_layout=other)}
    )
    expected = by_torch(conv, expected.reshape(2, 9, 7, 40), problem.weight, problem.bias)
    assert relative_error(ttnn.to_torch(moved).reshape(conv.outputs, -1), expected) < 1e-5


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("threads", [1, 2])
def test_a_call_like_the_last_one_reads_its_own_input(layout: str, threads: int, torch_threads: Threads) -> None:
    """What is known of the first call must not bring its numbers along; cores may work side by side."""
    torch_threads(threads)
    conv = Convolution(batch=1, height=9, width=9, in_channels=64, out_channels=64, kernel=(3, 3), padding=PADDED)
    device, problem = ttnn.open_device(small()), Problem(conv)
    config = ttnn.Conv2dConfig(**float32, shard_layout=layout, activation="relu")
    settings = {"conv_config": config, "return_weights_and_bias": True}
    made, [weights, bias] = ttnn.conv2d(**problem.arguments(device) | settings)
    for _ in range(3):
        ttnn.deallocate(made)
        problem.images = torch.randn_like(problem.images)
        again = problem.arguments(device) | settings | {"weight_tensor": weights, "bias_tensor": bias}
        made, _ = ttnn.conv2d(**again)
        expected = problem.expected().clamp(min=0)
        assert relative_error(ttnn.to_torch(made).reshape(conv.outputs, -1), expected) < 1e-5
    problem.weight = torch.randn_like(problem.weight)
    other, _ = ttnn.conv2d(**problem.arguments(device) | settings)
    expected = problem.expected().clamp(min=0)
    assert relative_error(ttnn.to_torch(other).reshape(conv.outputs, -1), expected) < 1e-5
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(("memory", "reserved"), [(1 << 20, 1000), ((1 << 20) + 1, 0)])
def test_a_memory_of_any_size_gives_the_same_numbers(memory: int, reserved: int) -> None:
    """Sticks are gathered in units of sixteen bytes, wherever the top of the memory is."""
    conv = Convolution(batch=2, height=12, width=12, in_channels=32, out_channels=32, kernel=(3, 3), padding=PADDED)
    device, problem = ttnn.open_device(small(memory=memory), l1_small_size=reserved), Problem(conv)
    config = ttnn.Conv2dConfig(**float32, shard_layout=ttnn.HEIGHT_SHARDED)
    assert relative_error(problem.run(device, conv_config=config), problem.expected()) < 1e-5


@pytest.mark.parametrize("channels", [128, 512])
def test_weights_that_come_where_others_lay_are_read(channels: int) -> None:
    """The pages of weights that are not kept are soon those of the next; a bias would tell them apart."""
    conv = Convolution(batch=1, height=4, width=4, in_channels=channels, out_channels=64, kernel=(3, 3), padding=PADDED)
    device, problem = ttnn.open_device(small(memory=1 << 22)), Problem(conv, bias=False)
    config = ttnn.Conv2dConfig(**float32, shard_layout=ttnn.WIDTH_SHARDED)
    for _ in range(20):
        problem.weight = torch.randn_like(problem.weight)
        assert relative_error(problem.run(device, conv_config=config), problem.expected()) < 1e-5


def test_prepared_weights_are_passed_again() -> None:
    conv = Convolution(batch=1, height=8, width=8, in_channels=16, out_channels=24, kernel=(3, 3), padding=PADDED)
    device, problem = ttnn.open_device(small()), Problem(conv)
    arguments = problem.arguments(device) | {
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
    with pytest.raises(TesseraError, match="another sharding"):
        ttnn.conv2d(**again | {"conv_config": block, "in_channels": 16})
    plain = ttnn.to_device(ttnn.from_torch(problem.weight), device)
    with pytest.raises(TesseraError, match="as conv2d prepared them"):
        ttnn.conv2d(**arguments | {"weight_tensor": plain})


@settings(max_examples=25, deadline=None)
@given(
    convolutions(most=20), st.sampled_from(["height", "width"]), st.integers(2, 4), st.sampled_from([*LAYOUTS, None])
)
def test_slices(conv: Convolution, axis: str, count: int, layout: str | None) -> None:
    device, problem = ttnn.open_device(small()), Problem(conv)
    config = ttnn.Conv2dConfig(**float32, shard_layout=layout)
    slices = ttnn.SliceConfig(axis=ttnn.SliceAxis(axis), num_slices=count)
    try:
        found = problem.run(device, conv_config=config, slice_config=slices)
    except TesseraError as error:
        if "nothing but padding" not in str(error):
            raise
        return
    assert relative_error(found, problem.expected()) < 1e-5


def test_what_does_not_fit_goes_in_slices_by_itself() -> None:
    conv = Convolution(batch=1, height=96, width=64, in_channels=32, out_channels=32, kernel=(3, 3), padding=PADDED)
    device, problem = ttnn.open_device(small(memory=200_000)), Problem(conv)
    config = ttnn.Conv2dConfig(**float32, shard_layout=ttnn.HEIGHT_SHARDED)
    assert relative_error(problem.run(device, conv_config=config), problem.expected()) < 1e-5
    assert device.ledger.global_written == conv.outputs * 32 * 4


def test_a_setting_of_another_layout_does_not_matter() -> None:
    """`act_block_w_div` is for WIDTH: where it does not divide its block, another layout is chosen."""
    conv = Convolution(batch=1, height=8, width=8, in_channels=64, out_channels=32, kernel=(3, 3), padding=PADDED)
    device, problem = ttnn.open_device(small()), Problem(conv)
    config = ttnn.Conv2dConfig(**float32, act_block_w_div=2)
    slices = ttnn.SliceConfig(axis="height", num_slices=0)
    for sliced in (None, slices):
        found = problem.run(device, conv_config=config, slice_config=sliced)
        assert relative_error(found, problem.expected()) < 1e-5
    with pytest.raises(TesseraError, match="act_block_w_div divides"):
        problem.run(device, conv_config=ttnn.Conv2dConfig(act_block_w_div=2, shard_layout=ttnn.WIDTH_SHARDED))


@pytest.mark.parametrize("alignment", [8, 16])
def test_an_input_in_tiles_is_padded_to_whole_ones(alignment: int) -> None:
    conv = Convolution(batch=1, height=8, width=8, in_channels=16, out_channels=32, kernel=(3, 3), padding=PADDED)
    device, problem = ttnn.open_device(small()), Problem(conv)
    given = ttnn.from_torch(problem.images, ttnn.float32, layout=ttnn.TILE_LAYOUT)
    config = ttnn.Conv2dConfig(**float32, shard_layout=ttnn.HEIGHT_SHARDED, input_channels_alignment=alignment)
    found = problem.run(device, conv_config=config, input_tensor=given)
    assert relative_error(found, problem.expected()) < 1e-5


def test_the_output_goes_where_it_is_wanted() -> None:
    conv = Convolution(batch=1, height=8, width=8, in_channels=8, out_channels=40, kernel=(3, 3))
    for place in (ttnn.DRAM_MEMORY_CONFIG, ttnn.L1_MEMORY_CONFIG, ttnn.L1_WIDTH_SHARDED_MEMORY_CONFIG):
        device, problem = ttnn.open_device(small()), Problem(conv)
        made = ttnn.conv2d(**problem.arguments(device), conv_config=ttnn.Conv2dConfig(**float32), memory_config=place)
        assert made.memory_config().memory_layout == place.memory_layout
        assert relative_error(ttnn.to_torch(made).reshape(conv.outputs, -1), problem.expected()) < 1e-5


def test_mistakes_say_what_to_do() -> None:
    conv = Convolution(batch=1, height=8, width=8, in_channels=4, out_channels=6, kernel=(3, 3))
    device, problem = ttnn.open_device(small()), Problem(conv)
    arguments = problem.arguments(device)
    with pytest.raises(TesseraError, match="over the groups"):
        ttnn.conv2d(**arguments | {"groups": 3})
    with pytest.raises(TesseraError, match="does not fit an image"):
        ttnn.conv2d(**arguments | {"kernel_size": (9, 9)})
    with pytest.raises(TesseraError, match=r"do not belong.*\(6, 5, 3, 3\)"):
        ttnn.conv2d(**arguments | {"weight_tensor": ttnn.from_torch(torch.randn(6, 5, 3, 3))})
    with pytest.raises(TesseraError, match="not of this shape"):
        ttnn.conv2d(**arguments | {"input_height": 9})
    with pytest.raises(TesseraError, match="every output channel"):
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

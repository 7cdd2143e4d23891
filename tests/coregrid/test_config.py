"""Tests of configs: documented defaults, and refused contradictory settings."""

from __future__ import annotations

import pytest

from tessera.coregrid.cases import AXES, MATH_FIDELITIES, NUMBER_FORMATS, SHARD_LAYOUT_CHOICES
from tessera.coregrid.config import ComputeConfig, Conv2dConfig, MathFidelity, ShardLayout, SliceAxis, SliceConfig
from tessera.coregrid.formats import DTYPES, Layout, bfloat8_b, bfloat16
from tessera.errors import TesseraError
from tessera.geometry import Mesh


def test_default_settings() -> None:
    config, compute = Conv2dConfig(), ComputeConfig()
    assert (config.dtype, config.weights_dtype, config.activation) == (bfloat16, bfloat16, "")
    assert (config.input_channels_alignment, config.act_block_h_override, config.act_block_w_div) == (32, 0, 1)
    assert (config.shard_layout, config.core_grid, config.transpose_shards) == (None, None, False)
    assert config.output_layout is Layout.TILE
    off = ("deallocate_activation", "reallocate_halo_output", "reshard_if_not_optimal", "override_sharding_config")
    buffers = ("enable_act_double_buffer", "enable_weights_double_buffer", "enable_split_reader")
    assert not any(getattr(config, name) for name in off + buffers)
    assert compute.math_fidelity is MathFidelity.HiFi4
    assert compute.math_approx_mode
    assert not any((compute.dst_full_sync_en, compute.fp32_dest_acc_en, compute.packer_l1_acc))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"reshard_if_not_optimal": True, "override_sharding_config": True}, "mutually exclusive"),
        ({"override_sharding_config": True}, "requires shard_layout and core_grid"),
        ({"override_sharding_config": True, "core_grid": Mesh(2, 2)}, "requires shard_layout and core_grid"),
        ({"act_block_h_override": 33}, "multiple of 32"),
        ({"act_block_h_override": -32}, "multiple of 32"),
        ({"act_block_w_div": 0}, "1 or more"),
        ({"activation": "swish"}, "unknown activation"),
        ({"input_channels_alignment": 12}, "8, 16, 32"),
        ({"shard_layout": "INTERLEAVED"}, "HEIGHT, BLOCK, WIDTH"),
        ({"halo_mode": "all"}, "span, exact"),
        ({"output_layout": "tiles"}, "ROW_MAJOR, TILE"),
        ({"dtype": "bfloat16"}, "unknown dtype"),
        ({"dtype": bfloat8_b, "output_layout": Layout.ROW_MAJOR}, "require the tile layout"),
    ],
)
def test_invalid_arguments_raise(settings: dict[str, object], message: str) -> None:
    with pytest.raises(TesseraError, match=message):
        Conv2dConfig(**settings)


def test_num_slices_must_not_be_negative() -> None:
    with pytest.raises(TesseraError, match="0"):
        SliceConfig(num_slices=-1)


@pytest.mark.parametrize("word", ["height", "HEIGHT", SliceAxis.HEIGHT])
def test_enum_settings_accept_names(word: str) -> None:
    assert SliceConfig(axis=word).axis is SliceAxis.HEIGHT
    assert ComputeConfig(math_fidelity="LoFi").math_fidelity is MathFidelity.LoFi
    assert Conv2dConfig(output_layout="row_major").output_layout is Layout.ROW_MAJOR


def test_unknown_names_are_refused() -> None:
    with pytest.raises(TesseraError, match=r"unknown slice axis.*HEIGHT, WIDTH"):
        SliceConfig(axis="depth")
    with pytest.raises(TesseraError, match=r"unknown math_fidelity.*LoFi, HiFi2"):
        ComputeConfig(math_fidelity="lofi")


def test_configs_are_hashable() -> None:
    assert hash(Conv2dConfig(shard_layout="HEIGHT")) == hash(Conv2dConfig(shard_layout=ShardLayout.HEIGHT))
    assert len({ComputeConfig(), ComputeConfig(packer_l1_acc=True)}) == 2


def test_choices_of_the_command_match_the_enums() -> None:
    assert tuple(DTYPES) == NUMBER_FORMATS
    assert tuple(MathFidelity.__members__) == MATH_FIDELITIES
    assert SHARD_LAYOUT_CHOICES[2:] == tuple(ShardLayout)
    usual = Conv2dConfig()
    for axis in AXES:
        if axis.group == "settings" and axis.name != "grid" and hasattr(usual, axis.name):
            default = getattr(usual, axis.name)
            assert axis.default in (getattr(default, "name", default), str(getattr(default, "value", default))), (
                axis.name
            )

"""Configs: the defaults of the documentation, and what contradicts itself."""

from __future__ import annotations

import pytest

from tessera.coregrid.cases import CHOICES, FIDELITIES, FORMATS, SETTINGS
from tessera.coregrid.config import ComputeConfig, Conv2dConfig, MathFidelity, SliceAxis, SliceConfig
from tessera.coregrid.formats import DTYPES, Layout, bfloat8_b, bfloat16
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.errors import TesseraError
from tessera.geometry import Mesh


def test_defaults() -> None:
    config, compute = Conv2dConfig(), ComputeConfig()
    assert (config.dtype, config.weights_dtype, config.activation) == (bfloat16, bfloat16, "")
    assert (config.input_channels_alignment, config.act_block_h_override, config.act_block_w_div) == (32, 0, 1)
    assert (config.shard_layout, config.core_grid, config.transpose_shards) == (None, None, True)
    assert config.output_layout is Layout.TILE
    off = ("deallocate_activation", "reallocate_halo_output", "reshard_if_not_optimal", "override_sharding_config")
    buffers = ("enable_act_double_buffer", "enable_weights_double_buffer", "enable_split_reader")
    assert not any(getattr(config, name) for name in off + buffers)
    assert compute.math_fidelity is MathFidelity.HiFi4
    assert compute.math_approx_mode
    assert not any((compute.dst_full_sync_en, compute.fp32_dest_acc_en, compute.packer_l1_acc))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"reshard_if_not_optimal": True, "override_sharding_config": True}, "contradict"),
        ({"override_sharding_config": True}, "needs the sharding"),
        ({"override_sharding_config": True, "core_grid": Mesh(2, 2)}, "needs the sharding"),
        ({"act_block_h_override": 33}, "multiple of 32"),
        ({"act_block_h_override": -32}, "multiple of 32"),
        ({"act_block_w_div": 0}, "1 or more"),
        ({"activation": "swish"}, "unknown activation"),
        ({"input_channels_alignment": 12}, "8, 16, 32"),
        ({"shard_layout": "INTERLEAVED"}, "HEIGHT, BLOCK, WIDTH"),
        ({"halo_mode": "all"}, "span, exact"),
        ({"output_layout": "tiles"}, "ROW_MAJOR, TILE"),
        ({"dtype": "bfloat16"}, "unknown dtype"),
        ({"dtype": bfloat8_b, "output_layout": Layout.ROW_MAJOR}, "tiles only"),
    ],
)
def test_mistakes(given: dict[str, object], said: str) -> None:
    with pytest.raises(TesseraError, match=said):
        Conv2dConfig(**given)


def test_slices_are_counted_from_nought() -> None:
    with pytest.raises(TesseraError, match="0"):
        SliceConfig(num_slices=-1)


@pytest.mark.parametrize("word", ["height", "HEIGHT", SliceAxis.HEIGHT])
def test_names_stand_for_what_they_name(word: str) -> None:
    assert SliceConfig(axis=word).axis is SliceAxis.HEIGHT
    assert ComputeConfig(math_fidelity="LoFi").math_fidelity is MathFidelity.LoFi
    assert Conv2dConfig(output_layout="row_major").output_layout is Layout.ROW_MAJOR


def test_names_of_nothing() -> None:
    with pytest.raises(TesseraError, match=r"unknown axis of slices.*HEIGHT, WIDTH"):
        SliceConfig(axis="depth")
    with pytest.raises(TesseraError, match=r"unknown math_fidelity.*LoFi, HiFi2"):
        ComputeConfig(math_fidelity="lofi")


def test_configs_can_be_kept_by() -> None:
    assert hash(Conv2dConfig(shard_layout="HEIGHT")) == hash(Conv2dConfig(shard_layout=ShardLayout.HEIGHT))
    assert len({ComputeConfig(), ComputeConfig(packer_l1_acc=True)}) == 2


def test_the_words_of_the_command_are_those_of_the_code() -> None:
    assert tuple(DTYPES) == FORMATS
    assert tuple(MathFidelity.__members__) == FIDELITIES
    assert CHOICES[2:] == tuple(ShardLayout)
    usual = Conv2dConfig()
    for name, value in SETTINGS.items():
        if name != "grid" and hasattr(usual, name):
            mine = getattr(usual, name)
            assert getattr(mine, "name", mine) == value or str(getattr(mine, "value", mine)) == value, name

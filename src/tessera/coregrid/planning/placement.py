"""Decide whether the shards of an input stay on their cores, or must be moved to the cores of a plan."""

from __future__ import annotations

from dataclasses import replace

from tessera.coregrid.config import Conv2dConfig, ShardLayout
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import TILE_SIZE, DataType, Layout
from tessera.coregrid.memory_config import MemoryConfig, ShardOrientation, count_shards
from tessera.coregrid.planning.setup import ROW_MAJOR_CHANNEL_ALIGNMENT, ConvSetup
from tessera.coregrid.planning.sharding import round_up


def place_input(conv: Convolution, setup: ConvSetup, where: MemoryConfig | None) -> ConvSetup:
    """Return the setup of a call: with the shards of an input that stays, or with a copied input.

    `where` is the memory config of the input, None for a host tensor. An input stays on its cores unless the config
    allows or requires resharding, or the convolution cannot read the shards.
    """
    config = setup.config
    if where is None or not where.is_sharded():
        return replace(setup, copies_input=True)
    assert where.shard_spec is not None
    if config.reshard_if_not_optimal or config.override_sharding_config or not _can_read(conv, setup, where):
        layout = config.shard_layout or ShardLayout(where.memory_layout.value)
        return replace(setup, config=replace(config, shard_layout=layout))
    transposed = where.shard_spec.orientation is ShardOrientation.COL_MAJOR
    kept = replace(config, shard_layout=ShardLayout(where.memory_layout.value), transpose_shards=transposed)
    return replace(setup, config=kept, input_shards=where.shard_spec)


def _can_read(conv: Convolution, setup: ConvSetup, where: MemoryConfig) -> bool:
    """Return whether a convolution can read the shards of an input in place."""
    spec, layout = where.shard_spec, ShardLayout(where.memory_layout.value)
    assert spec is not None
    rows, columns = count_shards(spec, layout)
    if layout != ShardLayout.BLOCK and spec.orientation is not ShardOrientation.ROW_MAJOR:
        return False
    tiled = setup.input_layout is Layout.TILE or layout == ShardLayout.WIDTH or conv.is_matmul
    if spec.shape[1] % (TILE_SIZE if tiled else ROW_MAJOR_CHANNEL_ALIGNMENT):
        return False
    if not conv.is_matmul:
        return True
    # a matmul computes the rows that its core holds
    whole = layout == ShardLayout.HEIGHT or conv.in_channels == columns * spec.shape[1]
    return whole and spec.shape[0] == round_up(conv.output_sticks, rows * TILE_SIZE) // rows


def resolve_formats(config: Conv2dConfig, input_dtype: DataType, weights_dtype: DataType) -> Conv2dConfig:
    """Return the config with the formats of the tensors in place of formats that are not set."""
    return replace(
        config,
        dtype=config.dtype if config.dtype.tile_bytes else input_dtype,
        weights_dtype=config.weights_dtype if config.weights_dtype.tile_bytes else weights_dtype,
    )

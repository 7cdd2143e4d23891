"""A planned convolution made ready to run: everything that does not depend on the numbers, worked out once."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.coregrid.device.grids import CoreRangeSet
from tessera.coregrid.device.memory_config import (
    BufferType,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from tessera.coregrid.execution.gather import Copies, copies, segments
from tessera.coregrid.execution.halo import HaloMoves
from tessera.coregrid.execution.layouts import WeightLayout
from tessera.coregrid.formats import float32
from tessera.coregrid.planning.plan import ConvPlan
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.geometry import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A plan with the places of its input and output, its halo and its blocks as copies by index."""

    plan: ConvPlan
    input: MemoryConfig
    output: MemoryConfig
    weights: WeightLayout
    outputs: list[Interval]
    moves: HaloMoves | None
    gathers: list[list[list[Copies]]]

    @property
    def is_fixed(self) -> bool:
        """Whether it is nothing but calls on fixed places: everything in float32, so that nothing is converted."""
        return self.plan.input_dtype is self.plan.output_dtype is self.plan.weights_dtype is float32

    @classmethod
    def of(cls, plan: ConvPlan) -> Program:
        assert not plan.slices, "slices are programs of their own"
        sharding, conv = plan.sharding, plan.conv
        weights, haloing = WeightLayout.of(plan), plan.haloing
        outputs = sharding.outputs(conv.outputs)
        blocks = [
            segments(
                Interval(block * weights.block_rows, (block + 1) * weights.block_rows),
                sharding.in_width,
                conv.kernel,
                conv.dilation,
            )
            for block in range(weights.blocks)
        ]
        return cls(
            plan=plan,
            input=_sharded(plan, sharding.columns, (sharding.in_height, sharding.in_width)),
            output=_sharded(plan, sharding.out_columns, (sharding.out_height, sharding.out_width)),
            weights=weights,
            outputs=outputs,
            moves=None if haloing is None else HaloMoves.of(haloing),
            gathers=[] if haloing is None else copies(conv, haloing, outputs, blocks, sharding.in_width),
        )


def _sharded(plan: ConvPlan, columns: int, shape: tuple[int, int]) -> MemoryConfig:
    """Shards on `columns` of the cores in every row of the plan's grid."""
    layout, rows = plan.layout, plan.sharding.rows
    orientation = ShardOrientation.ROW_MAJOR
    if layout == ShardLayout.BLOCK:
        if plan.config.transpose_shards:
            cores = CoreRangeSet.rectangle(rows, columns)
        else:
            cores, orientation = CoreRangeSet.rectangle(columns, rows), ShardOrientation.COL_MAJOR
    else:
        cores = CoreRangeSet.first(rows * columns, plan.grid)
    return MemoryConfig(TensorMemoryLayout(layout.value), BufferType.L1, ShardSpec(cores, shape, orientation))

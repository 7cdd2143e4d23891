"""A plan prepared for execution: everything that does not depend on the tensor values is computed once."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.cores import CoreRangeSet
from tessera.coregrid.device.memory_config import (
    BufferType,
    MemoryConfig,
    ShardOrientation,
    ShardSpec,
    TensorMemoryLayout,
)
from tessera.coregrid.execution.gather import SegmentCopy, plan_copies, split_segments
from tessera.coregrid.execution.halo import HaloMoves
from tessera.coregrid.execution.weights import WeightLayout
from tessera.coregrid.formats import float32
from tessera.coregrid.planning.plan import ConvPlan
from tessera.geometry import Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvProgram:
    """A plan with the memory configs of input and output, and indexed copies for the halo and the activation blocks."""

    plan: ConvPlan
    input: MemoryConfig
    output: MemoryConfig
    weights: WeightLayout
    outputs: list[Interval]
    moves: HaloMoves | None
    gathers: list[list[list[SegmentCopy]]]

    @property
    def is_fixed(self) -> bool:
        """Whether all formats are float32. Such a program converts nothing and is a fixed sequence of torch calls."""
        return self.plan.input_dtype is self.plan.output_dtype is self.plan.weights_dtype is float32

    @classmethod
    def of(cls, plan: ConvPlan) -> ConvProgram:
        assert not plan.slices, "slices are programs of their own"
        sharding, conv = plan.sharding, plan.conv
        weights, halo_runs = WeightLayout.of(plan), plan.halo_runs
        outputs = sharding.split_outputs(conv.output_sticks)
        blocks = [
            split_segments(
                Interval(block * weights.block_rows, (block + 1) * weights.block_rows),
                sharding.in_width,
                conv.kernel,
                conv.dilation,
            )
            for block in range(weights.blocks)
        ]
        return cls(
            plan=plan,
            input=_build_memory_config(plan, sharding.columns, (sharding.in_height, sharding.in_width)),
            output=_build_memory_config(plan, sharding.out_columns, (sharding.out_height, sharding.out_width)),
            weights=weights,
            outputs=outputs,
            moves=None if halo_runs is None else HaloMoves.of(halo_runs),
            gathers=[] if halo_runs is None else plan_copies(conv, halo_runs, outputs, blocks, sharding.in_width),
        )


def _build_memory_config(plan: ConvPlan, columns: int, shape: tuple[int, int]) -> MemoryConfig:
    """Build the memory config of shards of `shape` on `columns` cores in every row of cores of a plan."""
    layout, rows = plan.layout, plan.sharding.rows
    orientation = ShardOrientation.ROW_MAJOR
    if layout == ShardLayout.BLOCK:
        if plan.config.transpose_shards:
            cores = CoreRangeSet.of_rectangle(rows, columns)
        else:
            cores, orientation = CoreRangeSet.of_rectangle(columns, rows), ShardOrientation.COL_MAJOR
    else:
        cores = CoreRangeSet.of_first(rows * columns, plan.grid)
    return MemoryConfig(TensorMemoryLayout(layout.value), BufferType.L1, ShardSpec(cores, shape, orientation))

"""Plan a convolution in slices through global memory, for convolutions whose shards do not fit the cores.

A slice is a range of output rows or columns. It is a smaller convolution of the input range that it reads, with the
padding at this range. Slices are split as the device splits them: as evenly as possible in whole rows or columns (in
tile layout, whole tiles of columns), with the larger slices first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tessera.coregrid.config import ShardLayout, SliceAxis, SliceConfig
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import TILE_SIZE, DataType, Layout
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.memory import OutOfMemory, compute_footprint
from tessera.coregrid.planning.plan import (
    MIB,
    ConvPlan,
    PlanSlice,
    compute_blocks,
    compute_sharding,
    explain_fit,
    list_layouts,
    plan_layout_or_default,
)
from tessera.coregrid.planning.setup import ConvSetup
from tessera.coregrid.planning.sharding import count_max_rows, round_up
from tessera.errors import TesseraError
from tessera.geometry import Interval
from tessera.geometry.partition import split_evenly

# If height / width is larger, slice rows, although slices of columns have a smaller halo.
MAX_ASPECT_RATIO_FOR_WIDTH_SLICES = 3
MIN_WIDTH_FOR_WIDTH_SLICES = 200  # with fewer columns, whole tiles of columns are too coarse


def choose_slice_axis(height: int, width: int, output_layout: Layout = Layout.TILE) -> SliceAxis:
    """Return the axis that the device slices first for an image of this size.

    >>> choose_slice_axis(1024, 128), choose_slice_axis(512, 512), choose_slice_axis(512, 512, Layout.ROW_MAJOR)
    (<SliceAxis.HEIGHT: 'height'>, <SliceAxis.WIDTH: 'width'>, <SliceAxis.WIDTH: 'width'>)
    """
    if output_layout is Layout.ROW_MAJOR:
        return SliceAxis.HEIGHT if height > MAX_ASPECT_RATIO_FOR_WIDTH_SLICES * width else SliceAxis.WIDTH
    return SliceAxis.HEIGHT if width < MIN_WIDTH_FOR_WIDTH_SLICES or height > width else SliceAxis.WIDTH


def split_into_slices(size: int, count: int, unit: int = 1) -> list[Interval]:
    """Split a length into `count` ranges of whole units, larger ranges first; fewer ranges if there are too few units.

    >>> split_into_slices(10, 3), split_into_slices(80, 2, 32)
    ([Interval(0:4), Interval(4:7), Interval(7:10)], [Interval(0:64), Interval(64:80)])
    """
    return [part for part in split_evenly(size, count, unit) if len(part)]


def slice_convolution(conv: Convolution, axis: SliceAxis, output: Interval) -> tuple[Convolution, Interval]:
    """Return the convolution that computes the output rows or columns `output`, and the input range that it reads."""
    dim = 0 if axis is SliceAxis.HEIGHT else 1
    size, (before, _) = (conv.height, conv.width)[dim], conv.padding[dim]
    start = output.start * conv.stride[dim] - before
    stop = (output.stop - 1) * conv.stride[dim] - before + conv.window.extent[dim]
    input_range = Interval(max(0, start), min(size, stop))
    if input_range.stop <= input_range.start:
        raise TesseraError("a slice would read only padding", got=conv.padding, do="use fewer slices")
    pads = (input_range.start - start, stop - input_range.stop)
    padding = (pads, conv.padding[1]) if dim == 0 else (conv.padding[0], pads)
    if dim == 0:
        return replace(conv, height=len(input_range), padding=padding), input_range
    return replace(conv, width=len(input_range), padding=padding), input_range


def plan_sliced(
    conv: Convolution, setup: ConvSetup, slices: SliceConfig | None = None, *, layout: ShardLayout | None = None
) -> ConvPlan:
    """Plan a convolution with input and output in global memory, in slices.

    The number of slices is `slices.num_slices`, or the smallest number with which all slices fit. Increasing numbers of
    slices are tried along the requested axis, or along the guessed axis and then the other axis. If a single slice
    fits, the plan has no slices.
    """
    # the input shard of a slice is temporary and is freed once the haloed shard is filled
    config, slices = setup.config, slices or SliceConfig()
    setup = replace(setup, copies_input=True, input_shards=None)
    guessed = choose_slice_axis(conv.height, conv.width, config.output_layout)
    axes = [slices.axis] if slices.axis else [guessed, *(axis for axis in SliceAxis if axis is not guessed)]
    slicers = [_Slicer(conv, axis, setup, layout or config.shard_layout) for axis in axes]
    if slices.num_slices:
        return _join_slices(conv, list(slicers[0].iter_slices(slices.num_slices)))
    min_memory = []
    for slicer in slicers:
        for count in range(slicer.find_min_slices(), slicer.max_slices + 1):
            parts = []
            for part in slicer.iter_slices(count):
                parts.append(part)
                if not part.plan.fits:  # if one slice does not fit, this number of slices is too small
                    min_memory.append(part.plan.high_water)
                    break
            else:
                return _join_slices(conv, parts)
        min_memory.append(slicer.compute_min_memory(slicer.max_slices))
    raise OutOfMemory(
        "no slice of this convolution fits the memory of a core",
        got=f"{min(min_memory) / MIB:.2f} MiB per core at least",
        allowed=f"up to {setup.machine.local_memory / MIB:.2f} MiB",
        do="use smaller blocks (act_block_h_override), bfloat8_b weights, or another layout",
    )


@dataclass(frozen=True, slots=True)
class _Slicer:
    """Slices of a convolution along one axis, in `layout` or the device's default layout (None)."""

    conv: Convolution
    axis: SliceAxis
    setup: ConvSetup
    layout: ShardLayout | None

    @property
    def size(self) -> int:
        """Size of the output along the axis."""
        return self.conv.output_size[0 if self.axis is SliceAxis.HEIGHT else 1]

    @property
    def unit(self) -> int:
        """Unit of the slice size: 32 columns (a tile) of a tiled output, else one row or column."""
        tiled = self.setup.config.output_layout is Layout.TILE
        return TILE_SIZE if self.axis is SliceAxis.WIDTH and tiled else 1

    @property
    def max_slices(self) -> int:
        return -(-self.size // self.unit)

    def find_min_slices(self) -> int:
        """Return a lower bound of the number of slices that fit, by bisection over `compute_min_memory`.

        Bisection is possible because this memory, which omits the halo between cores, decreases with the number of
        slices.
        """
        counts, capacity = range(1, self.max_slices + 1), self.setup.machine.local_memory
        return 1 + bisect_left(counts, True, key=lambda count: self.compute_min_memory(count) <= capacity)

    def compute_min_memory(self, count: int) -> int:
        """Return a lower bound of the memory of the first of `count` slices: all cores are used and share no sticks."""
        part, _ = slice_convolution(self.conv, self.axis, split_into_slices(self.size, count, self.unit)[0])
        setup, config = self.setup, self.setup.config
        whole = replace(setup, config=replace(config, act_block_h_override=0))
        reads_all = all(step <= extent for step, extent in zip(part.stride, part.window.extent, strict=True))
        peaks = []
        for candidate in [self.layout] if self.layout else list_layouts(part, whole):
            rows = count_max_rows(candidate, setup.cores, transpose_shards=config.transpose_shards)
            sharding = replace(
                compute_sharding(part, candidate, whole),
                rows=rows,
                in_height=round_up(part.input_sticks, rows * TILE_SIZE) // rows,
                out_height=round_up(part.output_sticks, rows * TILE_SIZE) // rows,
            )
            blocks = compute_blocks(part, sharding, whole)
            if config.act_block_h_override:
                blocks = replace(blocks, act_height=1)
            haloed = -(-part.input_sticks // rows) if reads_all else 0
            peaks.append(compute_footprint(part, sharding, blocks, haloed, setup).high_water)
        return min(peaks)

    def iter_slices(self, count: int) -> Iterator[PlanSlice]:
        """Yield `count` planned slices. Slices of equal shape share a plan."""
        plans: dict[Convolution, ConvPlan] = {}
        for output in split_into_slices(self.size, count, self.unit):
            part, input_range = slice_convolution(self.conv, self.axis, output)
            if part not in plans:
                plans[part] = plan_layout_or_default(part, self.layout, self.setup)
            yield PlanSlice(axis=self.axis, output=output, input=input_range, plan=plans[part])


def _join_slices(conv: Convolution, parts: list[PlanSlice]) -> ConvPlan:
    """Combine slices into one plan with the memory of the largest slice and the bytes moved by all slices."""
    if len(parts) == 1 and parts[0].plan.conv == conv:  # a slice omits sticks that no window reads
        return parts[0].plan
    largest = max((part.plan for part in parts), key=lambda plan: plan.high_water)
    ledger = Ledger()
    for part in parts:
        ledger += part.plan.ledger + count_global_bytes(part.plan)
    return replace(largest, conv=conv, slices=tuple(parts), ledger=ledger)


def count_global_bytes(plan: ConvPlan) -> Ledger:
    """Return the bytes that a slice reads from and writes to global memory."""
    conv = plan.conv
    return Ledger(
        global_read=conv.input_sticks * _count_stick_bytes(plan.input_dtype, conv.in_channels, plan.setup.input_layout),
        global_written=conv.output_sticks
        * _count_stick_bytes(plan.config.dtype, conv.out_channels, plan.config.output_layout),
    )


def _count_stick_bytes(dtype: DataType, channels: int, layout: Layout) -> int:
    """Return the size of a stick in global memory in bytes. In tile layout, channels are padded to whole tiles."""
    return dtype.count_row_bytes(round_up(channels, TILE_SIZE) if layout is Layout.TILE else channels)


def plan_conv2d_call(
    conv: Convolution,
    setup: ConvSetup,
    *,
    layout: ShardLayout | None = None,
    in_global_memory: bool = False,
    slices: SliceConfig | None = None,
) -> ConvPlan:
    """Return the plan that a call of `conv2d` executes. Raises OutOfMemory with advice if the plan does not fit.

    The layout is `layout` (of an input that stays on its cores), else it is set by the config, else it is the device's
    default. A convolution is sliced if `slices` is set, or if the input is in global memory and the shards do not fit.
    """
    layout = layout or setup.config.shard_layout
    if slices is not None and not slices.in_local_memory:
        plan = plan_sliced(conv, setup, slices, layout=layout)
    else:
        plan = plan_layout_or_default(conv, layout, setup)
        if not plan.fits and in_global_memory and slices is None:
            plan = plan_sliced(conv, setup, layout=layout)
    if not plan.fits:
        raise OutOfMemory(f"out of memory: {explain_fit(plan)}")
    return plan

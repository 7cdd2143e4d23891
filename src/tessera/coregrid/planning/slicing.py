"""A convolution that goes through global memory in slices, because not even its shards fit the cores.

A slice is a range of output rows or columns; the input that it reads and the padding that it has left make it a
convolution of its own. Slices are cut as the chip cuts them: as evenly as whole rows (or, in tiles, whole tiles of
columns) allow, the first ones larger.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace

from tessera.coregrid.config import Conv2dConfig, SliceAxis, SliceConfig
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.device.arena import OutOfMemory
from tessera.coregrid.formats import TILE, DataType, Layout
from tessera.coregrid.planning.autoshard import auto_shard
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.plan import (
    MB,
    ConvPlan,
    Setup,
    Slice,
    blocked,
    layouts_for,
    memory_of,
    planned,
    sharded,
)
from tessera.coregrid.planning.sharding import ShardLayout, most_rows, round_up
from tessera.errors import TesseraError
from tessera.geometry import Interval

TALL = 3  # times higher than wide: beyond this, rows are cut even where columns have less halo
NARROW = 200  # columns: below this, whole tiles of columns are too coarse to cut


def guess_axis(height: int, width: int, output_layout: Layout = Layout.TILE) -> SliceAxis:
    """Along which dim the chip cuts an input of this size first.

    >>> guess_axis(1024, 128), guess_axis(512, 512), guess_axis(512, 512, Layout.ROW_MAJOR)
    (<SliceAxis.HEIGHT: 'height'>, <SliceAxis.WIDTH: 'width'>, <SliceAxis.WIDTH: 'width'>)
    """
    if output_layout is Layout.ROW_MAJOR:
        return SliceAxis.HEIGHT if height > TALL * width else SliceAxis.WIDTH
    return SliceAxis.HEIGHT if width < NARROW or height > width else SliceAxis.WIDTH


def cut(size: int, count: int, unit: int = 1) -> list[Interval]:
    """A length in so many parts of whole units, the first ones larger; fewer parts if there are not as many units.

    >>> cut(10, 3), cut(80, 2, 32)
    ([Interval(0:4), Interval(4:7), Interval(7:10)], [Interval(0:64), Interval(64:80)])
    """
    least, more = divmod(-(-size // unit), count)
    edges = [0]
    for part in range(count):
        edges.append(min(size, edges[-1] + unit * (least + (part < more))))
    return [Interval(a, b) for a, b in itertools.pairwise(edges) if b > a]


def part_of(conv: Convolution, axis: SliceAxis, output: Interval) -> tuple[Convolution, Interval]:
    """The convolution that makes these rows (columns) of the output, and the rows (columns) of the input it reads."""
    dim = 0 if axis is SliceAxis.HEIGHT else 1
    size, (before, _) = (conv.height, conv.width)[dim], conv.padding[dim]
    start = output.start * conv.stride[dim] - before
    stop = (output.stop - 1) * conv.stride[dim] - before + conv.window.reach[dim]
    taken = Interval(max(0, start), min(size, stop))
    if taken.stop <= taken.start:
        raise TesseraError("a slice that reads nothing but padding", got=conv.padding, do="use fewer slices")
    pads = (taken.start - start, stop - taken.stop)
    padding = (pads, conv.padding[1]) if dim == 0 else (conv.padding[0], pads)
    if dim == 0:
        return replace(conv, height=len(taken), padding=padding), taken
    return replace(conv, width=len(taken), padding=padding), taken


def plan_sliced(
    conv: Convolution, setup: Setup, slices: SliceConfig | None = None, *, layout: ShardLayout | None = None
) -> ConvPlan:
    """Plan a convolution from and to global memory; in as many slices as are asked for, or as it takes to fit.

    The number of slices counts up from one along the axis that is guessed (or given), then along the other one if it
    was guessed. One slice that fits is the whole convolution: the plan then has no slices.
    """
    # a slice's shard belongs to the operation, which frees it as soon as the haloed one is made
    config = replace(setup.config, deallocate_activation=True)
    setup, slices = replace(setup, config=config), slices or SliceConfig()
    layout = layout or config.shard_layout
    guessed = guess_axis(conv.height, conv.width, config.output_layout)
    axes = [slices.axis] if slices.axis else [guessed, *(axis for axis in SliceAxis if axis is not guessed)]
    if slices.num_slices:
        return _joined(conv, list(_parts(conv, axes[0], slices.num_slices, setup, layout)))
    least = []
    for axis in axes:
        most = _most(conv, axis, config)
        for count in range(_fewest(conv, axis, setup, layout), most + 1):
            parts = []
            for part in _parts(conv, axis, count, setup, layout):
                parts.append(part)
                if not part.plan.fits:  # the others need not be planned
                    least.append(part.plan.high_water)
                    break
            else:
                return _joined(conv, parts)
        least.append(_floor(conv, axis, most, setup, layout))
    raise OutOfMemory(
        "no slice of this convolution fits",
        got=f"{min(least) / MB:.2f} MB per core at least",
        allowed=f"up to {setup.machine.local_memory / MB:.2f} MB",
        do="use smaller blocks (act_block_h_override), bfloat8_b weights, or another layout",
    )


def _fewest(conv: Convolution, axis: SliceAxis, setup: Setup, layout: ShardLayout | None) -> int:
    """With fewer slices than these the first is too large already, whatever is read twice.

    What a slice takes without that only grows with its size, so the number is found by halving.
    """
    counts = range(1, _most(conv, axis, setup.config) + 1)
    have = setup.machine.local_memory
    return 1 + bisect_left(counts, True, key=lambda count: _floor(conv, axis, count, setup, layout) <= have)


def _floor(conv: Convolution, axis: SliceAxis, count: int, setup: Setup, layout: ShardLayout | None) -> int:
    """What the first of so many slices takes of a core's memory at least: spread over all cores, no stick on two."""
    size = conv.output[0 if axis is SliceAxis.HEIGHT else 1]
    part, _ = part_of(conv, axis, cut(size, count, _unit(axis, setup.config))[0])
    whole = replace(setup, config=replace(setup.config, act_block_h_override=0))
    every = all(step <= reach for step, reach in zip(part.stride, part.window.reach, strict=True))  # stick is read
    found = []
    for tried in [layout] if layout else layouts_for(part, whole):
        rows = most_rows(tried, setup.cores, transpose_shards=setup.config.transpose_shards)
        sharding = replace(
            sharded(part, tried, whole),
            rows=rows,
            in_height=round_up(part.inputs, rows * TILE) // rows,
            out_height=round_up(part.outputs, rows * TILE) // rows,
        )
        blocks = blocked(part, sharding, whole)
        if setup.config.act_block_h_override and tried != ShardLayout.WIDTH:
            blocks = replace(blocks, act_height=1)
        haloed = -(-part.inputs // rows) if every else 0
        found.append(memory_of(part, sharding, blocks, haloed, setup).high_water)
    return min(found)


def _most(conv: Convolution, axis: SliceAxis, config: Conv2dConfig) -> int:
    size = conv.output[0 if axis is SliceAxis.HEIGHT else 1]
    return -(-size // _unit(axis, config))


def _unit(axis: SliceAxis, config: Conv2dConfig) -> int:
    """Columns of an output in tiles are cut by whole tiles."""
    return TILE if axis is SliceAxis.WIDTH and config.output_layout is Layout.TILE else 1


def _parts(conv: Convolution, axis: SliceAxis, count: int, setup: Setup, layout: ShardLayout | None) -> Iterator[Slice]:
    size = conv.output[0 if axis is SliceAxis.HEIGHT else 1]
    plans: dict[Convolution, ConvPlan] = {}  # all slices but the outer ones are alike
    for output in cut(size, count, _unit(axis, setup.config)):
        part, taken = part_of(conv, axis, output)
        if part not in plans:
            plans[part] = planned(part, layout, setup) if layout else auto_shard(part, setup)
        yield Slice(axis=axis, output=output, input=taken, plan=plans[part])


def _joined(conv: Convolution, parts: list[Slice]) -> ConvPlan:
    """One plan of all slices: the memory of the largest, the bytes of all, and those from and to global memory."""
    if len(parts) == 1 and parts[0].plan.conv == conv:  # a slice leaves out what no window reads
        return parts[0].plan
    largest = max((part.plan for part in parts), key=lambda plan: plan.high_water)
    ledger = Ledger()
    for part in parts:
        ledger += part.plan.ledger + global_ledger(part.plan)
    return replace(largest, conv=conv, slices=tuple(parts), ledger=ledger)


def global_ledger(plan: ConvPlan) -> Ledger:
    """The sticks that a slice reads from global memory, and those that it writes."""
    conv = plan.conv
    return Ledger(
        global_read=conv.inputs * _stick(plan.input_dtype, conv.in_channels, plan.input_layout),
        global_written=conv.outputs * _stick(plan.output_dtype, conv.out_channels, plan.config.output_layout),
    )


def _stick(dtype: DataType, channels: int, layout: Layout) -> int:
    """The bytes of a stick in global memory; in tiles its channels are whole ones."""
    return dtype.row_bytes(round_up(channels, TILE) if layout is Layout.TILE else channels)

"""Runs a convolution on the cores, as its plan says: halo, blocks, multicasts and products, in the cores' memories.

Rows of cores follow one another, so that what one of them works on stays in this host's caches; a real device runs
them at once. Nothing is kept outside the memories of the device but what its registers would hold.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import cache

import torch
from torch import Tensor

from tessera.coregrid.device.arena import Buffer
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.placement import place
from tessera.coregrid.device.storage import Interleaved, Matrix, Shards
from tessera.coregrid.execution.calls import Calls
from tessera.coregrid.execution.feeding import Feed
from tessera.coregrid.execution.program import Program
from tessera.coregrid.execution.repeating import repeated
from tessera.coregrid.execution.rows import Rows
from tessera.coregrid.execution.workspace import Workspace
from tessera.coregrid.planning.ledger import Ledger
from tessera.geometry import Interval


@torch.no_grad()
def execute(
    program: Program,
    device: Device,
    source: Shards,
    weights: Interleaved,
    bias: Interleaved | None,
    *,
    release: Callable[[], None] | None = None,
    do: str = "",
) -> Shards:
    """The output of a convolution, made where its plan says from an input that lies so.

    `release` frees the input as soon as it is not needed; `do` is the advice if a buffer does not fit. What moved and
    what was allocated at most are held against the plan: it is an error of this program if they differ.
    """
    arena, plan = device.arena, program.plan
    earlier = arena.reset_peak()
    before = arena.used - source.bytes
    moved = Ledger()
    with ExitStack() as undo:
        haloed = source.buffer
        if program.moves is not None:
            haloed = arena.allocate(plan.footprint.halo, "haloed input", do=do)
            undo.callback(arena.free, haloed)
            where = source.buffer.place, haloed.place
            moved += repeated(
                device, program, "halo", where, lambda calls: _halo(program, device, source, haloed, calls)
            )
            if release is not None:
                release()
                if plan.config.reallocate_halo_output:
                    arena.raise_up(haloed)
        arena.make_room(plan.footprint.output + plan.footprint.buffers)
        with ExitStack() as failed:
            matrix = Matrix(
                rows=plan.conv.outputs,
                columns=plan.conv.out_channels,
                dtype=plan.output_dtype,
                layout=plan.config.output_layout,
            )
            output = place(device, matrix, program.output, "output")
            assert isinstance(output, Shards)
            failed.callback(output.free)
            space = Workspace(plan, arena, do)
            undo.callback(space.free)
            moved += repeated(
                device,
                program,
                "rows",
                (
                    source.buffer.place,
                    haloed.place,
                    output.buffer.place,
                    *space.places(),
                    *map(_address, (weights, bias)),
                ),
                lambda calls: Rows(program, Feed(program, space, source, haloed, calls), output, weights, bias).run(),
            )
            failed.pop_all()
    if program.moves is None and release is not None:
        release()
    if moved != plan.ledger:
        raise AssertionError(f"moved {moved}, planned {plan.ledger}")
    peak = arena.peak
    arena.reset_peak(max(earlier, peak))
    if peak - before != plan.high_water:
        raise AssertionError(f"allocated {peak - before} bytes a core, planned {plan.high_water}")
    device.count(moved)
    return output


def _halo(program: Program, device: Device, source: Shards, haloed: Buffer, calls: Calls) -> Ledger:
    """Make the haloed shards, column of cores after column."""
    plan, moves, moved = program.plan, program.moves, Ledger()
    assert moves is not None
    width, dtype = plan.sharding.in_width, plan.sticks_dtype.torch
    for column in range(plan.sharding.columns):

        @cache
        def shard(row: int, column: int = column) -> Tensor:
            return source.numbers(row, column)[:, :width].to(dtype)

        def target(row: int, column: int = column) -> Tensor:
            return device.arena.view(source.core(row, column), haloed, dtype, (moves.sizes[row], width))

        moved += moves.run(shard, target, 0.0, calls)
    return moved


def _address(stored: Interleaved | None) -> int:
    return 0 if stored is None else stored.pages.get(Interval(0, 1)).data_ptr()

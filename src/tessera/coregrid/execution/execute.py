"""Execute a planned convolution in the memories of the simulated cores, at once or slice by slice.

The steps are halo exchange, gathering of blocks, multicasts and matrix products. Groups of core rows run one after the
other, so that their data stays in the caches of this host; a real device runs them in parallel. All data is in the
memories of the device, except for the contents of registers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache

import torch

from tessera.coregrid.config import SliceAxis
from tessera.coregrid.device.arena import Buffer
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.storage import (
    InterleavedStorage,
    MatrixSpec,
    ShardedStorage,
    Storage,
    allocate_storage,
    read_matrix_bytes,
    write_matrix_bytes,
)
from tessera.coregrid.device.tensors import Allocation, Tensor, allocate_tensor
from tessera.coregrid.execution.block_loop import ActivationFeed, BlockLoop
from tessera.coregrid.execution.program import ConvProgram
from tessera.coregrid.execution.replay import CallRecorder, run_or_replay
from tessera.coregrid.execution.weights import ConvOperands
from tessera.coregrid.execution.workspace import Workspace
from tessera.coregrid.memory_config import DRAM_MEMORY_CONFIG
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.plan import ConvPlan, explain_fit
from tessera.geometry import Interval


@torch.no_grad()
def execute_program(
    program: ConvProgram,
    device: Device,
    source: ShardedStorage,
    weights: InterleavedStorage,
    bias: InterleavedStorage | None,
    *,
    release: Callable[[], None] | None = None,
    do: str = "",
) -> ShardedStorage:
    """Execute a convolution and return its output shards. The input must be sharded as planned.

    `release` is called to free the input as soon as the input is no longer needed. `do` is the advice of an
    out-of-memory error. Raises an AssertionError if the bytes moved or the peak memory differ from the plan.
    """
    arena, plan = device.arena, program.plan
    earlier_peak = arena.reset_peak()
    used_before = arena.used - source.bytes
    ledger = Ledger()
    with ExitStack() as undo:
        haloed = source.buffer
        if program.moves is not None:
            haloed = arena.allocate(plan.footprint.halo, "haloed input", do=do)
            undo.callback(arena.free, haloed)
            addresses = source.buffer.place, haloed.place
            ledger += run_or_replay(
                device,
                ("halo calls", id(program)),
                addresses,
                lambda calls: _exchange_halo(program, device, source, haloed, calls),
                can_replay=program.is_fixed,
            )
            if release is not None:
                release()
            if plan.config.reallocate_halo_output:
                arena.move_to_top(haloed)
        arena.compact(plan.footprint.output + plan.footprint.buffers)
        with ExitStack() as failed:
            matrix = MatrixSpec(
                rows=plan.conv.output_sticks,
                columns=plan.conv.out_channels,
                dtype=plan.config.dtype,
                layout=plan.config.output_layout,
            )
            output = allocate_storage(device, matrix, program.output, "output")
            assert isinstance(output, ShardedStorage)
            failed.callback(output.free)
            space = Workspace(plan, arena, do)
            undo.callback(space.free)
            ledger += run_or_replay(
                device,
                ("block calls", id(program)),
                (
                    source.buffer.place,
                    haloed.place,
                    output.buffer.place,
                    *space.get_addresses(),
                    *map(_get_address, (weights, bias)),
                ),
                lambda calls: BlockLoop(
                    program, ActivationFeed(program, space, source, haloed, calls), output, weights, bias
                ).run(),
                can_replay=program.is_fixed,
            )
            failed.pop_all()
    if program.moves is None and release is not None:
        release()
    if ledger != plan.ledger:
        raise AssertionError(f"moved {ledger}, planned {plan.ledger}")
    peak = arena.peak
    arena.reset_peak(max(earlier_peak, peak))
    if peak - used_before != plan.high_water:
        raise AssertionError(f"allocated {peak - used_before} bytes per core, planned {plan.high_water}")
    device.add_moved_bytes(ledger)
    return output


def _exchange_halo(
    program: ConvProgram, device: Device, source: ShardedStorage, haloed: Buffer, calls: CallRecorder
) -> Ledger:
    """Fill the haloed shards, one column of cores at a time, and return the bytes moved."""
    plan, moves, ledger = program.plan, program.moves, Ledger()
    assert moves is not None
    width, dtype = plan.sharding.in_width, plan.sticks_dtype.torch
    for column in range(plan.sharding.columns):

        @cache
        def view_source(row: int, column: int = column) -> torch.Tensor:
            return source.read_shard_values(row, column)[:, :width].to(dtype)

        def view_target(row: int, column: int = column) -> torch.Tensor:
            return device.arena.view(source.get_core(row, column), haloed, dtype, (moves.sizes[row], width))

        ledger += moves.exchange(view_source, view_target, 0.0, calls)
    return ledger


def _get_address(storage: InterleavedStorage | None) -> int:
    return 0 if storage is None else storage.pages.read_pages(Interval(0, 1)).data_ptr()


def execute_slices(
    plan: ConvPlan, programs: Sequence[ConvProgram], device: Device, source: Storage, operands: ConvOperands
) -> Tensor:
    """Execute a sliced convolution and return its output in global memory."""
    conv = plan.conv
    shape = 1, 1, conv.output_sticks, conv.out_channels
    matrix = MatrixSpec.of(shape, plan.config.dtype, plan.config.output_layout)
    output = allocate_tensor(device, matrix, shape, DRAM_MEMORY_CONFIG, "output")
    ledger, advice = Ledger(), f"free other tensors; {explain_fit(plan)}"
    try:
        for part, program in zip(plan.slices, programs, strict=True):
            runs = list_slice_runs(conv.batch, (conv.height, conv.width), part.axis, part.input)
            shards, read = _load_slice(source, runs, program, device)
            allocation = Allocation(device, program.input, shards)
            try:
                weights, bias = operands.get_pages(program.weights)
                shards_out = execute_program(program, device, shards, weights, bias, release=allocation.free, do=advice)
            finally:
                allocation.free()
            written = _store_slice(
                shards_out, output.storage, list_slice_runs(conv.batch, conv.output_size, part.axis, part.output)
            )
            shards_out.free()
            global_moves = Ledger(global_read=read, global_written=written)
            device.add_moved_bytes(global_moves)
            ledger += part.plan.ledger + global_moves
    except Exception:
        output.allocation.free()
        raise
    if ledger != plan.ledger:
        raise AssertionError(f"moved {ledger}, planned {plan.ledger}")
    return output


def list_slice_runs(batch: int, size: tuple[int, int], axis: SliceAxis, part: Interval) -> list[Interval]:
    """Return the stick ranges of the image rows (HEIGHT) or columns (WIDTH) `part` in all images.

    >>> list_slice_runs(2, (4, 3), SliceAxis.HEIGHT, Interval(1, 3))
    [Interval(3:9), Interval(15:21)]
    >>> list_slice_runs(1, (2, 5), SliceAxis.WIDTH, Interval(0, 2))
    [Interval(0:2), Interval(5:7)]
    """
    height, width = size
    if axis is SliceAxis.HEIGHT:
        return [Interval((n * height + part.start) * width, (n * height + part.stop) * width) for n in range(batch)]
    return [part + row * width for row in range(batch * height)]


def _load_slice(
    source: Storage, runs: list[Interval], program: ConvProgram, device: Device
) -> tuple[ShardedStorage, int]:
    """Copy the input sticks of a slice from global memory to new shards; return the shards and the bytes read."""
    matrix_in, conv = source.matrix, program.plan.conv
    (whole,) = source.list_parts()
    raw = torch.cat([source.read(whole, run, whole.columns) for run in runs])
    matrix = MatrixSpec(
        rows=conv.input_sticks, columns=matrix_in.columns, dtype=matrix_in.dtype, layout=matrix_in.layout
    )
    shards = allocate_storage(device, matrix, program.input, "input")
    assert isinstance(shards, ShardedStorage)
    write_matrix_bytes(shards, raw)
    return shards, raw.numel()


def _store_slice(shards: ShardedStorage, output: Storage, runs: list[Interval]) -> int:
    """Copy the output shards of a slice to global memory, and return the bytes written."""
    raw, at = read_matrix_bytes(shards), 0
    (whole,) = output.list_parts()
    for run in runs:
        output.write(whole, run, whole.columns, raw[at : at + len(run)])
        at += len(run)
    return raw.numel()

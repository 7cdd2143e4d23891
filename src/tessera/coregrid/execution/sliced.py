"""Runs a convolution through global memory, slice after slice: a part of the input in, its output out."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tessera.coregrid.config import SliceAxis
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.memory_config import DRAM_MEMORY_CONFIG
from tessera.coregrid.device.placement import place
from tessera.coregrid.device.storage import Matrix, Shards, Storage, collect, deal
from tessera.coregrid.device.tensors import Placed, Tensor, empty
from tessera.coregrid.execution.execute import execute
from tessera.coregrid.execution.prepared import Operands
from tessera.coregrid.execution.program import Program
from tessera.coregrid.planning.knobs import advice
from tessera.coregrid.planning.ledger import Ledger
from tessera.coregrid.planning.plan import ConvPlan
from tessera.geometry import Interval


def execute_slices(
    plan: ConvPlan,
    programs: Sequence[Program],
    device: Device,
    source: Storage,
    operands: Operands,
) -> Tensor:
    """The output of a convolution in slices, in global memory."""
    conv = plan.conv
    shape = 1, 1, conv.outputs, conv.out_channels
    matrix = Matrix.of(shape, plan.output_dtype, plan.config.output_layout)
    output = empty(device, matrix, shape, DRAM_MEMORY_CONFIG, "output")
    moved, knobs = Ledger(), f"free other tensors; {advice(plan)}"
    try:
        for cut, program in zip(plan.slices, programs, strict=True):
            runs = sticks(conv.batch, (conv.height, conv.width), cut.axis, cut.input)
            shards, read = _taken(source, runs, program, device)
            taken = Placed(device, program.input, shards)
            try:
                weights, bias = operands.pages(program.weights)
                made = execute(program, device, shards, weights, bias, release=taken.free, do=knobs)
            finally:
                taken.free()
            written = _put(made, output.storage, sticks(conv.batch, conv.output, cut.axis, cut.output))
            made.free()
            crossed = Ledger(global_read=read, global_written=written)
            device.count(crossed)
            moved += cut.plan.ledger + crossed
    except Exception:
        output.placed.free()
        raise
    if moved != plan.ledger:
        raise AssertionError(f"moved {moved}, planned {plan.ledger}")
    return output


def sticks(batch: int, size: tuple[int, int], axis: SliceAxis, part: Interval) -> list[Interval]:
    """The sticks of some rows, or some columns, of all images, as runs.

    >>> sticks(2, (4, 3), SliceAxis.HEIGHT, Interval(1, 3))
    [Interval(3:9), Interval(15:21)]
    >>> sticks(1, (2, 5), SliceAxis.WIDTH, Interval(0, 2))
    [Interval(0:2), Interval(5:7)]
    """
    height, width = size
    if axis is SliceAxis.HEIGHT:
        return [Interval((n * height + part.start) * width, (n * height + part.stop) * width) for n in range(batch)]
    return [part + row * width for row in range(batch * height)]


def _taken(source: Storage, runs: list[Interval], program: Program, device: Device) -> tuple[Shards, int]:
    """Sticks of the input in shards, as a slice's plan needs them, and the bytes that were read for them."""
    given, conv = source.matrix, program.plan.conv
    (everything,) = source.parts()
    raw = torch.cat([source.read(everything, run, everything.columns) for run in runs])
    matrix = Matrix(rows=conv.inputs, columns=given.columns, dtype=given.dtype, layout=given.layout)
    shards = place(device, matrix, program.input, "input")
    assert isinstance(shards, Shards)
    deal(shards, raw)
    return shards, raw.numel()


def _put(made: Shards, output: Storage, runs: list[Interval]) -> int:
    """The output of a slice, to where it belongs; gives the bytes that were written."""
    raw, at = collect(made), 0
    (everything,) = output.parts()
    for run in runs:
        output.write(everything, run, everything.columns, raw[at : at + len(run)])
        at += len(run)
    return raw.numel()

"""Windows over height-sharded images, for operations that reduce them: haloed shards, and where each pixel lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor as TorchTensor

from tessera.coregrid.device.device import Device
from tessera.coregrid.device.storage import Shards
from tessera.coregrid.device.tensors import Tensor, deallocate
from tessera.coregrid.execution.calls import Calls
from tessera.coregrid.execution.halo import HaloMoves
from tessera.coregrid.planning.memory import sticks_dtype
from tessera.coregrid.planning.sticks import Sticks
from tessera.geometry import Interval, Window


@dataclass(frozen=True, slots=True)
class WindowMoves:
    """The halo of a window as copies by index, and for every core and pixel of the window the sticks it reads."""

    halo: HaloMoves
    outputs: list[Interval]
    taps: list[list[TorchTensor]]

    @classmethod
    def of(
        cls, sizes: tuple[int, int, int], window: Window, inputs: list[Interval], outputs: list[Interval]
    ) -> WindowMoves:
        sticks = Sticks(sizes, window)
        haloing = sticks.haloing(inputs, outputs)
        taps = [
            [torch.from_numpy(sticks.trace[run.slice] - span.start + tap) for tap in sticks.taps]
            for run, span in zip(outputs, haloing.ranges, strict=True)
        ]
        return cls(HaloMoves.of(haloing), outputs, taps)


@contextmanager
def haloed(
    device: Device, given: Tensor, moves: WindowMoves, *, padding: float, frees: bool, what: str
) -> Iterator[Callable[[int], TorchTensor]]:
    """The haloed shards by core, while they are needed; `frees` gives the input back once they are made."""
    source, arena = given.storage, device.arena
    assert isinstance(source, Shards)
    dtype, width = sticks_dtype(given.dtype).torch, source.width
    buffer = arena.allocate(max(moves.halo.sizes) * width * dtype.itemsize, f"haloed input of {what}")
    try:

        def sticks(core: int) -> TorchTensor:
            return arena.view(core, buffer, dtype, (moves.halo.sizes[core], width))

        device.count(moves.halo.run(lambda row: source.numbers(row, 0).to(dtype), sticks, padding, Calls(keep=False)))
        if frees:
            deallocate(given)
        yield sticks
    finally:
        arena.free(buffer)

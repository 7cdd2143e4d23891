"""Exchange and computation of a layer in the order that an overlap mode says.

Which outputs can be computed before anything has arrived follows from the plan: those that read nothing of what is
received or made of what is received. Widths of halos are nowhere asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor

from tessera.geometry import Box, HaloPlan, Interval, Window
from tessera.geometry.box import disjoint
from tessera.geometry.halo import WorkerPlan
from tessera.spatial.exchange import CountedExchange
from tessera.spatial.layers.framed import layout_of, shape_of
from tessera.transport.layout import index
from tessera.transport.transport import Transport

Order = Literal["none", "split", "recompute"]
ORDERS: tuple[Order, ...] = ("none", "split", "recompute")
ROUNDS = 2  # measured of each order, after one that is not

Compute = Callable[[Tensor, Sequence[int]], Tensor]
"""Makes of pixels, padded with so many zeros on both sides of each dim, the output that reads them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortcut:
    """The tile itself, padded with zeros, gives all of the output but the borders: it need not be in the frame.

    What has to be there is `copied`: own pixels that others or the borders read.
    """

    read: Box
    padding: tuple[int, ...]
    copied: tuple[Box, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """A rank's output in two parts: the interior reads what is there already, the borders what arrives."""

    window: Window
    worker: WorkerPlan
    output: Box
    interior: Box
    borders: tuple[Box, ...]
    shortcut: Shortcut | None

    @classmethod
    def of(cls, plan: HaloPlan, rank: int) -> Stages:
        """
        >>> from tessera.geometry import Mesh, Partition
        >>> image = Partition.grid((1, 8, 8), Mesh(1, 2))
        >>> stages = Stages.of(HaloPlan(image, Window.of(3, padding=1), image), 0)
        >>> stages.interior, stages.borders
        (Box(0:1, 0:8, 0:3), (Box(0:1, 0:8, 3:4),))
        """
        worker, output = plan.workers[rank], plan.outputs.hull(rank)
        interior = readers(plan.window, there_already(worker), output)
        borders = tuple(output.minus(interior))
        shortcut = shortcut_of(plan.window, worker, output, borders) if plan.mode == "zeros" else None
        return cls(
            window=plan.window, worker=worker, output=output, interior=interior, borders=borders, shortcut=shortcut
        )

    def run(
        self, order: Order, exchange: CountedExchange, tile: Tensor, compute: Compute, *, keep_frame: bool
    ) -> Tensor:
        """The output of a tile; `keep_frame` if backward is to find all of its frame."""
        if order == "split" and self.interior:
            return self._split(exchange, tile, compute)
        if order == "recompute" and self.interior:
            return self._recompute(exchange, tile, compute, keep_frame)
        exchange.start(tile)
        return compute(exchange.finish(), self._no_padding)

    def _split(self, exchange: CountedExchange, tile: Tensor, compute: Compute) -> Tensor:
        exchange.start(tile)
        inner = compute(self._read(exchange, self.interior), self._no_padding)
        exchange.finish()
        if not self.borders:
            return inner
        found = torch.empty(shape_of(self.output, inner.shape[1]), dtype=inner.dtype, memory_format=layout_of(inner))
        found[index(self.output, self.interior)].copy_(inner)
        self._write_borders(found, exchange, compute)
        return found

    def _recompute(self, exchange: CountedExchange, tile: Tensor, compute: Compute, keep_frame: bool) -> Tensor:
        if self.shortcut is None or keep_frame or not exchange.in_place or exchange.holds(tile):
            exchange.start(tile)
            found = compute(exchange.read(self.worker.need), self._no_padding)
        else:
            exchange.start_parts(tile, self.shortcut.copied)
            found = compute(tile[index(self.worker.owned, self.shortcut.read)], self.shortcut.padding)
        exchange.finish()
        self._write_borders(found, exchange, compute)
        return found

    def _write_borders(self, found: Tensor, exchange: CountedExchange, compute: Compute) -> None:
        for border in self.borders:
            found[index(self.output, border)].copy_(compute(self._read(exchange, border), self._no_padding))

    def _read(self, exchange: CountedExchange, part: Box) -> Tensor:
        return exchange.read(self.window.needs(part))

    @property
    def _no_padding(self) -> tuple[int, ...]:
        """A frame has its padding already."""
        return (0,) * len(self.window.kernel)


def there_already(worker: WorkerPlan) -> Box:
    """A large part of what a worker reads that neither arrives nor is made of what arrives."""
    found = worker.need
    for late in sorted(_late(worker), key=lambda box: box.size, reverse=True):
        if found & late:
            found = max(_beside(found, late), key=lambda box: box.size)
    return found


def _late(worker: WorkerPlan) -> Iterator[Box]:
    """What is in place only when the exchange has ended."""
    for move in worker.receives:
        yield move.placed
    for fill in worker.fills:
        yield Box((*worker.frame.dims[: fill.axis], fill.placed, *worker.frame.dims[fill.axis + 1 :]))


def _beside(box: Box, late: Box) -> Iterator[Box]:
    """The parts of a box that lie wholly to one side of another."""
    for axis, (dim, cut) in enumerate(zip(box.dims, late.dims, strict=True)):
        for part in (Interval(dim.start, cut.start), Interval(cut.stop, dim.stop)):
            yield Box((*box.dims[:axis], part & dim, *box.dims[axis + 1 :]))


def readers(window: Window, there: Box, output: Box) -> Box:
    """The part of an output that reads nothing but a part of the input.

    >>> readers(Window.of(3, stride=2, padding=1), Box.of((0, 1), (-1, 6), (0, 9)), Box.of((0, 1), (0, 4), (0, 4)))
    Box(0:1, 0:3, 1:4)
    """
    dims = [there.dims[0] & output.dims[0]]
    for axis, (part, whole) in enumerate(zip(there.dims[1:], output.dims[1:], strict=True)):
        stride, before, reach = window.stride[axis], window.padding[axis][0], window.reach[axis]
        first, last = -(-(part.start + before) // stride), (part.stop + before - reach) // stride
        dims.append(Interval(first, last + 1) & whole)
    return Box(tuple(dims))


def shortcut_of(window: Window, worker: WorkerPlan, output: Box, borders: Sequence[Box]) -> Shortcut | None:
    """None where the same padding on both sides of the tile does not make the output."""
    read, padding = [worker.owned.dims[0]], []
    for axis, (own, need) in enumerate(zip(worker.owned.dims[1:], worker.need.dims[1:], strict=True)):
        before = max(0, own.start - need.start)
        part = own & need
        made = (len(part) + 2 * before - window.reach[axis]) // window.stride[axis] + 1
        if not len(part) or made != len(output.dims[axis + 1]):
            return None
        read.append(part)
        padding.append(before)
    copied = disjoint([*(move.taken for move in worker.sends), *(window.needs(b) & worker.owned for b in borders)])
    return Shortcut(read=Box(tuple(read)), padding=tuple(padding), copied=copied)


def fastest(run: Callable[[Order], object], transport: Transport) -> Order:
    """Measure every order; all ranks take the one with the least time over all of them."""
    times = torch.full((len(ORDERS),), float("inf"), dtype=torch.float64)
    for lap in range(ROUNDS + 1):
        for which, order in enumerate(ORDERS):
            transport.barrier()
            start = perf_counter()
            run(order)
            if lap:
                times[which] = min(float(times[which]), perf_counter() - start)
    transport.all_reduce(times)
    return ORDERS[int(times.argmin())]

"""Exchange and computation of a layer in the order that an overlap mode says.

Which outputs can be computed before anything has arrived follows from the plan: those that read nothing of what is
received or made of what is received. Widths of halos are nowhere asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, Protocol

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
LEAST_ADDED = 4  # bytes of a number: shorter ones would be rounded once more by what is added later


class Compute(Protocol):
    """What makes the output that reads some pixels."""

    def whole(self, pixels: Tensor, padding: Sequence[int]) -> Tensor:
        """Of pixels that are padded with so many zeros on both sides of each dim; it lies as the layer's output."""

    def strip(self, pixels: Tensor) -> Tensor:
        """Of pixels as they are, few of them along some dim; it is copied from, and may lie in any way."""

    def addition(self, pixels: Tensor, addition: Addition) -> Tensor:
        """What pixels that have arrived add to the output that was computed without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """A box that arrives, the outputs that read it, and the part of the window by which they do.

    `padding` is how many zeros the box gets around it then, before and after in each dim; less than none cuts it.
    """

    arrived: Box
    output: Box
    taps: tuple[Interval, ...]
    padding: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortcut:
    """The tile itself, padded with zeros, gives all of the output but the borders: it need not be in the frame.

    What has to be there is `sent`, own pixels that others read; where the borders are computed again, `copied`: what
    these read too. With a stride of one `additions` bring what was missing instead, as a convolution is a sum.
    """

    read: Box
    padding: tuple[int, ...]
    sent: tuple[Box, ...]
    copied: tuple[Box, ...]
    additions: tuple[Addition, ...]


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
        return compute.whole(exchange.finish(), self._no_padding)

    def _split(self, exchange: CountedExchange, tile: Tensor, compute: Compute) -> Tensor:
        exchange.start(tile)
        inner = compute.whole(self._read(exchange, self.interior), self._no_padding)
        exchange.finish()
        if not self.borders:
            return inner
        found = torch.empty(shape_of(self.output, inner.shape[1]), dtype=inner.dtype, memory_format=layout_of(inner))
        found[index(self.output, self.interior)].copy_(inner)
        self._write_borders(found, exchange, compute)
        return found

    def _recompute(self, exchange: CountedExchange, tile: Tensor, compute: Compute, keep_frame: bool) -> Tensor:
        shortcut = self.shortcut
        if shortcut is None or keep_frame or not exchange.in_place or exchange.holds(tile):
            exchange.start(tile)
            found = compute.whole(exchange.read(self.worker.need), self._no_padding)
            exchange.finish()
            self._write_borders(found, exchange, compute)
            return found
        additions = shortcut.additions if tile.itemsize >= LEAST_ADDED else ()
        exchange.start_parts(tile, shortcut.sent if additions else shortcut.copied)
        found = compute.whole(tile[index(self.worker.owned, shortcut.read)], shortcut.padding)
        exchange.finish()
        for addition in additions:
            more = compute.addition(exchange.read(addition.arrived), addition)
            found[index(self.output, addition.output)].add_(more)
        if not additions:
            self._write_borders(found, exchange, compute)
        return found

    def _write_borders(self, found: Tensor, exchange: CountedExchange, compute: Compute) -> None:
        for border in self.borders:
            found[index(self.output, border)].copy_(compute.strip(self._read(exchange, border)))

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
    sent = disjoint([move.taken for move in worker.sends])
    copied = disjoint([*sent, *(window.needs(b) & worker.owned for b in borders)])
    return Shortcut(
        read=Box(tuple(read)),
        padding=tuple(padding),
        sent=sent,
        copied=copied,
        additions=tuple(additions_of(window, worker, output)) if set(window.stride) == {1} else (),
    )


def additions_of(window: Window, worker: WorkerPlan, output: Box) -> Iterator[Addition]:
    """What everything that arrives adds to the output, for a window that goes from pixel to pixel.

    >>> from tessera.geometry import Mesh, Partition
    >>> image, window = Partition.grid((1, 8, 8), Mesh(1, 2)), Window.of(3, padding=1)
    >>> (only,) = additions_of(window, HaloPlan(image, window, image).workers[0], image.hull(0))
    >>> only.arrived, only.output, only.taps, only.padding
    (Box(0:1, 0:8, 4:5), Box(0:1, 0:8, 3:4), (Interval(0:3), Interval(2:3)), ((1, 1), (0, 0)))
    """
    for move in worker.receives:
        sample, *arrived = (move.placed & worker.need).dims
        read, taps, padding = [sample & output.dims[0]], [], []
        for axis, (part, whole) in enumerate(zip(arrived, output.dims[1:], strict=True)):
            step, before, reach = window.dilation[axis], window.padding[axis][0], window.reach[axis]
            reads = Interval(part.start + before - reach + 1, part.stop + before) & whole
            # output o reads pixel o - before + t * step with tap t
            first = max(0, -((reads.stop - 1 - before - part.start) // step))
            last = min(window.kernel[axis] - 1, (part.stop - 1 + before - reads.start) // step)
            start, stop = reads.start - before + first * step, reads.stop - before + last * step
            read.append(reads)
            taps.append(Interval(first, last + 1))
            padding.append((part.start - start, stop - part.stop))
        if Box(tuple(read)) and all(map(len, taps)):
            yield Addition(
                arrived=Box((sample, *arrived)), output=Box(tuple(read)), taps=tuple(taps), padding=tuple(padding)
            )


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

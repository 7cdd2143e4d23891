"""Overlap of a layer's halo exchange with its computation.

The plan determines which outputs can be computed before the halo has arrived: outputs that read neither received pixels
nor padding that repeats received pixels. The rule holds for halos of any width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Literal, Protocol

import torch
from torch import Tensor

from tessera.geometry import Box, HaloPlan, Interval, Window
from tessera.geometry.box import make_disjoint
from tessera.geometry.halo import WorkerPlan
from tessera.spatial.exchange import CountedExchange
from tessera.spatial.layers.frames import get_memory_format, get_tensor_shape
from tessera.transport.layout import index_box
from tessera.transport.transport import Transport

Order = Literal["none", "split", "recompute"]
ORDERS: tuple[Order, ...] = ("none", "split", "recompute")
TRIAL_ROUNDS = 2  # timed rounds per order, after one warm-up round
MIN_ADDITION_BYTES = 4  # bytes per value; adding to 16-bit outputs would round them twice


class TileKernel(Protocol):
    """Protocol of a layer's computation on a tensor of pixels."""

    def compute(self, pixels: Tensor, padding: Sequence[int]) -> Tensor:
        """Compute the output of pixels with zero padding on both sides of each dim, in the layer's memory format."""

    def compute_strip(self, pixels: Tensor) -> Tensor:
        """Compute the output of a thin strip of pixels without padding, in any memory format."""

    def compute_addition(self, pixels: Tensor, addition: Addition) -> Tensor:
        """Compute the contribution of received pixels to an output that was computed without them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addition:
    """The contribution of a received box to the output: the box, the outputs that read it, and the window's taps.

    `taps` is the part of the window that reads the box. `padding` is the number of zeros before and after the box in
    each dim; negative numbers crop the box.
    """

    arrived: Box
    output: Box
    taps: tuple[Interval, ...]
    padding: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortcut:
    """A fast path without a copy of the tile: convolve the zero-padded tile, then correct the borders of the output.

    The exchange buffer then holds only `sent`: own pixels that other ranks read. If the borders are recomputed, it
    holds `copied`: `sent` and the own pixels that the borders read. With a stride of one, the borders are not
    recomputed: `additions` add the contributions of the halo, because a convolution is a sum.
    """

    read: Box
    padding: tuple[int, ...]
    sent: tuple[Box, ...]
    copied: tuple[Box, ...]
    additions: tuple[Addition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapStages:
    """A rank's output in two parts: the interior reads local pixels only, the borders read the halo."""

    window: Window
    worker: WorkerPlan
    output: Box
    interior: Box
    borders: tuple[Box, ...]
    shortcut: Shortcut | None

    @classmethod
    def of(cls, plan: HaloPlan, rank: int) -> OverlapStages:
        """Divide a rank's output into the interior and the borders.

        >>> from tessera.geometry import Mesh, Partition
        >>> image = Partition.split_by_grid((1, 8, 8), Mesh(1, 2))
        >>> stages = OverlapStages.of(HaloPlan(image, Window.of(3, padding=1), image), 0)
        >>> stages.interior, stages.borders
        (Box(0:1, 0:8, 0:3), (Box(0:1, 0:8, 3:4),))
        """
        worker, output = plan.workers[rank], plan.outputs.get_box(rank)
        interior = find_outputs_within(plan.window, find_local_input(worker), output)
        borders = tuple(output.subtract(interior))
        shortcut = build_shortcut(plan.window, worker, output, borders) if plan.mode == "zeros" else None
        return cls(
            window=plan.window, worker=worker, output=output, interior=interior, borders=borders, shortcut=shortcut
        )

    def run(
        self, order: Order, exchange: CountedExchange, tile: Tensor, compute: TileKernel, *, keep_frame: bool
    ) -> Tensor:
        """Compute the output of a tile in this order; `keep_frame` completes the frame, which backward requires."""
        if order == "split" and self.interior:
            return self._run_split(exchange, tile, compute)
        if order == "recompute" and self.interior:
            return self._run_recompute(exchange, tile, compute, keep_frame)
        exchange.start(tile)
        return compute.compute(exchange.finish(), self._no_padding)

    def _run_split(self, exchange: CountedExchange, tile: Tensor, compute: TileKernel) -> Tensor:
        exchange.start(tile)
        inner = compute.compute(self._read(exchange, self.interior), self._no_padding)
        exchange.finish()
        if not self.borders:
            return inner
        output = torch.empty(
            get_tensor_shape(self.output, inner.shape[1]), dtype=inner.dtype, memory_format=get_memory_format(inner)
        )
        output[index_box(self.output, self.interior)].copy_(inner)
        self._write_borders(output, exchange, compute)
        return output

    def _run_recompute(self, exchange: CountedExchange, tile: Tensor, compute: TileKernel, keep_frame: bool) -> Tensor:
        shortcut = self.shortcut
        if shortcut is None or keep_frame or not exchange.in_place or exchange.holds_tile(tile):
            exchange.start(tile)
            output = compute.compute(exchange.read(self.worker.need), self._no_padding)
            exchange.finish()
            self._write_borders(output, exchange, compute)
            return output
        additions = shortcut.additions if tile.itemsize >= MIN_ADDITION_BYTES else ()
        exchange.start_parts(tile, shortcut.sent if additions else shortcut.copied)
        output = compute.compute(tile[index_box(self.worker.owned, shortcut.read)], shortcut.padding)
        exchange.finish()
        for addition in additions:
            contribution = compute.compute_addition(exchange.read(addition.arrived), addition)
            output[index_box(self.output, addition.output)].add_(contribution)
        if not additions:
            self._write_borders(output, exchange, compute)
        return output

    def _write_borders(self, output: Tensor, exchange: CountedExchange, compute: TileKernel) -> None:
        for border in self.borders:
            output[index_box(self.output, border)].copy_(compute.compute_strip(self._read(exchange, border)))

    def _read(self, exchange: CountedExchange, part: Box) -> Tensor:
        return exchange.read(self.window.compute_input_box(part))

    @property
    def _no_padding(self) -> tuple[int, ...]:
        """Padding widths of zero, because a frame already includes its padding."""
        return (0,) * len(self.window.kernel)


def find_local_input(worker: WorkerPlan) -> Box:
    """Return a large box of a worker's required input without received pixels or padding that repeats them."""
    output = worker.need
    for late in sorted(_iter_late_boxes(worker), key=lambda box: box.size, reverse=True):
        if output & late:
            output = max(_iter_sides(output, late), key=lambda box: box.size)
    return output


def _iter_late_boxes(worker: WorkerPlan) -> Iterator[Box]:
    """Yield the boxes of a worker's frame that are complete only after the exchange."""
    for move in worker.receives:
        yield move.target_box
    for fill in worker.fills:
        yield Box((*worker.frame.dims[: fill.axis], fill.target, *worker.frame.dims[fill.axis + 1 :]))


def _iter_sides(box: Box, late: Box) -> Iterator[Box]:
    """Yield the parts of a box that are entirely on one side of the box `late`."""
    for axis, (dim, late_dim) in enumerate(zip(box.dims, late.dims, strict=True)):
        for part in (Interval(dim.start, late_dim.start), Interval(late_dim.stop, dim.stop)):
            yield Box((*box.dims[:axis], part & dim, *box.dims[axis + 1 :]))


def find_outputs_within(window: Window, available: Box, output: Box) -> Box:
    """Return the part of an output that reads only the available input.

    >>> window = Window.of(3, stride=2, padding=1)
    >>> find_outputs_within(window, Box.of((0, 1), (-1, 6), (0, 9)), Box.of((0, 1), (0, 4), (0, 4)))
    Box(0:1, 0:3, 1:4)
    """
    dims = [available.dims[0] & output.dims[0]]
    for axis, (part, whole) in enumerate(zip(available.dims[1:], output.dims[1:], strict=True)):
        stride, before, reach = window.stride[axis], window.padding[axis][0], window.extent[axis]
        first, last = -(-(part.start + before) // stride), (part.stop + before - reach) // stride
        dims.append(Interval(first, last + 1) & whole)
    return Box(tuple(dims))


def build_shortcut(window: Window, worker: WorkerPlan, output: Box, borders: Sequence[Box]) -> Shortcut | None:
    """Return the fast path; None if convolving the symmetrically padded tile does not give the size of the output."""
    read, padding = [worker.owned.dims[0]], []
    for axis, (owned, need) in enumerate(zip(worker.owned.dims[1:], worker.need.dims[1:], strict=True)):
        before = max(0, owned.start - need.start)
        part = owned & need
        output_length = (len(part) + 2 * before - window.extent[axis]) // window.stride[axis] + 1
        if not len(part) or output_length != len(output.dims[axis + 1]):
            return None
        read.append(part)
        padding.append(before)
    sent = make_disjoint([move.source_box for move in worker.sends])
    copied = make_disjoint([*sent, *(window.compute_input_box(b) & worker.owned for b in borders)])
    return Shortcut(
        read=Box(tuple(read)),
        padding=tuple(padding),
        sent=sent,
        copied=copied,
        additions=tuple(iter_additions(window, worker, output)) if set(window.stride) == {1} else (),
    )


def iter_additions(window: Window, worker: WorkerPlan, output: Box) -> Iterator[Addition]:
    """Yield the contribution of each received box to the output, for a window with a stride of one.

    >>> from tessera.geometry import Mesh, Partition
    >>> image, window = Partition.split_by_grid((1, 8, 8), Mesh(1, 2)), Window.of(3, padding=1)
    >>> (only,) = iter_additions(window, HaloPlan(image, window, image).workers[0], image.get_box(0))
    >>> only.arrived, only.output, only.taps, only.padding
    (Box(0:1, 0:8, 4:5), Box(0:1, 0:8, 3:4), (Interval(0:3), Interval(2:3)), ((1, 1), (0, 0)))
    """
    for move in worker.receives:
        sample, *arrived = (move.target_box & worker.need).dims
        read, taps, padding = [sample & output.dims[0]], [], []
        for axis, (part, whole) in enumerate(zip(arrived, output.dims[1:], strict=True)):
            step, before, reach = window.dilation[axis], window.padding[axis][0], window.extent[axis]
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


def choose_fastest_order(run: Callable[[Order], object], transport: Transport) -> Order:
    """Time every order and return the fastest: the order with the smallest sum of times over the ranks."""
    times = torch.full((len(ORDERS),), float("inf"), dtype=torch.float64)
    for trial in range(TRIAL_ROUNDS + 1):
        for index, order in enumerate(ORDERS):
            transport.barrier()
            start = perf_counter()
            run(order)
            if trial:
                times[index] = min(float(times[index]), perf_counter() - start)
    transport.all_reduce(times)
    return ORDERS[int(times.argmin())]

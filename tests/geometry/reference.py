"""Plans carried out with NumPy, and the same on the uncut image: neither knows of the other's way."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tessera.geometry import Box, HaloPlan, Interval, Window
from tessera.geometry.halo import Mode

Array = NDArray[np.float64]


def pixel_at(dim: Interval, size: int, mode: Mode) -> NDArray[np.int64]:
    """Which pixel of an image stands at each coordinate, in it or around it; -1 is padding that is no pixel."""
    at = np.arange(dim.start, dim.stop)
    if mode == "zeros":
        return np.where((at >= 0) & (at < size), at, -1)
    if mode == "replicate":
        return np.clip(at, 0, size - 1)
    if mode == "circular":
        return at % size
    turned = at % max(1, 2 * (size - 1))
    return np.where(turned < size, turned, 2 * (size - 1) - turned)


def padded(image: Array, box: Box, mode: Mode, fill: float = 0.0) -> Array:
    """What stands in a box of the image and its padding."""
    pixels = [pixel_at(dim, size, mode) for dim, size in zip(box.dims, image.shape, strict=True)]
    found = image[np.ix_(*(np.maximum(p, 0) for p in pixels))]
    real = np.ones(box.shape, dtype=bool)
    for axis, pixel in enumerate(pixels):
        real &= np.expand_dims(pixel >= 0, [d for d in range(len(pixels)) if d != axis])
    return np.where(real, found, fill)


def folded(grad: Array, box: Box, sizes: Sequence[int], mode: Mode) -> Array:
    """The adjoint of `padded`: the gradient of the image from that of what stands in a box."""
    pixels = [pixel_at(dim, size, mode) for dim, size in zip(box.dims, sizes, strict=True)]
    found = np.zeros([size + 1 for size in sizes])  # what falls on padding is collected in the last place
    np.add.at(found, np.ix_(*pixels), grad)
    return found[tuple(slice(size) for size in sizes)]


def needed(plan: HaloPlan, worker: int) -> NDArray[np.bool_]:
    """Which pixels of a worker's need its output reads: all, unless its shard is of several boxes."""
    mine = plan.workers[worker]
    found = np.zeros(mine.need.shape, dtype=bool)
    for box in filter(None, map(plan.window.needs, plan.outputs.shards[worker])):
        found[box.within(mine.need).slices] = True
    return found


def tiles(plan: HaloPlan, image: Array, elsewhere: float) -> list[Array]:
    """What every worker has; pixels between its boxes, which it has not, hold `elsewhere`."""
    found = []
    for worker, shard in zip(plan.workers, plan.inputs.shards, strict=True):
        tile = np.full(worker.owned.shape, elsewhere)
        for box in shard:
            tile[box.within(worker.owned).slices] = image[box.slices]
        found.append(tile)
    return found


def exchanged(plan: HaloPlan, having: Sequence[Array]) -> list[Array]:
    """What every worker's output reads; what arrives is added, so that arriving twice shows."""
    found = []
    for worker in plan.workers:
        frame = np.zeros(worker.frame.shape)
        for move in (*worker.keeps, *worker.receives):
            taken = having[move.source][move.taken.within(plan.workers[move.source].owned).slices]
            frame[move.placed.within(worker.frame).slices] += taken
        for fill in worker.fills:
            along = np.moveaxis(frame, fill.axis, 0)
            start = worker.frame.dims[fill.axis].start
            taken = along[(fill.taken - start).slice]
            along[(fill.placed - start).slice] = taken[::-1] if fill.mirrored else taken
        found.append(frame[worker.need.within(worker.frame).slices] if worker.need else frame)
    return found


def returned(plan: HaloPlan, grads: Sequence[Array]) -> list[Array]:
    """The adjoint: every worker's gradient of what it has, from everybody's of what they read."""
    found = [np.zeros(worker.owned.shape) for worker in plan.workers]
    for worker, grad in zip(plan.workers, grads, strict=True):
        frame = np.zeros(worker.frame.shape)
        if worker.need:
            frame[worker.need.within(worker.frame).slices] = grad
        for fill in reversed(worker.fills):
            along = np.moveaxis(frame, fill.axis, 0)
            start = worker.frame.dims[fill.axis].start
            placed = along[(fill.placed - start).slice]
            along[(fill.taken - start).slice] += placed[::-1] if fill.mirrored else placed.sum(0, keepdims=True)
        for move in (*worker.keeps, *worker.receives):
            back = move.reverse
            into = found[back.target][back.placed.within(plan.workers[back.target].owned).slices]
            into += frame[back.taken.within(worker.frame).slices]
    return found


def windowed(window: Window, weight: Array, read: Array, span: Box, output: Box) -> Array:
    """An output box, tap by tap, from an array that spans a box of the input; who reads past it fails."""
    found = np.zeros(output.shape)
    samples = np.arange(output.dims[0].start, output.dims[0].stop) - span.dims[0].start
    for taps in product(*map(range, window.kernel)):
        where, hit, inside = [samples], np.ones((1,) * len(output.dims), dtype=bool), True
        for axis, tap in enumerate(taps):
            at = np.arange(output.dims[axis + 1].start, output.dims[axis + 1].stop)
            stride, dilation, before = window.stride[axis], window.dilation[axis], window.padding[axis][0]
            if window.transposed:
                at, left = np.divmod(at + before - tap * dilation, stride)
            else:
                at, left = at * stride - before + tap * dilation, np.zeros_like(at)
            hits = left == 0
            pixel = np.where(hits, at - span.dims[axis + 1].start, 0)
            inside &= bool(((pixel >= 0) & (pixel < span.shape[axis + 1]) | ~hits).all())
            where.append(np.minimum(pixel, max(0, span.shape[axis + 1] - 1)))
            hit = hit & hits.reshape([-1 if d == axis + 1 else 1 for d in range(len(output.dims))])
        if hit.any():
            assert inside, "the need is too small"
            found += np.where(hit, weight[taps] * read[np.ix_(*where)], 0.0)
    return found

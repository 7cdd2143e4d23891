"""Two independent NumPy references: execution of a plan worker by worker, and padding of the unsplit image."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from tessera.geometry import Box, HaloPlan, Interval, Window
from tessera.geometry.halo import PaddingMode

Array = NDArray[np.float64]


def find_pixels(dim: Interval, size: int, mode: PaddingMode) -> NDArray[np.int64]:
    """Return the index of the image pixel that each coordinate shows, also in the padding; -1 for zero padding."""
    at = np.arange(dim.start, dim.stop)
    if mode == "zeros":
        return np.where((at >= 0) & (at < size), at, -1)
    if mode == "replicate":
        return np.clip(at, 0, size - 1)
    if mode == "circular":
        return at % size
    turned = at % max(1, 2 * (size - 1))
    return np.where(turned < size, turned, 2 * (size - 1) - turned)


def pad_image(image: Array, box: Box, mode: PaddingMode, fill: float = 0.0) -> Array:
    """Return the values in a box that may extend from the image into its padding."""
    pixels = [find_pixels(dim, size, mode) for dim, size in zip(box.dims, image.shape, strict=True)]
    values = image[np.ix_(*(np.maximum(p, 0) for p in pixels))]
    real = np.ones(box.shape, dtype=bool)
    for axis, pixel in enumerate(pixels):
        real &= np.expand_dims(pixel >= 0, [d for d in range(len(pixels)) if d != axis])
    return np.where(real, values, fill)


def fold_gradient(grad: Array, box: Box, sizes: Sequence[int], mode: PaddingMode) -> Array:
    """Apply the adjoint of `pad_image`: return the gradient of the image, given the gradient of a box."""
    pixels = [find_pixels(dim, size, mode) for dim, size in zip(box.dims, sizes, strict=True)]
    gradient = np.zeros([size + 1 for size in sizes])  # gradients of zero padding go to index -1, the last
    np.add.at(gradient, np.ix_(*pixels), grad)
    return gradient[tuple(slice(size) for size in sizes)]


def find_needed(plan: HaloPlan, worker: int) -> NDArray[np.bool_]:
    """Return a mask of the pixels in a worker's need that its output reads: all, unless its shard has several boxes."""
    worker_plan = plan.workers[worker]
    needed = np.zeros(worker_plan.need.shape, dtype=bool)
    for box in filter(None, map(plan.window.compute_input_box, plan.outputs.shards[worker])):
        needed[box.relative_to(worker_plan.need).slices] = True
    return needed


def split_image(plan: HaloPlan, image: Array, elsewhere: float) -> list[Array]:
    """Return every worker's tensor; pixels between its boxes, which it does not own, have the value `elsewhere`."""
    tiles = []
    for worker, shard in zip(plan.workers, plan.inputs.shards, strict=True):
        tile = np.full(worker.owned.shape, elsewhere)
        for box in shard:
            tile[box.relative_to(worker.owned).slices] = image[box.slices]
        tiles.append(tile)
    return tiles


def run_exchange(plan: HaloPlan, having: Sequence[Array]) -> list[Array]:
    """Execute a plan on the workers' tensors `having`; return every worker's input.

    Received pixels are added instead of copied, so that duplicates are detected.
    """
    inputs = []
    for worker in plan.workers:
        frame = np.zeros(worker.frame.shape)
        for move in (*worker.keeps, *worker.receives):
            pixels = having[move.source][move.source_box.relative_to(plan.workers[move.source].owned).slices]
            frame[move.target_box.relative_to(worker.frame).slices] += pixels
        for fill in worker.fills:
            along = np.moveaxis(frame, fill.axis, 0)
            start = worker.frame.dims[fill.axis].start
            pixels = along[(fill.source - start).slice]
            along[(fill.target - start).slice] = pixels[::-1] if fill.mirrored else pixels
        inputs.append(frame[worker.need.relative_to(worker.frame).slices] if worker.need else frame)
    return inputs


def run_adjoint(plan: HaloPlan, grads: Sequence[Array]) -> list[Array]:
    """Execute the adjoint of a plan: return the gradient of every worker's own pixels, given the inputs' gradients."""
    gradients = [np.zeros(worker.owned.shape) for worker in plan.workers]
    for worker, grad in zip(plan.workers, grads, strict=True):
        frame = np.zeros(worker.frame.shape)
        if worker.need:
            frame[worker.need.relative_to(worker.frame).slices] = grad
        for fill in reversed(worker.fills):
            along = np.moveaxis(frame, fill.axis, 0)
            start = worker.frame.dims[fill.axis].start
            placed = along[(fill.target - start).slice]
            along[(fill.source - start).slice] += placed[::-1] if fill.mirrored else placed.sum(0, keepdims=True)
        for move in (*worker.keeps, *worker.receives):
            into = gradients[move.source][move.source_box.relative_to(plan.workers[move.source].owned).slices]
            into += frame[move.target_box.relative_to(worker.frame).slices]
    return gradients


def apply_window(window: Window, weight: Array, read: Array, span: Box, output: Box) -> Array:
    """Compute an output box tap by tap from `read`, which spans the input box `span`; reading outside of it fails."""
    output_values = np.zeros(output.shape)
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
            output_values += np.where(hit, weight[taps] * read[np.ix_(*where)], 0.0)
    return output_values

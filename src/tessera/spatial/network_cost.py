"""Who sends how much to whom, and how long that takes on the links of a machine, or of several of them.

Workers fill machines in the order of their numbers. Between two of one machine bytes cross its `link`; between
machines they cross the `network`, whose port all workers of a machine share. A worker's messages go one after the
other, sending and receiving at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tessera.geometry import HaloPlan, Mesh, Partition, Window
from tessera.geometry.halo import Mode
from tessera.machine.machine import Link, Machine

Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """What changes hands in an exchange: so many pixels from `source` to `target`, one entry per pair of workers."""

    workers: int
    source: Whole
    target: Whole
    pixels: Whole

    @classmethod
    def of(cls, plan: HaloPlan) -> Traffic:
        moves = [(move.source, move.target, move.taken.size) for move in plan.moves]
        source, target, pixels = np.array(moves, dtype=np.int64).reshape(-1, 3).T
        return _by_pair(len(plan.workers), source, target, pixels)


@lru_cache(maxsize=512)
def grid_traffic(sizes: tuple[int, int, int], window: Window, mesh: Mesh, mode: Mode = "zeros") -> Traffic:
    """The traffic of an image (n, h, w) that is cut by a mesh, without planning every worker.

    Rows and columns are independent of each other: the plan of a grid is the product of a plan of its rows and one
    of its columns, so that thousands of workers take milliseconds.

    >>> halo = grid_traffic((1, 4, 6), Window.of(3, padding=1), Mesh(1, 2))
    >>> halo.source.tolist(), halo.target.tolist(), halo.pixels.tolist()
    ([1, 0], [0, 1], [4, 4])
    """
    samples, height, width = sizes
    rows = _along(height, along(window, 0), mesh.rows, mode)
    cols = _along(width, along(window, 1), mesh.cols, mode)
    target, source = (rows[i][:, None] * mesh.cols + cols[i][None, :] for i in (0, 1))
    pixels = samples * rows[2][:, None] * cols[2][None, :]
    return _by_pair(mesh.size, source.ravel(), target.ravel(), pixels.ravel())


def along(window: Window, axis: int) -> Window:
    """One dim of a window, as a window of its own.

    >>> along(Window.of((3, 5), padding=(1, 2)), 1)
    Window(kernel 5, padding 2:2)
    """
    return Window(
        (window.kernel[axis],),
        (window.stride[axis],),
        (window.dilation[axis],),
        (window.padding[axis],),
        window.ceil_mode,
        window.transposed,
        window.output_padding[axis : axis + 1],
    )


def _along(size: int, window: Window, parts: int, mode: Mode) -> tuple[Whole, Whole, Whole]:
    """Who needs how much of whom along one dim: targets, sources, lengths; what a part has itself is among them."""
    cuts = [Partition.grid((1, length), Mesh(1, parts)) for length in (size, *window.output_size((size,)))]
    plan = HaloPlan(cuts[0], window, cuts[1], mode)
    moves = [m for worker in plan.workers for m in (*worker.keeps, *worker.receives)]
    found = np.array([(m.target, m.source, m.taken.size) for m in moves], dtype=np.int64).reshape(-1, 3)
    return found[:, 0], found[:, 1], found[:, 2]


def _by_pair(workers: int, source: Whole, target: Whole, pixels: Whole) -> Traffic:
    """One entry per pair, by target and then source, without what a worker keeps."""
    moved = (source != target) & (pixels > 0)
    pairs, inverse = np.unique(target[moved] * workers + source[moved], return_inverse=True)
    total = np.bincount(inverse, weights=pixels[moved], minlength=len(pairs)).astype(np.int64)
    return Traffic(workers, pairs % workers, pairs // workers, total)


def exchange_seconds(
    traffic: Traffic, pixel_bytes: float, machine: Machine, *, per_machine: int | None = None
) -> float:
    """Seconds until the last worker has sent and received everything.

    `per_machine` workers share a machine; by default as many as it has. More than that share it in turns.
    """
    if not traffic.pixels.size:
        return 0.0
    each = per_machine or machine.workers.size
    moved = traffic.pixels * pixel_bytes
    near = traffic.source // each == traffic.target // each
    link = machine.link("link") if near.any() else None
    network = machine.link("network") if not near.all() else None
    slowest = 0.0
    for end in (traffic.source, traffic.target):
        took = np.zeros(traffic.workers)
        if link is not None:
            took += _summed(end[near], link.latency + moved[near] / link.at(1), traffic.workers)
        if network is not None:
            far = ~near
            machines = -(-traffic.workers // each)
            port = _summed(end[far] // each, moved[far] / network.at(1), machines)
            took += _summed(end[far], np.full(int(far.sum()), network.latency), traffic.workers)
            took += port[np.arange(traffic.workers) // each]
        slowest = max(slowest, float(took.max()))
    return slowest


def _summed(where: Whole, values: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.bincount(where, weights=values, minlength=length).astype(np.float64)
    return found


def all_reduce_seconds(count: float, ranks: int, machine: Machine, *, per_machine: int | None = None) -> float:
    """Seconds to sum `count` bytes over all ranks: within the machines first, then between them.

    Halves are exchanged and added in log2 steps and then collected again, which moves every byte twice.
    """
    each = per_machine or machine.workers.size
    inside, machines = min(ranks, each), -(-ranks // each)
    near = _halving(count, inside, machine.link("link")) if inside > 1 else 0.0
    return near + (_halving(count, machines, machine.link("network")) if machines > 1 else 0.0)


def _halving(count: float, parts: int, link: Link) -> float:
    return 2 * math.ceil(math.log2(parts)) * link.latency + 2 * (parts - 1) / parts * count / link.at(1)


def link_table(plan: HaloPlan, pixel_bytes: int) -> Sequence[tuple[int, int, int, int]]:
    """From whom to whom how many pixels and bytes go, by sender and then receiver."""
    found = Traffic.of(plan)
    rows = zip(found.source.tolist(), found.target.tolist(), found.pixels.tolist(), strict=True)
    return sorted((source, target, pixels, pixels * pixel_bytes) for source, target, pixels in rows)

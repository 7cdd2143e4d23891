"""Predicted time of halo exchanges and of split convolutions, on one machine or several.

Exchanges are predicted from latency and bandwidth of the machine's links, convolutions from the machine's roofline.
With overlap, the exchange proceeds while the outputs that do not read the halo are computed.

Workers fill machines in the order of their numbers. Bytes between two workers of one machine cross its `link`; bytes
between machines cross the `network`, whose port all workers of a machine share. A worker sends its messages one after
another, and sends and receives at once.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from tessera.errors import TesseraError
from tessera.geometry import Box, HaloPlan, Interval, Window
from tessera.machine.cost import compute_time
from tessera.machine.machine import Link, Machine
from tessera.spatial.problem import DTYPES

IntegerArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Traffic:
    """The pixels that an exchange moves: arrays of `source`, `target` and `pixels`, one entry per pair of workers."""

    workers: int
    source: IntegerArray
    target: IntegerArray
    pixels: IntegerArray

    @classmethod
    def of(cls, plan: HaloPlan) -> Traffic:
        moves = [(move.source, move.target, move.source_box.size) for move in plan.moves]
        source, target, pixels = np.array(moves, dtype=np.int64).reshape(-1, 3).T
        return _sum_by_pair(len(plan.workers), source, target, pixels)

    @classmethod
    def from_links(cls, workers: int, links: Mapping[tuple[int, int], int]) -> Traffic:
        """Return the traffic of links (source, target) with their numbers of pixels.

        >>> Traffic.from_links(2, {(0, 1): 5}).pixels.tolist()
        [5]
        """
        rows = np.array([(*pair, pixels) for pair, pixels in links.items()], dtype=np.int64).reshape(-1, 3)
        source, target, pixels = rows.T
        return _sum_by_pair(workers, source, target, pixels)


def get_axis_window(window: Window, axis: int) -> Window:
    """Return one dim of a window as a window of one dim.

    >>> get_axis_window(Window.of((3, 5), padding=(1, 2)), 1)
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


def _sum_by_pair(workers: int, source: IntegerArray, target: IntegerArray, pixels: IntegerArray) -> Traffic:
    """Return the pixels summed by pair of workers, sorted by target and then source, without moves within a worker."""
    is_move = (source != target) & (pixels > 0)
    pairs, inverse = np.unique(target[is_move] * workers + source[is_move], return_inverse=True)
    total = np.bincount(inverse, weights=pixels[is_move], minlength=len(pairs)).astype(np.int64)
    return Traffic(workers, pairs % workers, pairs // workers, total)


def predict_exchange_traffic(
    traffic: Traffic,
    pixel_bytes: float,
    machine: Machine,
    *,
    per_machine: int | None = None,
    overhead: float | None = None,
) -> float:
    """Return the predicted seconds until the last worker has sent and received all its messages.

    `per_machine` is the number of workers on a machine, by default `machine.workers.size`; `overhead` the seconds of
    software per message, by default the machine's.
    """
    if not traffic.pixels.size:
        return 0.0
    workers_per_machine = per_machine or machine.workers.size
    byte_counts = traffic.pixels * pixel_bytes
    near = traffic.source // workers_per_machine == traffic.target // workers_per_machine
    link = machine.get_link("link") if near.any() else None
    network = machine.get_link("network") if not near.all() else None
    overhead = machine.get_overhead("message") if overhead is None else overhead
    slowest = 0.0
    for end in (traffic.source, traffic.target):
        took = _sum_by_index(end, np.full(end.size, overhead), traffic.workers)
        if link is not None:
            took += _sum_by_index(end[near], link.latency + byte_counts[near] / link.get_bandwidth(1), traffic.workers)
        if network is not None:
            far = ~near
            machines = -(-traffic.workers // workers_per_machine)
            port = _sum_by_index(end[far] // workers_per_machine, byte_counts[far] / network.get_bandwidth(1), machines)
            took += _sum_by_index(end[far], np.full(int(far.sum()), network.latency), traffic.workers)
            took += port[np.arange(traffic.workers) // workers_per_machine]
        slowest = max(slowest, float(took.max()))
    return slowest


def _sum_by_index(indices: IntegerArray, values: NDArray[np.float64], length: int) -> NDArray[np.float64]:
    sums: NDArray[np.float64] = np.bincount(indices, weights=values, minlength=length).astype(np.float64)
    return sums


def predict_all_reduce(
    count: float,
    ranks: int,
    machine: Machine,
    *,
    per_machine: int | None = None,
    overhead: float | None = None,
    concurrent: int = 1,
) -> float:
    """Return the predicted seconds of an all-reduce of `count` bytes: first within machines, then between machines.

    The algorithm is recursive halving and doubling: in log2(ranks) steps, pairs of ranks exchange and add halves of the
    data, and then gather the sums in reverse order. Every byte moves twice. `overhead` is the seconds of software per
    all-reduce, by default the machine's per message. `concurrent` all-reduces share the network port of a machine.
    """
    if ranks == 1:
        return 0.0
    ranks_per_machine = per_machine or machine.workers.size
    inside, machines = min(ranks, ranks_per_machine), -(-ranks // ranks_per_machine)
    took = machine.get_overhead("message") if overhead is None else overhead
    if inside > 1:
        took += _predict_halving(count, inside, machine.get_link("link"))
    if machines > 1:
        took += _predict_halving(count * concurrent, machines, machine.get_link("network"))
    return took


def _predict_halving(count: float, parts: int, link: Link) -> float:
    return 2 * math.ceil(math.log2(parts)) * link.latency + 2 * (parts - 1) / parts * count / link.get_bandwidth(1)


def list_links(plan: HaloPlan, pixel_bytes: int) -> Sequence[tuple[int, int, int, int]]:
    """Return (source, target, pixels, bytes) of every link, sorted by source and then target."""
    traffic = Traffic.of(plan)
    rows = zip(traffic.source.tolist(), traffic.target.tolist(), traffic.pixels.tolist(), strict=True)
    return sorted((source, target, pixels, pixels * pixel_bytes) for source, target, pixels in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedConvolution:
    """Predicted seconds of one split convolution: computation of the slowest worker, exchange, and its hidden part."""

    exchange: float
    compute: float
    hidden: float

    @property
    def sequential(self) -> float:
        """Seconds without overlap: the exchange, then the convolution."""
        return self.exchange + self.compute

    @property
    def overlapped(self) -> float:
        return self.sequential - self.hidden


def get_item_bytes(dtype: str) -> int:
    """Return the bytes of one value of a dtype.

    >>> get_item_bytes("bfloat16")
    2
    """
    if dtype not in DTYPES:
        raise TesseraError("unknown dtype", got=dtype, allowed=DTYPES)
    return DTYPES[dtype]


def predict_exchange(plan: HaloPlan, pixel_bytes: float, machine: Machine, *, per_machine: int | None = None) -> float:
    """Return the predicted seconds of one exchange of a plan. A pixel has `pixel_bytes` bytes with all channels.

    This is the time of the slowest worker: the sum over its links of the latency, and of the bytes divided by the
    bandwidth. `per_machine` is the number of workers on a machine, by default `machine.workers.size`; other machines
    are reached over the network.
    """
    return predict_exchange_traffic(Traffic.of(plan), pixel_bytes, machine, per_machine=per_machine)


def predict_convolution(
    plan: HaloPlan,
    machine: Machine,
    *,
    in_channels: int,
    out_channels: int,
    groups: int = 1,
    dtype: str = "float32",
    per_machine: int | None = None,
) -> PredictedConvolution:
    """Predict a plan's exchange and convolution (forward pass), and the part of the exchange hidden by overlap."""
    item, window = get_item_bytes(dtype), plan.window
    weights = out_channels * in_channels // groups * prod(window.kernel)
    compute, hidden = 0.0, 0.0
    exchange = predict_exchange(plan, in_channels * item, machine, per_machine=per_machine)
    sharing = min(len(plan.workers), per_machine or machine.workers.size)
    for worker, mine in enumerate(plan.workers):
        outputs = plan.outputs.get_box(worker)
        # FLOPs: one kernel per input pixel for a transposed window, one kernel per output pixel for any other window.
        points = mine.need.size if window.transposed else outputs.size
        values = mine.need.size * in_channels + outputs.size * out_channels + weights
        took = predict_compute(machine, 2 * points * weights, values * item, dtype, sharing=sharing)
        if took > compute:
            image = Box.from_sizes(plan.inputs.sizes)
            inside = prod(
                _compute_interior_fraction(
                    get_axis_window(window, axis - 1), outputs.dims[axis], mine.owned.dims[axis], len(image.dims[axis])
                )
                for axis in range(1, len(image.dims))
            )
            compute, hidden = took, min(exchange, took * inside)
    return PredictedConvolution(exchange=exchange, compute=compute, hidden=hidden)


def predict_compute(machine: Machine, flops: float, bytes: float, dtype: str, *, sharing: int) -> float:
    """Return the predicted seconds of one worker's computation while `sharing` workers of its machine compute.

    `sharing` includes the worker itself. If it exceeds the machine's number of workers, they are time-shared.
    """
    memory = "global" if "global" in machine.links else "local"
    return compute_time(machine, flops * sharing, bytes * sharing, dtype, workers=sharing, memory=memory)


def _compute_interior_fraction(window: Window, outputs: Interval, owned: Interval, size: int) -> float:
    """Return the share of one dim's outputs whose window reads only owned pixels, or padding."""
    if not len(outputs):
        return 0.0

    def get_input(output: int) -> Interval:
        return window.compute_input_box(Box((Interval(0, 1), Interval(output, output + 1)))).dims[1]

    every = range(outputs.start, outputs.stop)
    first = bisect_left(every, owned.start, key=lambda o: get_input(o).start) if owned.start > 0 else 0
    stop = bisect_right(every, owned.stop, key=lambda o: get_input(o).stop) if owned.stop < size else len(every)
    return max(0, stop - first) / len(every)

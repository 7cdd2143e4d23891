"""What an exchange and the convolution it serves should take on a machine: pure functions over plans.

The exchange is predicted from latency and bandwidth of the machine's links, the convolution from its roofline. With
overlap, the exchange goes on while the outputs are computed that do not read it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import lru_cache
from math import prod

from tessera.errors import TesseraError
from tessera.geometry import Box, HaloPlan, Interval, Mesh, Window
from tessera.geometry.partition import even_cuts
from tessera.machine.cost import compute_time
from tessera.machine.machine import Machine
from tessera.spatial.bench.problem import DTYPES
from tessera.spatial.network_cost import Traffic, along, exchange_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Seconds of one convolution that is cut over workers: of its slowest worker, and of its exchange."""

    exchange: float
    compute: float
    hidden: float

    @property
    def apart(self) -> float:
        """The exchange first, then the convolution."""
        return self.exchange + self.compute

    @property
    def overlapped(self) -> float:
        return self.apart - self.hidden


def item_bytes(dtype: str) -> int:
    """The bytes of a number.

    >>> item_bytes("bfloat16")
    2
    """
    if dtype not in DTYPES:
        raise TesseraError("unknown dtype", got=dtype, allowed=DTYPES)
    return DTYPES[dtype]


def predicted_exchange(
    plan: HaloPlan, pixel_bytes: float, machine: Machine, *, per_machine: int | None = None
) -> float:
    """Seconds of one exchange of a plan whose pixels, with all channels, have so many bytes.

    Of the slowest worker: the sum over its links of latency and bytes by bandwidth. `per_machine` workers share a
    machine, by default as many as it has; the others are on further machines like it, over its network.
    """
    return exchange_seconds(Traffic.of(plan), pixel_bytes, machine, per_machine=per_machine)


def predicted_convolution(
    plan: HaloPlan,
    machine: Machine,
    *,
    in_channels: int,
    out_channels: int,
    groups: int = 1,
    dtype: str = "float32",
    per_machine: int | None = None,
) -> Predicted:
    """Exchange and convolution of a plan, forward, and how much of the exchange the convolution can hide."""
    item, window = item_bytes(dtype), plan.window
    weights = out_channels * in_channels // groups * prod(window.kernel)
    compute, hidden = 0.0, 0.0
    exchange = predicted_exchange(plan, in_channels * item, machine, per_machine=per_machine)
    sharing = min(len(plan.workers), per_machine or machine.workers.size)
    for worker, mine in enumerate(plan.workers):
        outputs = plan.outputs.hull(worker)
        # A transposed window spreads every input over its kernel, any other gathers its kernel for every output.
        points = mine.need.size if window.transposed else outputs.size
        moved = mine.need.size * in_channels + outputs.size * out_channels + weights
        took = worker_seconds(machine, 2 * points * weights, moved * item, dtype, sharing=sharing)
        if took > compute:
            image = Box.whole(plan.inputs.sizes)
            inside = prod(
                _untouched(along(window, axis - 1), outputs.dims[axis], mine.owned.dims[axis], len(image.dims[axis]))
                for axis in range(1, len(image.dims))
            )
            compute, hidden = took, min(exchange, took * inside)
    return Predicted(exchange=exchange, compute=compute, hidden=hidden)


def worker_seconds(machine: Machine, flops: float, bytes: float, dtype: str, *, sharing: int) -> float:
    """Seconds of one worker's work while `sharing` workers of its machine, itself included, do as much.

    Workers beyond those that the machine has share their rates in turn.
    """
    memory = "global" if "global" in machine.links else "local"
    return compute_time(machine, flops * sharing, bytes * sharing, dtype, workers=sharing, memory=memory)


@lru_cache(maxsize=512)
def interior_share(plane: tuple[int, int], window: Window, mesh: Mesh) -> float:
    """The share of a tile's outputs that read nothing of other tiles, of the tile where it is least.

    The first, the middle and the last part of each dim stand for all: the parts between them are alike.

    >>> interior_share((8, 8), Window.of(3, padding=1), Mesh(1, 2))
    0.75
    """
    share = 1.0
    for axis, (size, parts) in enumerate(zip(plane, (mesh.rows, mesh.cols), strict=True)):
        window_here = along(window, axis)
        owned, outputs = (even_cuts(length, parts) for length in (size, *window_here.output_size((size,))))
        some = [part for part in {0, parts // 2, parts - 1} if len(outputs[part])]
        share *= min(_untouched(window_here, outputs[part], owned[part], size) for part in some)
    return share


def _untouched(window: Window, outputs: Interval, owned: Interval, size: int) -> float:
    """The share of one dim's outputs whose window stays within what is owned; beyond the image is padding."""
    if not len(outputs):
        return 0.0

    def need(output: int) -> Interval:
        return window.needs(Box((Interval(0, 1), Interval(output, output + 1)))).dims[1]

    every = range(outputs.start, outputs.stop)
    first = bisect_left(every, owned.start, key=lambda o: need(o).start) if owned.start > 0 else 0
    stop = bisect_right(every, owned.stop, key=lambda o: need(o).stop) if owned.stop < size else len(every)
    return max(0, stop - first) / len(every)

"""The number of consecutive windows per halo exchange, chosen by measured costs.

One exchange of a halo for k windows costs the latency once instead of k times, but the margins of the first k - 1
outputs are computed twice. Time per window, for k windows of the same size:

    (latency + received bytes * seconds per byte + recomputed pixels * seconds per pixel) / k

Latency and bandwidth are measured once for the transport, and the convolution is timed at its first use. All ranks use
the costs of the slowest rank, and therefore choose the same number.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter

import torch

from tessera.geometry import Box
from tessera.spatial.tensor.layout import TensorLayout
from tessera.spatial.tensor.margins import grow_layout
from tessera.transport.transport import Strip, Transport

MAX_DEPTH = 16
PROBE_BYTES = (64, 1 << 18)
PROBE_ROUNDS = 7  # the first two are warm-up rounds
CONVOLUTION_ROUNDS = 3  # the first one is a warm-up round


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkCosts:
    """Costs of an exchange between neighbours: seconds for a small message, and seconds for each further byte."""

    latency: float
    seconds_per_byte: float


def measure_link(transport: Transport) -> LinkCosts:
    """Measure a transport; all ranks call this together and get the same costs."""
    if transport.size == 1:
        return LinkCosts(latency=0.0, seconds_per_byte=0.0)
    small, large = agree_on_slowest([_time_round(transport, count) for count in PROBE_BYTES], transport)
    per_byte = max(0.0, large - small) / (PROBE_BYTES[1] - PROBE_BYTES[0])
    return LinkCosts(latency=small, seconds_per_byte=per_byte)


def _time_round(transport: Transport, count: int) -> float:
    """Return the median seconds in which every rank sends some bytes to the next rank."""
    with torch.inference_mode(False):
        sent, received = (transport.empty(count, torch.uint8) for _ in range(2))
    connection = transport.connect(
        [Strip((transport.rank + 1) % transport.size, sent)], [Strip((transport.rank - 1) % transport.size, received)]
    )
    seconds = []
    for _ in range(PROBE_ROUNDS):
        transport.barrier()
        began = perf_counter()
        connection.wait_until_sent()
        connection.start()
        connection.finish()
        seconds.append(perf_counter() - began)
    connection.wait_until_sent()
    transport.barrier()
    connection.close()
    for memory in (sent, received):
        transport.free(memory)
    return median(seconds[2:])


def agree_on_slowest(values: Sequence[float], transport: Transport) -> list[float]:
    """Return the largest of the ranks' values, the same on all ranks."""
    table = torch.zeros(transport.size, len(values), dtype=torch.float64)
    table[transport.rank] = torch.tensor(values, dtype=torch.float64)
    transport.all_reduce(table)
    return table.amax(0).tolist()


def time_computation(compute: Callable[[], object], transport: Transport) -> float:
    """Return the seconds of a computation on the slowest rank; all ranks call this together."""
    seconds = []
    for _ in range(CONVOLUTION_ROUNDS):
        began = perf_counter()
        compute()
        seconds.append(perf_counter() - began)
    return agree_on_slowest([min(seconds[1:])], transport)[0]


def choose_depth(
    result: TensorLayout,
    reach: tuple[Sequence[int], Sequence[int]],
    *,
    link: LinkCosts,
    pixel_bytes: int,
    seconds: float,
) -> int:
    """Return the number of windows per exchange with the least time per window.

    `result` is the layout of the output, `reach` the pixels before and after each pixel that the window reads,
    `pixel_bytes` the bytes of an input pixel, and `seconds` the time of the window without a margin.
    """
    own = max(_count_pixels(result, rank) for rank in range(result.ranks))
    pixels = [own]  # of the busiest rank, with margins for 0, 1, … further windows
    best, least = 1, float("inf")
    for depth in range(1, MAX_DEPTH + 1):
        wide = grow_layout(result, *([depth * length for length in side] for side in reach))
        pixels.append(max(_count_pixels(wide, rank) for rank in range(result.ranks)))
        received = (pixels[depth] - own) * pixel_bytes
        recomputed = sum(count - own for count in pixels[:depth])
        time = link.latency + received * link.seconds_per_byte + recomputed * seconds / max(1, own)
        if time / depth < least:
            best, least = depth, time / depth
    return best


def _count_pixels(layout: TensorLayout, rank: int) -> int:
    sample, _, *spatial = layout.get_dim_box(rank).dims
    return Box((sample, *spatial)).size

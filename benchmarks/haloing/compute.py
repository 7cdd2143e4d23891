"""A convolution with its exchange on two ranks of one thread, against the same uncut in one process of two threads.

The ranks' tiles lie where the layer before would have written them, in the exchange's own buffer. Both sides stay
alive and take turns in short bursts, each layout on either side, in a random order anew every time.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F

from haloing.exchange import two_cores
from tessera.errors import BenchmarkFailed
from tessera.geometry import Box, HaloPlan, Mesh, Partition, Window
from tessera.launch import LaunchConfig, Worker, Workers
from tessera.measure.interleave import paired_ratio
from tessera.measure.joins import join_ranks
from tessera.measure.sampler import Fn, sample
from tessera.measure.samples import Sampling
from tessera.transport.choose import open_transport
from tessera.transport.exchange import Exchange
from tessera.transport.layout import index
from tessera.transport.transport import Transport

IMAGES, CHANNELS, HALOS = (512, 1024), (16, 64), (1, 3)
LAYOUTS = {"default": torch.contiguous_format, "channels last": torch.channels_last}
SIDES = ("cut", "uncut")
BURSTS = 8
BURST = 0.3  # seconds, or one call where that takes longer
TARGET = 1.03
TIME_LIMIT = 300.0

_forwards: dict[str, Fn] = {}  # in a worker: the forward of each layout
_opened: list[Transport] = []


def run(say: Callable[[str], None]) -> dict[str, Any]:
    found = []
    with (
        two_cores(),
        Workers(LaunchConfig(spawn="mpiexec", workers=2, threads=1, time_limit=TIME_LIMIT)) as ranks,
        Workers(LaunchConfig(workers=1, threads=2, time_limit=TIME_LIMIT)) as one,
    ):
        workers = dict(zip(SIDES, (ranks, one), strict=True))
        for image, channels, halo in product(IMAGES, CHANNELS, HALOS):
            say(f"compute, image {image}, {channels} channels, halo {halo}")
            values = _in_turns(workers, image, channels, halo)
            found.append({"image": image, "channels": channels, "halo": halo, **_ratios(values)})
    return {"cases": found, "target": TARGET, "lines": _lines(found)}


def _in_turns(
    workers: dict[str, Workers], image: int, channels: int, halo: int
) -> dict[tuple[str, str], tuple[float, ...]]:
    """Seconds of a forward, burst by burst, of each side and layout."""
    turns = list(product(SIDES, LAYOUTS))
    for side in SIDES:
        workers[side].run(f"haloing.compute:prepare_{side}", image, channels, halo)
    calls = {turn: max(1, round(BURST / _burst(workers, turn, 1))) for turn in turns}
    values: dict[tuple[str, str], list[float]] = {turn: [] for turn in turns}
    for _ in range(BURSTS):
        for turn in random.sample(turns, len(turns)):
            values[turn].append(_burst(workers, turn, calls[turn]))
    return {turn: tuple(taken) for turn, taken in values.items()}


def _burst(workers: dict[str, Workers], turn: tuple[str, str], calls: int) -> float:
    side, layout = turn
    return statistics.median(join_ranks(workers[side].run("haloing.compute:burst", layout, calls)))


def burst(worker: Worker, layout: str, calls: int) -> tuple[float, ...]:
    """In a worker: seconds of some forwards, after one that is not counted."""
    return sample(_forwards[layout], Sampling(iterations=calls, warmup=1), sync=worker.sync).values


def prepare_uncut(worker: Worker, image: int, channels: int, halo: int) -> None:
    """In the one process."""
    pixels, weight = _operands(image, channels, halo)
    _forwards.clear()
    for name, layout in LAYOUTS.items():
        x, w = (values.to(memory_format=layout) for values in (pixels, weight))
        _forwards[name] = lambda x=x, w=w: F.conv2d(x, w, padding=halo)


def prepare_cut(worker: Worker, image: int, channels: int, halo: int) -> None:
    """In a rank; what its output reads is compared with the padded image before anything is timed."""
    _forwards.clear()
    for old in _opened:
        old.close()
    _opened[:] = [open_transport("shared", worker)]
    pixels, weight = _operands(image, channels, halo)
    rows = Partition.grid((1, image, image), Mesh(worker.size, 1))
    plan = HaloPlan(rows, Window.of(2 * halo + 1, padding=halo), rows)
    for name, layout in LAYOUTS.items():
        exchange = Exchange(_opened[0], plan, channels=channels, channels_last=layout is torch.channels_last)
        exchange.home.copy_(pixels[index(Box.whole(rows.sizes), exchange.mine.owned)])
        top = exchange.mine.need.dims[1].start + halo
        expected = F.pad(pixels, [halo] * 4)[:, :, top : top + len(exchange.mine.need.dims[1])]
        forward = _forward(exchange, weight.to(memory_format=layout))
        forward()
        if not torch.equal(exchange.frame, expected):
            raise BenchmarkFailed(f"rank {worker.rank} did not get its borders in the {name} layout")
        _forwards[name] = forward


def _forward(exchange: Exchange, weight: torch.Tensor) -> Fn:
    def forward() -> None:
        exchange.settle()
        exchange.start()
        F.conv2d(exchange.finish(), weight)

    return forward


def _operands(image: int, channels: int, halo: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(image + channels + halo)
    kernel = 2 * halo + 1
    pixels = torch.randn(1, channels, image, image, generator=generator)
    return pixels, torch.randn(channels, channels, kernel, kernel, generator=generator)


def _ratios(values: dict[tuple[str, str], tuple[float, ...]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for layout in LAYOUTS:
        ratio = paired_ratio(values["cut", layout], values["uncut", layout])
        found[layout] = {side: statistics.median(values[side, layout]) for side in SIDES}
        found[layout] |= {"ratio": ratio.value, "low": ratio.low, "high": ratio.high, "met": ratio.value <= TARGET}
    default, last = LAYOUTS
    ratio = paired_ratio(values["cut", last], values["cut", default])
    found["channels last of default"] = {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
    return found


def _lines(found: list[dict[str, Any]]) -> list[str]:
    lines = [f"forward with exchange on 2 ranks x 1 thread, of uncut on 2 threads (target {TARGET}; 95 %)"]
    for case in found:
        lines.append(f"  image {case['image']}, {case['channels']} channels, halo {case['halo']}")
        for layout in LAYOUTS:
            one = case[layout]
            times = f"{one['cut'] * 1e3:.1f} of {one['uncut'] * 1e3:.1f} ms"
            met = "met" if one["met"] else "NOT met"
            ratio = f"{one['ratio']:.3f}x ({one['low']:.3f} to {one['high']:.3f})"
            lines.append(f"    {layout:14} {times:20} {ratio}: {met}")
        of = case["channels last of default"]
        faster = "channels last" if of["ratio"] < 1 else "default"
        lines.append(f"    faster: {faster}; channels last takes {of['ratio']:.2f}x of the default layout")
    return lines

"""A convolution with its exchange on two ranks of one thread, against the same uncut in one process of two threads.

The ranks do it in two ways. *In place*: the tile lies where borders can be read from, in the exchange's own buffer, as
the layer before could have written it. *Layer*: the layer of `parallelize`, overlap `auto`, on an ordinary tensor. All
stay alive and take turns in short bursts, each layout of each, in a random order anew every time.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from parts import two_cores

from tessera.errors import BenchmarkFailed
from tessera.geometry import Box, HaloPlan, Mesh, Partition, Window
from tessera.launch import LaunchConfig, Worker, Workers
from tessera.measure.interleave import paired_ratio
from tessera.measure.joins import join_ranks
from tessera.measure.sampler import Fn, sample
from tessera.measure.samples import Sampling
from tessera.spatial.layers.convolution import convolution
from tessera.spatial.placed import Placed, Settings
from tessera.transport.choose import open_transport
from tessera.transport.exchange import Exchange
from tessera.transport.layout import index
from tessera.transport.transport import Transport

IMAGES, CHANNELS, HALOS = (512, 1024), (16, 64), (1, 3)
LAYOUTS = {"default": torch.contiguous_format, "channels last": torch.channels_last}
CUT, UNCUT = ("in place", "layer"), "uncut"
BURSTS = 8
BURST = 0.3  # seconds, or one call where that takes longer
TARGET = 1.03
TIME_LIMIT = 300.0

Turn = tuple[str, str]  # which way, which layout
_forwards: dict[Turn, Fn] = {}  # in a worker
_opened: list[Transport] = []


def run(say: Callable[[str], None]) -> dict[str, Any]:
    found = []
    with (
        two_cores(),
        Workers(LaunchConfig(spawn="mpiexec", workers=2, threads=1, time_limit=TIME_LIMIT)) as ranks,
        Workers(LaunchConfig(workers=1, threads=2, time_limit=TIME_LIMIT)) as one,
    ):
        for image, channels, halo in product(IMAGES, CHANNELS, HALOS):
            say(f"compute, image {image}, {channels} channels, halo {halo}")
            values = _in_turns(ranks, one, image, channels, halo)
            found.append({"image": image, "channels": channels, "halo": halo, **_ratios(values)})
    return {"cases": found, "target": TARGET, "lines": _lines(found)}


def _in_turns(ranks: Workers, one: Workers, image: int, channels: int, halo: int) -> dict[Turn, tuple[float, ...]]:
    """Seconds of a forward, burst by burst, each way and in each layout."""
    ranks.run("haloing.compute:prepare_cut", image, channels, halo)
    one.run("haloing.compute:prepare_uncut", image, channels, halo)
    turns = list(product((*CUT, UNCUT), LAYOUTS))

    def burst_of(turn: Turn, calls: int) -> float:
        workers = one if turn[0] == UNCUT else ranks
        return statistics.median(join_ranks(workers.run("haloing.compute:burst", turn, calls)))

    calls = {turn: max(1, round(BURST / burst_of(turn, 1))) for turn in turns}
    values: dict[Turn, list[float]] = {turn: [] for turn in turns}
    for _ in range(BURSTS):
        for turn in random.sample(turns, len(turns)):
            values[turn].append(burst_of(turn, calls[turn]))
    return {turn: tuple(taken) for turn, taken in values.items()}


def burst(worker: Worker, turn: Turn, calls: int) -> tuple[float, ...]:
    """In a worker: seconds of some forwards, after one that is not counted."""
    return sample(_forwards[turn], Sampling(iterations=calls, warmup=1), sync=worker.sync).values


def prepare_uncut(worker: Worker, image: int, channels: int, halo: int) -> None:
    """In the one process."""
    pixels, weight = _operands(image, channels, halo)
    _forwards.clear()
    for name, layout in LAYOUTS.items():
        x, w = (values.to(memory_format=layout) for values in (pixels, weight))
        _forwards[UNCUT, name] = lambda x=x, w=w: F.conv2d(x, w, padding=halo)


def prepare_cut(worker: Worker, image: int, channels: int, halo: int) -> None:
    """In a rank; what its output reads is compared with the padded image before anything is timed."""
    _forwards.clear()
    for old in _opened:
        old.close()
    _opened[:] = [open_transport("shared", worker)]
    pixels, weight = _operands(image, channels, halo)
    rows = Placed.of("tiles", Mesh(worker.size, 1), (1, image, image))
    for name, layout in LAYOUTS.items():
        in_place = _in_place(pixels, weight.to(memory_format=layout), rows.partition, halo, name)
        layer = _layer(pixels, weight.to(memory_format=layout), rows, halo, name)
        if not torch.allclose(in_place(), layer(), rtol=1e-3, atol=1e-3):
            raise BenchmarkFailed(f"rank {worker.rank}: the two ways differ in the {name} layout")
        _forwards.update({("in place", name): in_place, ("layer", name): layer})


def _in_place(
    pixels: torch.Tensor, weight: torch.Tensor, rows: Partition, halo: int, layout: str
) -> Callable[[], torch.Tensor]:
    plan = HaloPlan(rows, Window.of(2 * halo + 1, padding=halo), rows)
    exchange = Exchange(_opened[0], plan, channels=pixels.shape[1], channels_last=layout == "channels last")
    exchange.home.copy_(pixels[index(Box.whole(rows.sizes), exchange.mine.owned)])
    top = exchange.mine.need.dims[1].start + halo
    expected = F.pad(pixels, [halo] * 4)[:, :, top : top + len(exchange.mine.need.dims[1])]

    def forward() -> torch.Tensor:
        exchange.settle()
        exchange.start()
        return F.conv2d(exchange.finish(), weight)

    forward()
    if not torch.equal(exchange.frame, expected):
        raise BenchmarkFailed(f"rank {_opened[0].rank} did not get its borders in the {layout} layout")
    return forward


def _layer(
    pixels: torch.Tensor, weight: torch.Tensor, rows: Placed, halo: int, layout: str
) -> Callable[[], torch.Tensor]:
    channels, transport = pixels.shape[1], _opened[0]
    module = torch.nn.Conv2d(channels, channels, 2 * halo + 1, padding=halo, bias=False)
    module.weight = torch.nn.Parameter(weight)
    settings = Settings(transport=transport, mesh=rows.mesh, overlap="auto", channels_last=layout == "channels last")
    layer = convolution(module, rows, settings)
    tile = pixels[index(Box.whole(rows.sizes), rows.box(transport.rank))].clone(memory_format=LAYOUTS[layout])

    @torch.no_grad()
    def forward() -> torch.Tensor:
        return layer(tile)

    return forward


def _operands(image: int, channels: int, halo: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(image + channels + halo)
    kernel = 2 * halo + 1
    pixels = torch.randn(1, channels, image, image, generator=generator)
    return pixels, torch.randn(channels, channels, kernel, kernel, generator=generator)


def _ratios(values: dict[Turn, tuple[float, ...]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for layout in LAYOUTS:
        found[layout] = {UNCUT: statistics.median(values[UNCUT, layout])}
        for way in CUT:
            ratio = paired_ratio(values[way, layout], values[UNCUT, layout])
            found[layout][way] = {"median": statistics.median(values[way, layout]), "met": ratio.value <= TARGET}
            found[layout][way] |= {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
    default, last = LAYOUTS
    ratio = paired_ratio(values["layer", last], values["layer", default])
    found["channels last of default"] = {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
    return found


def _lines(found: list[dict[str, Any]]) -> list[str]:
    lines = [f"forward with exchange on 2 ranks x 1 thread, of uncut on 2 threads (target {TARGET}; 95 %)"]
    for case in found:
        lines.append(f"  image {case['image']}, {case['channels']} channels, halo {case['halo']}")
        for layout, way in product(LAYOUTS, CUT):
            one = case[layout][way]
            times = f"{one['median'] * 1e3:.1f} of {case[layout][UNCUT] * 1e3:.1f} ms"
            met = "met" if one["met"] else "NOT met"
            ratio = f"{one['ratio']:.3f}x ({one['low']:.3f} to {one['high']:.3f})"
            lines.append(f"    {layout:14} {way:9} {times:20} {ratio}: {met}")
        of = case["channels last of default"]
        faster = "channels last" if of["ratio"] < 1 else "default"
        lines.append(f"    faster: {faster}; channels last takes {of['ratio']:.2f}x of the default layout")
    return lines

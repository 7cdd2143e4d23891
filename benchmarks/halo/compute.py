"""Benchmark of a split convolution on two ranks with one thread each, compared with one process with two threads.

Two variants run on the ranks. *In place*: the tile is in the buffer of the exchange already, as a previous layer could
have written it. *Layer*: the layer of `parallelize`, overlap `auto`, on an ordinary tensor. All processes stay alive.
Short bursts of all variants and layouts are interleaved, in a new random order each time.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable
from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from parts import limit_to_two_cores

from tessera.errors import BenchmarkFailed
from tessera.geometry import Box, HaloPlan, Mesh, Partition, Window
from tessera.launch import LaunchConfig, Worker, Workers
from tessera.measure.interleave import estimate_paired_ratio
from tessera.measure.joins import join_ranks
from tessera.measure.sampler import Fn, sample
from tessera.measure.samples import Sampling
from tessera.spatial.distribution import Distribution, SpatialSettings
from tessera.spatial.layers.convolution import build_convolution
from tessera.transport.exchange import Exchange
from tessera.transport.layout import index_box
from tessera.transport.registry import open_transport
from tessera.transport.transport import Transport

IMAGE_SIZES, CHANNELS, HALOS = (512, 1024), (16, 64), (1, 3)
LAYOUTS = {"default": torch.contiguous_format, "channels last": torch.channels_last}
SPLIT_VARIANTS, UNSPLIT_VARIANT = ("in place", "layer"), "uncut"  # names in stored results
BURSTS_PER_VARIANT = 8
BURST_SECONDS = 0.3  # duration of a burst; at least one call
TARGET_RATIO = 1.03
TIME_LIMIT_SECONDS = 300.0

Variant = tuple[str, str]  # (name, layout)
_forwards: dict[Variant, Fn] = {}  # the variants of a worker
_transports: list[Transport] = []


def run(say: Callable[[str], None]) -> dict[str, Any]:
    results = []
    with (
        limit_to_two_cores(),
        Workers(LaunchConfig(spawn="mpiexec", workers=2, threads=1, time_limit=TIME_LIMIT_SECONDS)) as ranks,
        Workers(LaunchConfig(workers=1, threads=2, time_limit=TIME_LIMIT_SECONDS)) as single,
    ):
        for image, channels, halo in product(IMAGE_SIZES, CHANNELS, HALOS):
            say(f"compute, image {image}, {channels} channels, halo {halo}")
            values = _measure_interleaved(ranks, single, image, channels, halo)
            results.append({"image": image, "channels": channels, "halo": halo, **_compute_ratios(values)})
    return {"cases": results, "target": TARGET_RATIO, "lines": _format_lines(results)}


def _measure_interleaved(
    ranks: Workers, single: Workers, image: int, channels: int, halo: int
) -> dict[Variant, tuple[float, ...]]:
    """Return the seconds of a forward pass in each burst, by variant and layout."""
    ranks.run("halo.compute:prepare_split", image, channels, halo)
    single.run("halo.compute:prepare_unsplit", image, channels, halo)
    variants = list(product((*SPLIT_VARIANTS, UNSPLIT_VARIANT), LAYOUTS))

    def run_burst(variant: Variant, calls: int) -> float:
        workers = single if variant[0] == UNSPLIT_VARIANT else ranks
        return statistics.median(join_ranks(workers.run("halo.compute:time_burst", variant, calls)))

    calls = {variant: max(1, round(BURST_SECONDS / run_burst(variant, 1))) for variant in variants}
    values: dict[Variant, list[float]] = {variant: [] for variant in variants}
    for _ in range(BURSTS_PER_VARIANT):
        for variant in random.sample(variants, len(variants)):
            values[variant].append(run_burst(variant, calls[variant]))
    return {variant: tuple(seconds) for variant, seconds in values.items()}


def time_burst(worker: Worker, variant: Variant, calls: int) -> tuple[float, ...]:
    """Worker function: return the seconds of some forward passes, after one warm-up."""
    return sample(_forwards[variant], Sampling(iterations=calls, warmup=1), sync=worker.sync).values


def prepare_unsplit(worker: Worker, image: int, channels: int, halo: int) -> None:
    """Worker function: prepare the unsplit convolution in the single process."""
    pixels, weight = _make_operands(image, channels, halo)
    _forwards.clear()
    for name, layout in LAYOUTS.items():
        x, w = (values.to(memory_format=layout) for values in (pixels, weight))
        _forwards[UNSPLIT_VARIANT, name] = lambda x=x, w=w: F.conv2d(x, w, padding=halo)


def prepare_split(worker: Worker, image: int, channels: int, halo: int) -> None:
    """Worker function: prepare both variants on a rank, and check the received borders."""
    _forwards.clear()
    for old in _transports:
        old.close()
    _transports[:] = [open_transport("shared", worker)]
    pixels, weight = _make_operands(image, channels, halo)
    rows = Distribution.of(Mesh(worker.size, 1), (1, image, image))
    for name, layout in LAYOUTS.items():
        in_place = _build_in_place_call(pixels, weight.to(memory_format=layout), rows.partition, halo, name)
        layer = _build_layer_call(pixels, weight.to(memory_format=layout), rows, halo, name)
        if not torch.allclose(in_place(), layer(), rtol=1e-3, atol=1e-3):
            raise BenchmarkFailed(f"rank {worker.rank}: the results of the two variants differ in the {name} layout")
        _forwards.update({("in place", name): in_place, ("layer", name): layer})


def _build_in_place_call(
    pixels: torch.Tensor, weight: torch.Tensor, rows: Partition, halo: int, layout: str
) -> Callable[[], torch.Tensor]:
    plan = HaloPlan(rows, Window.of(2 * halo + 1, padding=halo), rows)
    exchange = Exchange(_transports[0], plan, channels=pixels.shape[1], channels_last=layout == "channels last")
    exchange.tile_buffer.copy_(pixels[index_box(Box.from_sizes(rows.sizes), exchange.worker_plan.owned)])
    top = exchange.worker_plan.need.dims[1].start + halo
    expected = F.pad(pixels, [halo] * 4)[:, :, top : top + len(exchange.worker_plan.need.dims[1])]

    def forward() -> torch.Tensor:
        exchange.wait_until_sent()
        exchange.start()
        return F.conv2d(exchange.finish(), weight)

    forward()
    if not torch.equal(exchange.frame, expected):
        raise BenchmarkFailed(f"rank {_transports[0].rank} received wrong borders in the {layout} layout")
    return forward


def _build_layer_call(
    pixels: torch.Tensor, weight: torch.Tensor, rows: Distribution, halo: int, layout: str
) -> Callable[[], torch.Tensor]:
    channels, transport = pixels.shape[1], _transports[0]
    module = torch.nn.Conv2d(channels, channels, 2 * halo + 1, padding=halo, bias=False)
    module.weight = torch.nn.Parameter(weight)
    settings = SpatialSettings(
        transport=transport, mesh=rows.mesh, overlap="auto", channels_last=layout == "channels last"
    )
    layer = build_convolution(module, rows, settings)
    tile = pixels[index_box(Box.from_sizes(rows.sizes), rows.get_box(transport.rank))].clone(
        memory_format=LAYOUTS[layout]
    )

    @torch.no_grad()
    def forward() -> torch.Tensor:
        return layer(tile)

    return forward


def _make_operands(image: int, channels: int, halo: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(image + channels + halo)
    kernel = 2 * halo + 1
    pixels = torch.randn(1, channels, image, image, generator=generator)
    return pixels, torch.randn(channels, channels, kernel, kernel, generator=generator)


def _compute_ratios(values: dict[Variant, tuple[float, ...]]) -> dict[str, Any]:
    ratios: dict[str, Any] = {}
    for layout in LAYOUTS:
        ratios[layout] = {UNSPLIT_VARIANT: statistics.median(values[UNSPLIT_VARIANT, layout])}
        for variant in SPLIT_VARIANTS:
            ratio = estimate_paired_ratio(values[variant, layout], values[UNSPLIT_VARIANT, layout])
            ratios[layout][variant] = {
                "median": statistics.median(values[variant, layout]),
                "met": ratio.value <= TARGET_RATIO,
            }
            ratios[layout][variant] |= {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
    default, last = LAYOUTS
    ratio = estimate_paired_ratio(values["layer", last], values["layer", default])
    ratios["channels last of default"] = {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
    return ratios


def _format_lines(results: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"forward with exchange on 2 ranks x 1 thread, relative to unsplit on 2 threads (target {TARGET_RATIO}; 95 %)"
    ]
    for case in results:
        lines.append(f"  image {case['image']}, {case['channels']} channels, halo {case['halo']}")
        for layout, variant in product(LAYOUTS, SPLIT_VARIANTS):
            result = case[layout][variant]
            times = f"{result['median'] * 1e3:.1f} of {case[layout][UNSPLIT_VARIANT] * 1e3:.1f} ms"
            met = "met" if result["met"] else "NOT met"
            ratio = f"{result['ratio']:.3f}x ({result['low']:.3f} to {result['high']:.3f})"
            lines.append(f"    {layout:14} {variant:9} {times:20} {ratio}: {met}")
        of = case["channels last of default"]
        faster = "channels last" if of["ratio"] < 1 else "default"
        lines.append(f"    faster: {faster}; channels last takes {of['ratio']:.2f}x of the default layout")
    return lines

"""Benchmark of halos that serve several convolutions, between two hosts with a latency of one millisecond.

Two network namespaces of this machine stand for the hosts (see two_hosts.py). Each has one rank on its own core, and
gloo carries the borders. A stack of eight 3x3 convolutions runs on one image with `parallelize(halo_depth=…)`. The
depths take turns inside one launch, so that all of them see the same machine. *Speed-up* compares with one exchange per
convolution, pair by pair.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from math import inf
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from tests.parallel.two_hosts import NotAllowed, TwoHosts
from torch import nn

LATENCY_SECONDS, BITS_PER_SECOND = 1e-3, 1e9
LAYERS, CHANNELS, IMAGE_SIZE = 8, 8, 128
DEPTHS = (1, 2, 4, 8, "auto")
WAYS = ("forward", "forward and backward")
ROUNDS, WARMUP_ROUNDS = 30, 3  # of each launch


def run(say: Callable[[str], None], *, rounds: int = 3, minutes: float = inf) -> Iterator[dict[str, Any]]:
    """Measure all depths; `lines` of the result is the table. After `minutes`, no further launch is started."""
    launches: list[dict[str, Any]] = []
    deadline = time.monotonic() + 60 * minutes
    try:
        with TwoHosts(delay=LATENCY_SECONDS, rate=BITS_PER_SECOND) as hosts:
            trip = hosts.measure_round_trip()
            say(f"two hosts, {hosts.how}; round trip {trip * 1e6:.0f} microseconds")
            wire = {"delay": hosts.delay, "bits/s": hosts.rate, "round trip": trip, "how": hosts.how}
            for number in range(rounds):
                if time.monotonic() > deadline:
                    return
                say(f"wide halos: launch {number + 1}")
                ends = hosts.torchrun(["benchmarks.halo.wide", "--rank"], timeout=600)
                if any(end.returncode for end in ends):
                    raise RuntimeError("\n".join(end.stderr for end in ends))
                launches.append(json.loads(ends[0].stdout.splitlines()[-1]))
                yield {"wire": wire, "launches": launches, "lines": _format_lines(wire, launches)}
    except NotAllowed as why:
        yield {"skipped": str(why), "lines": [f"two hosts cannot be simulated here: {why}"]}


def _format_lines(wire: dict[str, Any], launches: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"{LAYERS} 3x3 convolutions, {CHANNELS} channels, {IMAGE_SIZE}x{IMAGE_SIZE}, 2 ranks: "
        f"{wire['delay'] * 1e3:g} ms and {wire['bits/s'] / 1e9:g} Gbit/s each way ({wire['how']}),"
        f" {len(launches)} launches of {ROUNDS} rounds"
    ]
    for way in WAYS:
        lines.append(f"  {way:24} exchanges      median   speed-up, least and most of the launches")
        for depth in map(str, DEPTHS):
            samples = [launch["times"][way][depth] for launch in launches]
            ratios = [
                statistics.median(one / wide for one, wide in zip(launch["times"][way]["1"], own, strict=True))
                for launch, own in zip(launches, samples, strict=True)
            ]
            middle = statistics.median(value for own in samples for value in own)
            chosen = launches[0]["exchanges"][way][depth]
            lines.append(
                f"    halo_depth {depth:10} {chosen:12} {middle * 1e3:9.2f} ms   {statistics.median(ratios):.2f}"
                f" ({min(ratios):.2f} to {max(ratios):.2f})"
            )
    return lines


def measure_on_rank() -> dict[str, Any]:
    """Time the stack with every depth in turn, on this rank; return the seconds and the numbers of exchanges."""
    import torch.distributed as dist

    from tessera.spatial import parallelize
    from tessera.spatial.tensor import transfer
    from tessera.transport.distributed import DistributedTransport

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(LAYERS)]
    stack = nn.Sequential(*(layer for conv in layers for layer in (conv, nn.ReLU(inplace=True))))
    image = torch.randn(1, CHANNELS, IMAGE_SIZE, IMAGE_SIZE)
    gloo = DistributedTransport(dist.group.WORLD)  # these hosts are namespaces, which could share memory
    models = {str(depth): parallelize(stack, "1x2", transport=gloo, halo_depth=depth) for depth in DEPTHS}
    plain = stack(image)
    for model in models.values():
        torch.testing.assert_close(model.gather(model(image)), plain, rtol=1e-4, atol=1e-5)

    def step(tile: Any, way: str) -> None:
        if way == "forward":
            with torch.no_grad():
                stack(tile)
        else:
            stack(tile).square().mean().backward()

    starts = [0]
    start = transfer._Line.start

    def count(line: Any, tile: Any) -> None:
        starts[0] += 1
        start(line, tile)

    transfer._Line.start = count  # type: ignore[method-assign]
    times: dict[str, dict[str, list[float]]] = {way: {name: [] for name in models} for way in WAYS}
    exchanges: dict[str, dict[str, int]] = {way: {} for way in WAYS}
    for way in WAYS:
        for number in range(ROUNDS + WARMUP_ROUNDS):
            for name, model in models.items():
                stack.zero_grad(set_to_none=True)
                tile = model.scatter(image)  # a new tile: the halo of an old one is known
                model.group.start_pass()
                dist.barrier()
                starts[0], began = 0, time.perf_counter()
                step(tile, way)
                seconds = time.perf_counter() - began
                if number >= WARMUP_ROUNDS:
                    times[way][name].append(seconds)
                    exchanges[way][name] = starts[0]
    for by_name in times.values():
        for name, seconds_of_rank in by_name.items():
            table = [torch.empty(ROUNDS, dtype=torch.float64) for _ in range(2)]
            dist.all_gather(table, torch.tensor(seconds_of_rank, dtype=torch.float64))
            by_name[name] = torch.stack(table).amax(0).tolist()  # a step ends when the slower rank ends
    dist.destroy_process_group()
    return {"times": times, "exchanges": exchanges}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rank", action="store_true", help="run as one of the two ranks")
    if parser.parse_args().rank:
        print(json.dumps(measure_on_rank()))
    else:
        for outcome in run(lambda text: print(text, file=sys.stderr, flush=True)):
            print("\n".join(outcome["lines"]))

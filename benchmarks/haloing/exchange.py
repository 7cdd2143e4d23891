"""Borders between pinned ranks: our transports, a plain copy of the same bytes, and gloo's messages, in turns.

Every sample begins at a barrier, and takes as long as its slowest rank. *Repeated*, each way is sampled several times
in a row and the first of them are left out, so that its buffers are in the caches; *in turns*, every sample is of
another way, and finds them as a network's other layers would have left them. An exchange is measured as a whole: until
the neighbours have taken what the last round sent (`settle`), letting go of this one's (`start`), until all is in place
(`finish`). The copy is `copy_` between two local views with the same shape and strides, on all ranks at once.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from parts import two_cores

from tessera.errors import BenchmarkFailed
from tessera.geometry import HaloPlan, Mesh, Partition, Window
from tessera.launch import LaunchConfig, Worker, Workers
from tessera.measure.clock import MACHINE_CLOCK
from tessera.measure.interleave import paired_ratio
from tessera.measure.joins import join_ranks
from tessera.measure.sampler import Fn, Series, no_garbage_collection
from tessera.measure.statistics import summarize
from tessera.transport.choose import open_transport
from tessera.transport.copying import joined_dims
from tessera.transport.exchange import Exchange
from tessera.transport.layout import Layout, index
from tessera.transport.transport import Transport

SIZES = {"1 KB": 1 << 10, "16 KB": 1 << 14, "256 KB": 1 << 18, "4 MB": 1 << 22}
EVERYTHING = ("copy_", "shared", "mpi", "gloo", "written, copy_", "written, shared")
SECONDS = 3.0  # for all of one size
REPEATS, LEFT_OUT = 10, 3
LONG_NS = 50_000_000
MICRO = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """What neighbours exchange: one row or one column of pixels of float32."""

    title: str
    rows: bool
    channels: int
    channels_last: bool

    def plan(self, size: int, ranks: int) -> HaloPlan:
        """Ranks beside each other, with borders of so many bytes."""
        length, deep = size // (4 * self.channels), 4 * ranks
        image, mesh = ((1, deep, length), Mesh(ranks, 1)) if self.rows else ((1, length, deep), Mesh(1, ranks))
        window = Window.of((3, 1), padding=(1, 0)) if self.rows else Window.of((1, 3), padding=(0, 1))
        cut = Partition.grid(image, mesh)
        return HaloPlan(cut, window, cut)


CONTIGUOUS = "contiguous"
REPEATED = f"{CONTIGUOUS}, repeated"
BORDERS = {
    CONTIGUOUS: Border(title="rows, channels last: one piece", rows=True, channels=16, channels_last=True),
    "strided": Border(title="columns, channels last: pieces of 256 bytes", rows=False, channels=64, channels_last=True),
    "scattered": Border(title="columns, default layout: 4 bytes each", rows=False, channels=16, channels_last=False),
}


def run(say: Callable[[str], None]) -> dict[str, Any]:
    with two_cores():
        found = {f"{name}, in turns": _borders(say, name, 2, EVERYTHING) for name in BORDERS}
        found[REPEATED] = _borders(say, CONTIGUOUS, 2, EVERYTHING, repeats=REPEATS)
        crowded = _borders(say, CONTIGUOUS, 4, ("shared", "mpi"), repeats=REPEATS)
    verdicts = _verdicts(found[REPEATED], crowded)
    lines = _lines(found, crowded, verdicts)
    return {"2 ranks": found, "4 ranks on 2 cores": crowded, "targets": verdicts, "lines": lines}


def _borders(
    say: Callable[[str], None], border: str, ranks: int, names: Sequence[str], *, repeats: int = 1
) -> dict[str, dict[str, Any]]:
    """By size: the seconds of every way, and their ratios to the copy."""
    found = {}
    with Workers(LaunchConfig(spawn="mpiexec", workers=ranks, env={"GLOO_SOCKET_IFNAME": "lo"})) as workers:
        for title, size in SIZES.items():
            say(f"exchange, {ranks} ranks, {border}, {title}")
            by_rank = workers.run("haloing.exchange:measure", border, size, names, repeats, time_limit=120.0)
            values = {name: join_ranks([one[name] for one in by_rank]) for name in names}
            found[title] = {name: _summary(name, values) for name in names}
    return found


def _summary(name: str, values: dict[str, tuple[float, ...]]) -> dict[str, float]:
    """Median and spread in seconds; beside a copy, how many times as long, with the interval over the rounds."""
    all_of_it = summarize(values[name])
    found = {"median": all_of_it.median, "p25": all_of_it.p25, "p75": all_of_it.p75, "samples": all_of_it.count}
    base = "written, copy_" if name.startswith("written") else "copy_"
    if base in values:
        ratio = paired_ratio(values[name], values[base])
        found |= {"of copy_": ratio.value, "low": ratio.low, "high": ratio.high}
    return found


def measure(worker: Worker, border: str, size: int, names: Sequence[str], repeats: int) -> dict[str, tuple[float, ...]]:
    """On a rank: seconds of each way, sample by sample, all ways in turns in an order that the ranks agree on."""
    ways = _ways(worker, BORDERS[border], size, names)
    order = random.Random(worker.sync.agree(random.randrange(1 << 30)))
    with no_garbage_collection():
        series = {name: Series(ways[name], MACHINE_CLOCK) for name in names}
        for one in series.values():
            one.take()
            one.forget()
            one.find_loops(worker.sync, LONG_NS)
        deadline = MACHINE_CLOCK.wall() + round(SECONDS * 1e9)
        while worker.sync.agree(MACHINE_CLOCK.wall() < deadline):
            for name in order.sample(list(series), len(series)):
                for _ in range(repeats):
                    if name == "gloo":  # which takes four times as long just after a barrier of MPI's, which spins
                        dist.barrier()
                        series[name].take()
                        dist.barrier()
                    else:
                        worker.sync.barrier()
                        series[name].take()
    left_out = min(LEFT_OUT, repeats - 1)
    return {
        name: tuple(ns / one.loops / 1e9 for number, ns in enumerate(one.wall) if number % repeats >= left_out)
        for name, one in series.items()
    }


def _ways(worker: Worker, border: Border, size: int, names: Sequence[str]) -> dict[str, Fn]:
    plan = border.plan(size, worker.size)
    shared, mpi = (_exchange(_transport(name, worker), border, plan) for name in ("shared", "mpi"))
    copies, writes = _local_copies(shared, border)
    fresh = [torch.full_like(view, worker.rank + 1) for view in _sent(shared)]
    sent = list(zip(_sent(shared), fresh, strict=True))
    ways: dict[str, Fn] = {
        "copy_": lambda: _copy(copies),
        "shared": lambda: _exchanged(shared),
        "mpi": lambda: _exchanged(mpi),
        "written, copy_": lambda: (_copy(writes), _copy(copies)),
        "written, shared": lambda: (shared.settle(), _copy(sent), shared.start(), shared.finish()),
    }
    if "gloo" in names:
        ways["gloo"] = _gloo(worker, size)
    return ways


@cache
def _transport(name: str, worker: Worker) -> Transport:
    return open_transport(name, worker)


def _exchange(transport: Transport, border: Border, plan: HaloPlan) -> Exchange:
    """An exchange that has been seen to work."""
    made = Exchange(transport, plan, channels=border.channels, channels_last=border.channels_last)
    made.home.fill_(transport.rank + 1)
    _exchanged(made)
    for move in made.mine.receives:
        if not bool((made.frame[index(made.mine.frame, move.placed)] == move.source + 1).all()):
            raise BenchmarkFailed(f"{move!r} did not arrive over {transport.name}")
    return made


def _exchanged(exchange: Exchange) -> None:
    exchange.settle()
    exchange.start()
    exchange.finish()


def _sent(exchange: Exchange) -> list[torch.Tensor]:
    return [exchange.home[index(exchange.mine.owned, move.taken)] for move in exchange.mine.sends]


Pairs = list[tuple[torch.Tensor, torch.Tensor]]


def _local_copies(exchange: Exchange, border: Border) -> tuple[Pairs, Pairs]:
    """The bytes that arrive, copied within this rank's own memory; and first written there, as a layer before would."""
    layout, mine = Layout(border.channels, border.channels_last), exchange.mine
    frame, tile = (layout.tensor(torch.zeros(layout.size(box)), box) for box in (mine.frame, mine.owned))
    copies, writes = [], []
    for into, out in zip(mine.receives, mine.sends, strict=True):
        target, source = frame[index(mine.frame, into.placed)], tile[index(mine.owned, out.taken)]
        copies.append(joined_dims(layout.strip(target), layout.strip(source)))
        writes.append((source, torch.full_like(source, 1.0)))
    return copies, writes


def _copy(pairs: Pairs) -> None:
    for target, source in pairs:
        target.copy_(source)


@contextmanager
def _cores_of_parent() -> Iterator[None]:
    """What starts within may run on all cores of the job: gloo's threads, which would wait for the rank's own turns."""
    pinned = os.sched_getaffinity(0)
    os.sched_setaffinity(0, os.sched_getaffinity(os.getppid()))
    try:
        yield
    finally:
        os.sched_setaffinity(0, pinned)


def _gloo(worker: Worker, size: int) -> Fn:
    """Plain messages to and from both neighbours, over a group of gloo's among the same ranks."""
    if not dist.is_initialized():
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = worker.sync.agree(free.getsockname()[1])
        with _cores_of_parent():
            dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=worker.rank, world_size=worker.size)
    peers = [peer for peer in (worker.rank - 1, worker.rank + 1) if 0 <= peer < worker.size]
    received, sent = ([torch.zeros(size, dtype=torch.uint8) for _ in peers] for _ in range(2))

    def messages() -> None:
        under_way = [dist.irecv(into, peer) for into, peer in zip(received, peers, strict=True)]
        under_way += [dist.isend(out, peer) for out, peer in zip(sent, peers, strict=True)]
        for work in under_way:
            work.wait()

    return messages


def _verdicts(found: dict[str, dict[str, Any]], crowded: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The targets, which are for contiguous borders, and what was reached."""

    def took(title: str, name: str) -> float:
        return float(found[title][name]["median"])

    shared, copy = {title: took(title, "shared") for title in SIZES}, {title: took(title, "copy_") for title in SIZES}
    limits = [
        ("1 KB under 8 us", shared["1 KB"] * MICRO, 8.0),
        ("256 KB at most 1.5x copy_ + 4 us", shared["256 KB"] * MICRO, 1.5 * copy["256 KB"] * MICRO + 4.0),
        ("4 MB at most 1.1x copy_", shared["4 MB"] / copy["4 MB"], 1.1),
        ("256 KB at most 1/15 of gloo", shared["256 KB"] / took("256 KB", "gloo"), 1 / 15),
    ]
    limits += [
        (f"4 ranks on 2 cores, {title}, under 10x of 2 ranks", crowded[title]["shared"]["median"] / shared[title], 10.0)
        for title in SIZES
    ]
    return [{"target": what, "reached": value, "limit": limit, "met": value <= limit} for what, value, limit in limits]


def _lines(
    found: dict[str, dict[str, dict[str, Any]]], crowded: dict[str, dict[str, Any]], verdicts: list[dict[str, Any]]
) -> list[str]:
    lines = []
    for border, sizes in found.items():
        what = BORDERS[border.split(",")[0]].title
        lines.append(f"{border}: {what}; microseconds (median), and how many times copy_ (95 %)")
        for title, ways in sizes.items():
            cells = [f"{name} {ways[name]['median'] * MICRO:.1f}" for name in ("copy_", "shared", "mpi", "gloo")]
            lines.append(f"  {title:7} {', '.join(cells)}; {_times(ways['shared'])}")
            written = f"{ways['written, shared']['median'] * MICRO:.1f}; {_times(ways['written, shared'])}"
            lines.append(f"  {'':7} freshly written: shared {written}")
    lines.append(f"4 ranks on 2 cores, {REPEATED}; microseconds (median)")
    for title, ways in crowded.items():
        lines.append(f"  {title:7} " + ", ".join(f"{name} {way['median'] * MICRO:.1f}" for name, way in ways.items()))
    lines.append("targets")
    for one in verdicts:
        met = "met" if one["met"] else "NOT met"
        lines.append(f"  {one['target']:48} {one['reached']:.3g} (limit {one['limit']:.3g}): {met}")
    return lines


def _times(way: dict[str, float]) -> str:
    return f"{way['of copy_']:.2f}x ({way['low']:.2f} to {way['high']:.2f})"

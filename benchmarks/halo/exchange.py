"""Benchmark of border exchanges between pinned ranks: our transports, a plain copy of as many bytes, gloo messages.

Every sample starts at a barrier and takes as long as its slowest rank. *Repeated*: each variant is sampled several
times in a row and the first samples are omitted, so that its buffers are in the caches. *In turns*: variants are
interleaved sample by sample, so that the caches hold other data, as between the layers of a network. The time of an
exchange includes waiting for the previous round (`wait_until_sent`), sending (`start`), and receiving the borders
(`finish`).
The copy is `copy_` between two local views with the shape and strides of the border, on all ranks at once.
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
from parts import limit_to_two_cores

from tessera.errors import BenchmarkFailed
from tessera.geometry import HaloPlan, Mesh, Partition, Window
from tessera.launch import LaunchConfig, Worker, Workers
from tessera.launch.config import SpawnMethod
from tessera.measure.clock import MACHINE_CLOCK
from tessera.measure.interleave import estimate_paired_ratio
from tessera.measure.joins import join_ranks
from tessera.measure.sampler import Fn, SampleSeries, disable_garbage_collection
from tessera.measure.statistics import summarize
from tessera.transport.exchange import Exchange
from tessera.transport.layout import MemoryLayout, index_box
from tessera.transport.packing import join_dims
from tessera.transport.registry import open_transport
from tessera.transport.transport import Transport

BORDER_BYTES = {"1 KB": 1 << 10, "16 KB": 1 << 14, "256 KB": 1 << 18, "4 MB": 1 << 22}
SHARED_TRANSPORTS = {"mpiexec": "shared", "torchrun": "shm"}  # the transport through shared memory of each launcher
TORCHRUN_VARIANTS = ("copy_", "shm", "gloo")
TORCHRUN_SIZES = ("1 KB", "256 KB", "4 MB")
ALL_VARIANTS = ("copy_", "shared", "mpi", "gloo", "written, copy_", "written, shared")
SECONDS_PER_SIZE = 3.0  # time budget for all variants of one size
REPEATS, DISCARDED_REPEATS = 10, 3  # samples in a row per variant, and how many of them are discarded
LONG_CALL_NS = 50_000_000  # a call of at least this duration is one sample; shorter calls are repeated
US_PER_SECOND = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Border:
    """The border that neighbours exchange: one row or one column of float32 pixels."""

    title: str
    rows: bool
    channels: int
    channels_last: bool

    def plan(self, size: int, ranks: int) -> HaloPlan:
        """Return the plan of `ranks` ranks in a line, with borders of `size` bytes."""
        length, deep = size // (4 * self.channels), 4 * ranks
        image, mesh = ((1, deep, length), Mesh(ranks, 1)) if self.rows else ((1, length, deep), Mesh(1, ranks))
        window = Window.of((3, 1), padding=(1, 0)) if self.rows else Window.of((1, 3), padding=(0, 1))
        image_partition = Partition.split_by_grid(image, mesh)
        return HaloPlan(image_partition, window, image_partition)


CONTIGUOUS = "contiguous"
REPEATED = f"{CONTIGUOUS}, repeated"
BORDERS = {
    CONTIGUOUS: Border(title="rows, channels last: one piece", rows=True, channels=16, channels_last=True),
    "strided": Border(title="columns, channels last: pieces of 256 bytes", rows=False, channels=64, channels_last=True),
    "scattered": Border(title="columns, default layout: 4 bytes each", rows=False, channels=16, channels_last=False),
}


def run(say: Callable[[str], None]) -> dict[str, Any]:
    with limit_to_two_cores():
        results = {f"{name}, in turns": _measure_borders(say, name, 2, ALL_VARIANTS) for name in BORDERS}
        results[REPEATED] = _measure_borders(say, CONTIGUOUS, 2, ALL_VARIANTS, repeats=REPEATS)
        crowded = _measure_borders(say, CONTIGUOUS, 4, ("shared", "mpi"), repeats=REPEATS)
        torchrun = {
            ranks: _measure_borders(say, CONTIGUOUS, ranks, TORCHRUN_VARIANTS, repeats=REPEATS, spawn="torchrun")
            for ranks in (2, 4)
        }
    verdicts = [*_judge_targets(results[REPEATED], crowded), *_judge_torchrun(torchrun)]
    lines = [*_format_lines(results, crowded), *_format_torchrun(torchrun), *_format_verdicts(verdicts)]
    return {
        "2 ranks": results,
        "4 ranks on 2 cores": crowded,
        "torchrun": torchrun,
        "targets": verdicts,
        "lines": lines,
    }


def _measure_borders(
    say: Callable[[str], None],
    border: str,
    ranks: int,
    names: Sequence[str],
    *,
    repeats: int = 1,
    spawn: SpawnMethod = "mpiexec",
) -> dict[str, dict[str, Any]]:
    """Return for each size the seconds of every variant, and the ratio of each variant to the copy."""
    results = {}
    with Workers(LaunchConfig(spawn=spawn, workers=ranks, env={"GLOO_SOCKET_IFNAME": "lo"})) as workers:
        for title in BORDER_BYTES if spawn == "mpiexec" else TORCHRUN_SIZES:
            size = BORDER_BYTES[title]
            say(f"exchange, {ranks} ranks of {spawn}, {border}, {title}")
            by_rank = workers.run("halo.exchange:measure_variants", border, size, names, repeats, time_limit=120.0)
            values = {name: join_ranks([rank_values[name] for rank_values in by_rank]) for name in names}
            results[title] = {name: _summarize_variant(name, values) for name in names}
    return results


def _summarize_variant(name: str, values: dict[str, tuple[float, ...]]) -> dict[str, float]:
    """Return median and spread in seconds and, if a copy was measured, the ratio to the copy and its interval."""
    statistics = summarize(values[name])
    summary = {"median": statistics.median, "p25": statistics.p25, "p75": statistics.p75, "samples": statistics.count}
    base = "written, copy_" if name.startswith("written") else "copy_"
    if base in values:
        ratio = estimate_paired_ratio(values[name], values[base])
        summary |= {"of copy_": ratio.value, "low": ratio.low, "high": ratio.high}
    return summary


def measure_variants(
    worker: Worker, border: str, size: int, names: Sequence[str], repeats: int
) -> dict[str, tuple[float, ...]]:
    """Worker function: return the seconds of each variant; variants are interleaved, in the same order on all ranks."""
    functions = _make_functions(worker, BORDERS[border], size, names)
    order = random.Random(worker.sync.agree(random.randrange(1 << 30)))
    with disable_garbage_collection():
        series = {name: SampleSeries(functions[name], MACHINE_CLOCK) for name in names}
        for sample_series in series.values():
            sample_series.take_sample()
            sample_series.discard_warmup()
            sample_series.calibrate_loops(worker.sync, LONG_CALL_NS)
        deadline = MACHINE_CLOCK.wall() + round(SECONDS_PER_SIZE * 1e9)
        while worker.sync.agree(MACHINE_CLOCK.wall() < deadline):
            for name in order.sample(list(series), len(series)):
                for _ in range(repeats):
                    if name == "gloo":  # directly after a barrier of MPI, which spins, gloo is four times slower
                        dist.barrier()
                        series[name].take_sample()
                        dist.barrier()
                    else:
                        _open_transport(SHARED_TRANSPORTS[worker.spawn], worker).barrier()
                        series[name].take_sample()
    discarded = min(DISCARDED_REPEATS, repeats - 1)
    return {
        name: tuple(
            ns / sample_series.loops / 1e9
            for number, ns in enumerate(sample_series.wall)
            if number % repeats >= discarded
        )
        for name, sample_series in series.items()
    }


def _make_functions(worker: Worker, border: Border, size: int, names: Sequence[str]) -> dict[str, Fn]:
    plan = border.plan(size, worker.size)
    shared_name = SHARED_TRANSPORTS[worker.spawn]
    shared = _make_exchange(_open_transport(shared_name, worker), border, plan)
    copies, writes = _make_local_copies(shared, border)
    fresh = [torch.full_like(view, worker.rank + 1) for view in _get_sent_views(shared)]
    sent = list(zip(_get_sent_views(shared), fresh, strict=True))
    functions: dict[str, Fn] = {
        "copy_": lambda: _copy_pairs(copies),
        shared_name: lambda: _run_exchange(shared),
        "written, copy_": lambda: (_copy_pairs(writes), _copy_pairs(copies)),
        "written, shared": lambda: (shared.wait_until_sent(), _copy_pairs(sent), shared.start(), shared.finish()),
    }
    if "mpi" in names:
        mpi = _make_exchange(_open_transport("mpi", worker), border, plan)
        functions["mpi"] = lambda: _run_exchange(mpi)
    if "gloo" in names:
        functions["gloo"] = _make_gloo(worker, size)
    return functions


@cache
def _open_transport(name: str, worker: Worker) -> Transport:
    return open_transport(name, worker)


def _make_exchange(transport: Transport, border: Border, plan: HaloPlan) -> Exchange:
    """Build an exchange, and check that the right borders arrive."""
    exchange = Exchange(transport, plan, channels=border.channels, channels_last=border.channels_last)
    exchange.tile_buffer.fill_(transport.rank + 1)
    _run_exchange(exchange)
    for move in exchange.worker_plan.receives:
        if not bool((exchange.frame[index_box(exchange.worker_plan.frame, move.target_box)] == move.source + 1).all()):
            raise BenchmarkFailed(f"{move!r} did not arrive over {transport.name}")
    return exchange


def _run_exchange(exchange: Exchange) -> None:
    exchange.wait_until_sent()
    exchange.start()
    exchange.finish()


def _get_sent_views(exchange: Exchange) -> list[torch.Tensor]:
    return [
        exchange.tile_buffer[index_box(exchange.worker_plan.owned, move.source_box)]
        for move in exchange.worker_plan.sends
    ]


CopyPairs = list[tuple[torch.Tensor, torch.Tensor]]


def _make_local_copies(exchange: Exchange, border: Border) -> tuple[CopyPairs, CopyPairs]:
    """Return local copies of as many bytes as the rank receives, and the copies that write the sources."""
    layout, mine = MemoryLayout(border.channels, border.channels_last), exchange.worker_plan
    frame, tile = (layout.view_box(torch.zeros(layout.count_values(box)), box) for box in (mine.frame, mine.owned))
    copies, writes = [], []
    for into, out in zip(mine.receives, mine.sends, strict=True):
        target, source = frame[index_box(mine.frame, into.target_box)], tile[index_box(mine.owned, out.source_box)]
        copies.append(join_dims(layout.to_memory_order(target), layout.to_memory_order(source)))
        writes.append((source, torch.full_like(source, 1.0)))
    return copies, writes


def _copy_pairs(pairs: CopyPairs) -> None:
    for target, source in pairs:
        target.copy_(source)


@contextmanager
def _use_all_cores() -> Iterator[None]:
    """Context manager: run on all cores of the job, so that gloo's threads do not share the core of the rank."""
    pinned = os.sched_getaffinity(0)
    os.sched_setaffinity(0, os.sched_getaffinity(os.getppid()))
    try:
        yield
    finally:
        os.sched_setaffinity(0, pinned)


def _make_gloo(worker: Worker, size: int) -> Fn:
    """Return a callable that exchanges plain messages with both neighbours, over a gloo group of the same ranks."""
    if not dist.is_initialized():
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = worker.sync.agree(free.getsockname()[1])
        with _use_all_cores():
            dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=worker.rank, world_size=worker.size)
    peers = [peer for peer in (worker.rank - 1, worker.rank + 1) if 0 <= peer < worker.size]
    received, sent = ([torch.zeros(size, dtype=torch.uint8) for _ in peers] for _ in range(2))

    def exchange_messages() -> None:
        requests = [dist.irecv(into, peer) for into, peer in zip(received, peers, strict=True)]
        requests += [dist.isend(out, peer) for out, peer in zip(sent, peers, strict=True)]
        for work in requests:
            work.wait()

    return exchange_messages


def _judge_targets(results: dict[str, dict[str, Any]], crowded: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Compare the measured values of contiguous borders with their targets."""

    def get_median(title: str, name: str) -> float:
        return float(results[title][name]["median"])

    shared, copy = (
        {title: get_median(title, "shared") for title in BORDER_BYTES},
        {title: get_median(title, "copy_") for title in BORDER_BYTES},
    )
    limits = [
        ("1 KB under 8 us", shared["1 KB"] * US_PER_SECOND, 8.0),
        (
            "256 KB at most 1.5x copy_ + 4 us",
            shared["256 KB"] * US_PER_SECOND,
            1.5 * copy["256 KB"] * US_PER_SECOND + 4.0,
        ),
        ("4 MB at most 1.1x copy_", shared["4 MB"] / copy["4 MB"], 1.1),
        ("256 KB at most 1/15 of gloo", shared["256 KB"] / get_median("256 KB", "gloo"), 1 / 15),
    ]
    limits += [
        (f"4 ranks on 2 cores, {title}, under 10x of 2 ranks", crowded[title]["shared"]["median"] / shared[title], 10.0)
        for title in BORDER_BYTES
    ]
    return [
        {"target": target, "reached": value, "limit": limit, "met": value <= limit} for target, value, limit in limits
    ]


def _format_lines(results: dict[str, dict[str, dict[str, Any]]], crowded: dict[str, dict[str, Any]]) -> list[str]:
    lines = []
    for border, sizes in results.items():
        border_title = BORDERS[border.split(",")[0]].title
        lines.append(f"{border}: {border_title}; microseconds (median), and how many times copy_ (95 %)")
        for title, summaries in sizes.items():
            cells = [
                f"{name} {summaries[name]['median'] * US_PER_SECOND:.1f}" for name in ("copy_", "shared", "mpi", "gloo")
            ]
            lines.append(f"  {title:7} {', '.join(cells)}; {_format_ratio(summaries['shared'])}")
            written = summaries["written, shared"]
            median = written["median"] * US_PER_SECOND
            lines.append(f"  {'':7} freshly written: shared {median:.1f}; {_format_ratio(written)}")
    lines.append(f"4 ranks on 2 cores, {REPEATED}; microseconds (median)")
    for title, summaries in crowded.items():
        lines.append(
            f"  {title:7} "
            + ", ".join(f"{name} {summary['median'] * US_PER_SECOND:.1f}" for name, summary in summaries.items())
        )
    return lines


def _judge_torchrun(results: dict[int, dict[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Compare the shared memory of torchrun's ranks with its targets."""
    times = {
        (ranks, title, name): summary["median"] * US_PER_SECOND
        for ranks, sizes in results.items()
        for title, summaries in sizes.items()
        for name, summary in summaries.items()
    }
    limits = [
        ("torchrun, 1 KB under 10 us", times[2, "1 KB", "shm"], 10.0),
        (
            "torchrun, 256 KB at most 1.5x copy_ + 6 us",
            times[2, "256 KB", "shm"],
            1.5 * times[2, "256 KB", "copy_"] + 6.0,
        ),
    ]
    for title in TORCHRUN_SIZES:
        crowded = times[4, title, "shm"]
        limits.append((f"torchrun, 4 ranks, {title}, under 12x of 2 ranks", crowded / times[2, title, "shm"], 12.0))
        limits.append((f"torchrun, 4 ranks, {title}, at most gloo", crowded / times[4, title, "gloo"], 1.0))
    return [
        {"target": target, "reached": value, "limit": limit, "met": value <= limit} for target, value, limit in limits
    ]


def _format_torchrun(results: dict[int, dict[str, dict[str, Any]]]) -> list[str]:
    lines = ["ranks of torchrun on 2 cores, repeated; microseconds (median)"]
    for ranks, sizes in results.items():
        for title, summaries in sizes.items():
            cells = [f"{name} {summaries[name]['median'] * US_PER_SECOND:.1f}" for name in TORCHRUN_VARIANTS]
            lines.append(f"  {ranks} ranks, {title:7} {', '.join(cells)}; {_format_ratio(summaries['shm'])}")
    return lines


def _format_verdicts(verdicts: list[dict[str, Any]]) -> list[str]:
    lines = ["targets"]
    for verdict in verdicts:
        met = "met" if verdict["met"] else "NOT met"
        lines.append(f"  {verdict['target']:48} {verdict['reached']:.3g} (limit {verdict['limit']:.3g}): {met}")
    return lines


def _format_ratio(summary: dict[str, float]) -> str:
    return f"{summary['of copy_']:.2f}x ({summary['low']:.2f} to {summary['high']:.2f})"

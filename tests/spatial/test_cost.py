"""Tests of predicted exchanges: traffic of a grid, and the time of the busiest worker."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tessera.errors import TesseraError
from tessera.geometry import HaloPlan, Mesh, Partition, Window
from tessera.machine.machine import Link, Machine
from tessera.spatial.cost import (
    Traffic,
    list_links,
    predict_all_reduce,
    predict_convolution,
    predict_exchange,
    predict_exchange_traffic,
)

LATENCY, BANDWIDTH = 3e-6, 5e9
FAR_LATENCY, FAR_BANDWIDTH = 50e-6, 1e9


def make_machine(workers: int = 64, *, network: bool = True, flops: float = 1e9) -> Machine:
    links = {"link": Link(bandwidth=(BANDWIDTH,), latency=LATENCY), "global": Link(bandwidth=(1e15,))}
    if network:
        links["network"] = Link(bandwidth=(FAR_BANDWIDTH,), latency=FAR_LATENCY)
    return Machine(
        name="made-up",
        title="A machine",
        worker="core",
        workers=Mesh(1, workers),
        local_memory=1 << 30,
        global_memory=1 << 36,
        flops={"float32": (flops,)},
        links=links,
    )


@st.composite
def splits(draw: st.DrawFn) -> tuple[tuple[int, int, int], Window, Mesh]:
    sizes = draw(st.integers(1, 3)), draw(st.integers(1, 24)), draw(st.integers(1, 24))
    window = Window.of(
        (draw(st.integers(1, 7)), draw(st.integers(1, 7))),
        stride=(draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        dilation=(draw(st.integers(1, 2)), draw(st.integers(1, 2))),
        padding=(
            (draw(st.integers(0, 4)), draw(st.integers(0, 4))),
            (draw(st.integers(0, 4)), draw(st.integers(0, 4))),
        ),
        transposed=draw(st.booleans()),
    )
    try:
        window.compute_output_size(sizes[1:])
    except ValueError:
        assume(False)
    return sizes, window, Mesh(draw(st.integers(1, 5)), draw(st.integers(1, 5)))


def make_halo_plan(sizes: tuple[int, int, int], window: Window, mesh: Mesh) -> HaloPlan:
    outputs = (sizes[0], *window.compute_output_size(sizes[1:]))
    return HaloPlan(Partition.split_by_grid(sizes, mesh), window, Partition.split_by_grid(outputs, mesh))


@settings(deadline=None)
@given(splits())
def test_traffic_is_that_of_the_plan(split: tuple[tuple[int, int, int], Window, Mesh]) -> None:
    plan = make_halo_plan(*split)
    for traffic in (Traffic.from_links(len(plan.workers), plan.count_link_bytes(1)), Traffic.of(plan)):
        links = zip(traffic.source.tolist(), traffic.target.tolist(), traffic.pixels.tolist(), strict=True)
        assert {(source, target): pixels for source, target, pixels in links} == plan.count_link_bytes(1)
    assert {(source, target): size for source, target, _, size in list_links(plan, 7)} == plan.count_link_bytes(7)


@settings(deadline=None)
@given(splits(), st.integers(1, 8), st.integers(1, 9))
def test_an_exchange_takes_as_long_as_its_busiest_worker(
    split: tuple[tuple[int, int, int], Window, Mesh], pixel: int, per_machine: int
) -> None:
    plan = make_halo_plan(*split)
    took: dict[tuple[int, bool], float] = defaultdict(float)
    port: dict[tuple[int, bool], float] = defaultdict(float)
    for (source, target), size in plan.count_link_bytes(pixel).items():
        near = source // per_machine == target // per_machine
        for end, receiving in ((source, False), (target, True)):
            took[end, receiving] += LATENCY + size / BANDWIDTH if near else FAR_LATENCY
            if not near:
                port[end // per_machine, receiving] += size / FAR_BANDWIDTH
    ends = itertools.product(range(len(plan.workers)), (False, True))
    expected = max(took[end, direction] + port[end // per_machine, direction] for end, direction in ends)
    assert predict_exchange(plan, pixel, make_machine(), per_machine=per_machine) == pytest.approx(expected)


def test_two_neighbours_exchange_concurrently() -> None:
    image = Partition.split_by_grid((1, 64, 64), Mesh(1, 2))
    plan = HaloPlan(image, Window.of(3, padding=1), image)
    assert predict_exchange(plan, 16, make_machine()) == pytest.approx(LATENCY + 64 * 16 / BANDWIDTH)
    assert predict_exchange(plan, 16, make_machine(1)) == pytest.approx(FAR_LATENCY + 64 * 16 / FAR_BANDWIDTH)


def test_an_exchange_without_traffic_takes_no_time() -> None:
    image = Partition.split_by_grid((1, 8, 8), Mesh(2, 2))
    bare = Machine(
        name="bare",
        title="",
        worker="core",
        workers=Mesh(1, 4),
        local_memory=1,
        global_memory=1,
        flops={"float32": (1.0,)},
    )
    assert predict_exchange(HaloPlan(image, Window.of(1), image), 4, bare) == 0
    with pytest.raises(TesseraError, match="bare has no bandwidth for this link: got 'link'"):
        predict_exchange(HaloPlan(image, Window.of(3, padding=1), image), 4, bare)


def test_ranks_on_several_machines_need_a_network() -> None:
    traffic = Traffic.of(make_halo_plan((1, 64, 64), Window.of(3, padding=1), Mesh(1, 4)))
    alone = make_machine(2, network=False)
    with pytest.raises(TesseraError, match="got 'network'"):
        predict_exchange_traffic(traffic, 4, alone)
    assert predict_exchange_traffic(traffic, 4, alone, per_machine=4) > 0


@pytest.mark.parametrize(("ranks", "workers"), [(1, 4), (4, 4), (8, 4), (64, 4), (7, 4)])
def test_an_all_reduce_runs_within_machines_and_then_between_them(ranks: int, workers: int) -> None:
    inside, machines, count = min(ranks, workers), math.ceil(ranks / workers), 1e6
    near = 2 * math.ceil(math.log2(inside)) * LATENCY + 2 * (inside - 1) / inside * count / BANDWIDTH
    far = 2 * math.ceil(math.log2(machines)) * FAR_LATENCY + 2 * (machines - 1) / machines * count / FAR_BANDWIDTH
    assert predict_all_reduce(count, ranks, make_machine(workers)) == pytest.approx(near + far)


def test_a_convolution_hides_as_much_as_its_interior_allows() -> None:
    image = Partition.split_by_grid((1, 64, 64), Mesh(1, 2))
    plan = HaloPlan(image, Window.of(3, padding=1), image)
    flops = 2 * 64 * 32 * 9 * 8 * 16
    slow = predict_convolution(plan, make_machine(flops=1e9), in_channels=8, out_channels=16)
    assert slow.compute == pytest.approx(flops / 1e9)
    assert slow.exchange == pytest.approx(LATENCY + 64 * 8 * 4 / BANDWIDTH)
    assert slow.hidden == pytest.approx(slow.exchange)
    assert slow.overlapped == pytest.approx(slow.compute)
    fast = predict_convolution(plan, make_machine(flops=1e15), in_channels=8, out_channels=16)
    assert fast.hidden == pytest.approx(fast.compute * 31 / 32)
    assert fast.overlapped == pytest.approx(fast.exchange + fast.compute / 32)


def test_unknown_dtype() -> None:
    image = Partition.split_by_grid((1, 8, 8), Mesh(1, 2))
    plan = HaloPlan(image, Window.of(3, padding=1), image)
    with pytest.raises(TesseraError, match="unknown dtype: got 'int3'"):
        predict_convolution(plan, make_machine(), in_channels=1, out_channels=1, dtype="int3")


OVERHEAD = 40e-6


def test_every_message_has_its_overhead() -> None:
    """The middle one of three workers has two messages each way, and an all-reduce has one call."""
    machine = replace(make_machine(), overheads={"message": OVERHEAD})
    plan = make_halo_plan((1, 30, 30), Window.of(3, padding=1), Mesh(1, 3))
    bare = predict_exchange(plan, 4, make_machine())
    assert predict_exchange(plan, 4, machine) == pytest.approx(bare + 2 * OVERHEAD)
    assert predict_exchange_traffic(Traffic.of(plan), 4, machine, overhead=0) == pytest.approx(bare)
    assert predict_all_reduce(64, 4, machine) == pytest.approx(predict_all_reduce(64, 4, make_machine()) + OVERHEAD)
    assert predict_all_reduce(64, 1, machine) == 0

"""Tests of the cost model: roofline, transfer time, and a link fitted to measured transfers."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine import (
    Link,
    Machine,
    compute_balance,
    compute_roofline_fraction,
    compute_time,
    fit_link,
    load_machine,
    transfer_time,
)

HOST_MACHINE = Machine(
    name="h",
    title="",
    worker="core",
    workers=Mesh(1, 2),
    local_memory=1,
    global_memory=1,
    flops={"float32": (80e9, 160e9)},
    links={"global": Link(bandwidth=(10e9, 15e9)), "local": Link(bandwidth=(100e9,))},
)
amounts = st.floats(0, 1e15)


def test_the_predicted_time_is_the_longer_of_compute_and_traffic() -> None:
    assert compute_time(HOST_MACHINE, 80e9, 1e9, "float32") == 1.0
    assert compute_time(HOST_MACHINE, 8e9, 20e9, "float32") == 2.0
    assert compute_time(HOST_MACHINE, 8e9, 20e9, "float32", memory="local") == pytest.approx(0.2)
    assert compute_time(HOST_MACHINE, 160e9, 0, "float32", workers=2) == 1.0
    assert compute_time(HOST_MACHINE, 160e9, 0, "float32", threads=2) == 1.0
    assert compute_time(HOST_MACHINE, 0, 15e9, "float32", workers=2, threads=2) == 1.0


@given(amounts, amounts)
def test_compute_and_traffic_are_equal_at_the_balance(flops: float, bytes_moved: float) -> None:
    point = compute_balance(HOST_MACHINE, "float32")
    assert compute_time(HOST_MACHINE, point * bytes_moved, bytes_moved, "float32") == pytest.approx(bytes_moved / 10e9)
    seconds = compute_time(HOST_MACHINE, flops, bytes_moved, "float32")
    assert seconds == (flops / 80e9 if flops >= point * bytes_moved else bytes_moved / 10e9)


def test_roofline_fraction() -> None:
    assert compute_roofline_fraction(HOST_MACHINE, 2.0, 80e9, 0, "float32") == 0.5
    assert (
        compute_roofline_fraction(HOST_MACHINE, 0.5, 1, 10e9, "float32") == 2.0
    )  # faster than memory, because of caches
    with pytest.raises(TesseraError, match="positive"):
        compute_roofline_fraction(HOST_MACHINE, 0.0, 1, 1, "float32")


def test_a_machine_without_shared_memory_is_bound_by_compute() -> None:
    ipu = load_machine("ipu-m2000")
    assert compute_time(ipu, 250e12, 0, "float16") == 1.0
    with pytest.raises(TesseraError, match=r"no bandwidth for this link.*local, link"):
        compute_time(ipu, 1, 1, "float16")


def test_a_fidelity_overrides_the_rate_of_the_dtype() -> None:
    n150 = load_machine("wormhole-n150")
    slow = compute_time(n150, 1e12, 0, "bfloat16", workers=64)
    assert slow / compute_time(n150, 1e12, 0, "bfloat16", workers=64, fidelity="LoFi") == 4


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_negative_work_is_refused(bad: float) -> None:
    with pytest.raises(TesseraError, match="FLOPs"):
        compute_time(HOST_MACHINE, bad, 1, "float32")
    with pytest.raises(TesseraError, match="bytes"):
        transfer_time(bad, Link(bandwidth=(1.0,)))


def test_every_message_of_a_sequence_has_the_latency() -> None:
    link = Link(bandwidth=(2e9,), latency=1e-6)
    assert transfer_time(4e3, link, messages=5) == pytest.approx(5e-6 + 2e-6)


@given(st.floats(0, 1e-2), st.floats(1e6, 1e13), st.sets(st.integers(0, 2**33), min_size=2, max_size=8))
def test_a_fit_recovers_the_link(latency: float, bandwidth: float, sizes: set[int]) -> None:
    transfers = [{"bytes": s, "seconds": latency + s / bandwidth + 1e-12} for s in sizes]
    link = fit_link(transfers)
    # Compare predicted times, because transfers of similar sizes do not determine latency and bandwidth separately.
    for t in transfers:
        assert transfer_time(t["bytes"], link) == pytest.approx(t["seconds"], rel=1e-3)


def test_a_fit_recovers_a_small_latency_from_noisy_large_transfers() -> None:
    noise = random.Random()
    sizes = [2**k for k in range(4, 27)]
    transfers = [{"bytes": s, "seconds": (2e-6 + s / 10e9) * noise.uniform(1, 1.1)} for s in sizes for _ in range(5)]
    link = fit_link(transfers)
    assert link.latency == pytest.approx(2.1e-6, rel=0.1)
    assert link.get_bandwidth(1) == pytest.approx(9.5e9, rel=0.1)


def test_a_fit_never_gives_a_negative_latency() -> None:
    link = fit_link([{"bytes": 100, "seconds": 1.0}, {"bytes": 200, "seconds": 3.0}])
    assert link.latency == 0
    assert 0 < link.get_bandwidth(1) < 200


@pytest.mark.parametrize(
    ("transfers", "word"),
    [
        ([], "two sizes"),
        ([{"bytes": 1, "seconds": 1}, {"bytes": 1, "seconds": 2}], "two sizes"),
        ([{"bytes": 1, "seconds": 2}, {"bytes": 2, "seconds": 1}], "took no longer"),
        ([{"bytes": 1, "seconds": 0}, {"bytes": 2, "seconds": 1}], "positive time"),
    ],
)
def test_transfers_that_do_not_fit_a_link_are_refused(transfers: list[dict[str, float]], word: str) -> None:
    with pytest.raises(TesseraError, match=word):
        fit_link(transfers)

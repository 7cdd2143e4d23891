"""The cost model: a roofline, a transfer, and a link fitted to transfers."""

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
    balance,
    compute_time,
    fit_link,
    load_machine,
    roofline_fraction,
    transfer_time,
)

HOST = Machine(
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


def test_the_longer_of_arithmetic_and_traffic_decides() -> None:
    assert compute_time(HOST, 80e9, 1e9, "float32") == 1.0
    assert compute_time(HOST, 8e9, 20e9, "float32") == 2.0
    assert compute_time(HOST, 8e9, 20e9, "float32", memory="local") == pytest.approx(0.2)
    assert compute_time(HOST, 160e9, 0, "float32", workers=2) == 1.0
    assert compute_time(HOST, 160e9, 0, "float32", threads=2) == 1.0
    assert compute_time(HOST, 0, 15e9, "float32", workers=2, threads=2) == 1.0


@given(amounts, amounts)
def test_at_the_balance_both_roofs_meet(flops: float, bytes_moved: float) -> None:
    point = balance(HOST, "float32")
    assert compute_time(HOST, point * bytes_moved, bytes_moved, "float32") == pytest.approx(bytes_moved / 10e9)
    seconds = compute_time(HOST, flops, bytes_moved, "float32")
    assert seconds == (flops / 80e9 if flops >= point * bytes_moved else bytes_moved / 10e9)


def test_the_fraction_of_the_roofline() -> None:
    assert roofline_fraction(HOST, 2.0, 80e9, 0, "float32") == 0.5
    assert roofline_fraction(HOST, 0.5, 1, 10e9, "float32") == 2.0  # faster than memory: it was cached
    with pytest.raises(TesseraError, match="positive"):
        roofline_fraction(HOST, 0.0, 1, 1, "float32")


def test_a_machine_without_a_shared_memory_still_computes() -> None:
    ipu = load_machine("ipu-m2000")
    assert compute_time(ipu, 250e12, 0, "float16") == 1.0
    with pytest.raises(TesseraError, match=r"no figure for this link.*local, link"):
        compute_time(ipu, 1, 1, "float16")


def test_a_fidelity_overrides_the_rate_of_the_dtype() -> None:
    n150 = load_machine("wormhole-n150")
    slow = compute_time(n150, 1e12, 0, "bfloat16", workers=64)
    assert slow / compute_time(n150, 1e12, 0, "bfloat16", workers=64, fidelity="LoFi") == 4


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_negative_work_is_refused(bad: float) -> None:
    with pytest.raises(TesseraError, match="FLOPs"):
        compute_time(HOST, bad, 1, "float32")
    with pytest.raises(TesseraError, match="bytes"):
        transfer_time(bad, Link(bandwidth=(1.0,)))


def test_messages_one_after_the_other_each_pay_the_latency() -> None:
    link = Link(bandwidth=(2e9,), latency=1e-6)
    assert transfer_time(4e3, link, messages=5) == pytest.approx(5e-6 + 2e-6)


@given(st.floats(0, 1e-2), st.floats(1e6, 1e13), st.sets(st.integers(0, 2**33), min_size=2, max_size=8))
def test_a_fit_finds_the_link_that_made_the_transfers(latency: float, bandwidth: float, sizes: set[int]) -> None:
    transfers = [{"bytes": s, "seconds": latency + s / bandwidth + 1e-12} for s in sizes]
    link = fit_link(transfers)
    # What matters is that the fitted link predicts: close sizes do not determine its two figures apart.
    for t in transfers:
        assert transfer_time(t["bytes"], link) == pytest.approx(t["seconds"], rel=1e-3)


def test_a_fit_stands_noise_and_finds_a_small_latency_beside_large_transfers() -> None:
    noise = random.Random()
    sizes = [2**k for k in range(4, 27)]
    transfers = [{"bytes": s, "seconds": (2e-6 + s / 10e9) * noise.uniform(1, 1.1)} for s in sizes for _ in range(5)]
    link = fit_link(transfers)
    assert link.latency == pytest.approx(2.1e-6, rel=0.1)
    assert link.at(1) == pytest.approx(9.5e9, rel=0.1)


def test_a_fit_never_gives_a_negative_latency() -> None:
    link = fit_link([{"bytes": 100, "seconds": 1.0}, {"bytes": 200, "seconds": 3.0}])
    assert link.latency == 0
    assert 0 < link.at(1) < 200


@pytest.mark.parametrize(
    ("transfers", "word"),
    [
        ([], "two sizes"),
        ([{"bytes": 1, "seconds": 1}, {"bytes": 1, "seconds": 2}], "two sizes"),
        ([{"bytes": 1, "seconds": 2}, {"bytes": 2, "seconds": 1}], "took no longer"),
        ([{"bytes": 1, "seconds": 0}, {"bytes": 2, "seconds": 1}], "positive time"),
    ],
)
def test_transfers_that_are_no_link_are_refused(transfers: list[dict[str, float]], word: str) -> None:
    with pytest.raises(TesseraError, match=word):
        fit_link(transfers)

"""FLOPs per byte: what balances a host, what bounds a case, and what would balance it."""

from __future__ import annotations

import random

import pytest

from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine import Link, Machine, save_host
from tessera.measure.environment import host_fingerprint
from tessera.phased.advise import (
    HEURISTIC,
    advice,
    advice_lines,
    balances,
    machine_balances,
    measured_balance,
    product_needed,
)
from tests.phased.records import ENVIRONMENT, record


def test_the_balance_is_the_rate_of_computing_over_that_of_loading():
    load, compute, moved, flops = (random.uniform(1, 9) for _ in range(4))
    found = measured_balance(record(load=load, compute=compute, moved=moved, flops=flops))
    assert found is not None
    assert found.flops == pytest.approx(flops / compute)
    assert found.stream == pytest.approx(moved / load)
    assert found.needed == pytest.approx(flops / compute * load / moved)


@pytest.mark.parametrize(
    ("load", "compute", "bound"),
    [(4.0, 1.0, "bound by I/O"), (1.0, 4.0, "bound by compute"), (1.0, 1.0, "balanced"), (1.1, 1.0, "balanced")],
)
def test_what_takes_longer_bounds_a_case(load, compute, bound):
    found = advice(record(load=load, compute=compute))
    assert found.bound == bound
    assert found.needed / found.has == pytest.approx(load / compute)


def test_what_is_advised_balances_if_the_rates_stay():
    seen = record(load=random.uniform(2, 9), compute=1.0, batch_size=8, dsize=64, batches_per_step=2)
    found = advice(seen)
    for name, value in found.instead.items():
        before = seen.case.params[name]
        # FLOPs per byte grow in proportion to each of them
        assert found.has * value / before >= found.needed * 0.999
        assert found.has * (value - 1) / before < found.needed
    assert set(found.instead) == {"batch_size", "batches_per_step", "dsize"}
    assert set(advice(record("resnet50", load=3.0, compute=1.0)).instead) == {"batch_size", "batches_per_step"}


def test_the_product_of_batch_and_size_is_reckoned_as_for_the_ipu():
    low, high = HEURISTIC
    assert (product_needed(low, "float16", 1), product_needed(high, "float16", 1)) == (3750, 7500)
    batch, size, batches = (random.randrange(1, 99) for _ in range(3))
    for dtype, width in (("float32", 4), ("bfloat16", 2), ("float64", 8)):
        per_byte = batches * 2 * batch * size**3 / (size**2 * width)
        assert product_needed(per_byte, dtype, batches) == pytest.approx(batch * size)


def test_the_ipu_is_shown_beside_this_host(tmp_path, monkeypatch):
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path))
    alone = machine_balances(record())
    assert [round(one.needed) for one in alone] == [6510]
    assert "3,750 to 7,500" in alone[0].source
    host = Machine(
        name="host",
        title="invented",
        worker="core",
        workers=Mesh(1, 2),
        local_memory=1 << 30,
        global_memory=1 << 31,
        flops={"float32": (8e10, 16e10)},
        links={"streaming": Link(bandwidth=(2e9,)), "streaming_warm": Link(bandwidth=(8e9,))},
    )
    save_host(host, host_fingerprint(ENVIRONMENT))
    assert [round(one.needed) for one in machine_balances(record())] == [40, 10, 6510]
    assert [round(one.needed) for one in machine_balances(record(threads=2))] == [80, 20, 6510]
    assert len(balances([record(), record(cold=True)])) == 2 + 3


def test_what_cannot_be_lowered_is_not_advised():
    assert set(advice(record(load=1.0, compute=9.0, batch_size=1, batches_per_step=1)).instead) == {"dsize"}
    smallest = record("resnet50", load=1.0, compute=9.0)
    assert advice(smallest).instead == {}
    said, unpredicted = advice_lines(smallest)
    assert said.startswith("bound by compute")
    assert "not calibrated" in unpredicted


def test_what_streams_nothing_cannot_be_balanced():
    assert measured_balance(record(schedule="resident")) is None
    with pytest.raises(TesseraError, match="nothing was streamed"):
        advice(record(schedule="sharded"))


def test_it_is_said_in_words():
    lines = advice_lines(record(load=4.0, compute=1.0, predicted=2.0))
    assert lines[0].startswith("bound by I/O: 100 FLOPs per byte loaded, 400 balance this host")
    assert lines[1].startswith("to balance: --batch-size 128 or --batches-per-step 400 or --dsize 1000, if")
    assert lines[2].startswith("b x D = 8,000, 100 mini-batches to a load; 4 balances them")
    assert lines[3].startswith("predicted 2.00 s an iteration, measured ")
    assert "--batch-size 4 or" in advice_lines(record(load=1.0, compute=9.0))[1]
    said, unpredicted = advice_lines(record("resnet50", load=1.0, compute=1.0))
    assert said.startswith("balanced: ")
    assert "not calibrated" in unpredicted

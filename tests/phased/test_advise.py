"""Tests of FLOPs per byte: the balance of a host, the bottleneck of a case, and the advice to balance the case."""

from __future__ import annotations

import random

import pytest

from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine import Link, Machine, save_host
from tessera.measure.environment import compute_host_fingerprint
from tessera.phased.advise import (
    IPU_VENDOR_FLOPS_PER_BYTE,
    build_advice,
    compute_balanced_product,
    format_advice,
    get_measured_balance,
    list_balances,
    list_machine_balances,
)
from tests.phased.synthetic_records import ENVIRONMENT, make_phases_record


def test_the_balance_is_the_compute_rate_divided_by_the_load_rate():
    load, compute, moved, flops = (random.uniform(1, 9) for _ in range(4))
    balance = get_measured_balance(make_phases_record(load=load, compute=compute, moved=moved, flops=flops))
    assert balance is not None
    assert balance.flops == pytest.approx(flops / compute)
    assert balance.bandwidth == pytest.approx(moved / load)
    assert balance.flops_per_byte == pytest.approx(flops / compute * load / moved)


@pytest.mark.parametrize(
    ("load", "compute", "bound"),
    [(4.0, 1.0, "bound by I/O"), (1.0, 4.0, "bound by compute"), (1.0, 1.0, "balanced"), (1.1, 1.0, "balanced")],
)
def test_a_case_is_bound_by_the_longer_of_load_and_compute(load, compute, bound):
    advice = build_advice(make_phases_record(load=load, compute=compute))
    assert advice.bound == bound
    assert advice.needed_flops_per_byte / advice.flops_per_byte == pytest.approx(load / compute)


def test_advised_values_balance_at_the_measured_rates():
    measured = make_phases_record(load=random.uniform(2, 9), compute=1.0, batch_size=8, dsize=64, batches_per_step=2)
    advice = build_advice(measured)
    for name, value in advice.alternatives.items():
        before = measured.case.params[name]
        # FLOPs per byte are proportional to each of these options
        assert advice.flops_per_byte * value / before >= advice.needed_flops_per_byte * 0.999
        assert advice.flops_per_byte * (value - 1) / before < advice.needed_flops_per_byte
    assert set(advice.alternatives) == {"batch_size", "batches_per_step", "dsize"}
    assert set(build_advice(make_phases_record("resnet50", load=3.0, compute=1.0)).alternatives) == {
        "batch_size",
        "batches_per_step",
    }


def test_the_balanced_product_of_batch_size_and_matrix_size():
    low, high = IPU_VENDOR_FLOPS_PER_BYTE
    assert (compute_balanced_product(low, "float16", 1), compute_balanced_product(high, "float16", 1)) == (3750, 7500)
    batch, size, batches = (random.randrange(1, 99) for _ in range(3))
    for dtype, width in (("float32", 4), ("bfloat16", 2), ("float64", 8)):
        per_byte = batches * 2 * batch * size**3 / (size**2 * width)
        assert compute_balanced_product(per_byte, dtype, batches) == pytest.approx(batch * size)


def test_the_balance_of_the_ipu_is_listed_with_this_host(tmp_path, monkeypatch):
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path))
    alone = list_machine_balances(make_phases_record())
    assert [round(balance.flops_per_byte) for balance in alone] == [6510]
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
    save_host(host, compute_host_fingerprint(ENVIRONMENT))
    assert [round(balance.flops_per_byte) for balance in list_machine_balances(make_phases_record())] == [40, 10, 6510]
    assert [round(balance.flops_per_byte) for balance in list_machine_balances(make_phases_record(threads=2))] == [
        80,
        20,
        6510,
    ]
    assert len(list_balances([make_phases_record(), make_phases_record(cold=True)])) == 2 + 3


def test_values_that_cannot_be_lowered_are_not_advised():
    assert set(
        build_advice(make_phases_record(load=1.0, compute=9.0, batch_size=1, batches_per_step=1)).alternatives
    ) == {"dsize"}
    smallest = make_phases_record("resnet50", load=1.0, compute=9.0)
    assert build_advice(smallest).alternatives == {}
    advice, remedy, unpredicted = format_advice(smallest)
    assert advice.startswith("bound by compute")
    assert remedy == "loading is hidden: a smaller --weight-budget costs no time"
    assert "not calibrated" in unpredicted


def test_schedules_without_a_stream_have_no_balance():
    assert get_measured_balance(make_phases_record(schedule="resident")) is None
    with pytest.raises(TesseraError, match="advice requires a case that streams weights"):
        build_advice(make_phases_record(schedule="sharded"))


def test_advice_is_formatted_as_text():
    lines = format_advice(make_phases_record(load=4.0, compute=1.0, predicted=2.0))
    assert lines[0].startswith("bound by I/O: 100 FLOPs per byte loaded, 400 would balance this host")
    assert lines[1].startswith("to balance: --batch-size 128 or --batches-per-step 400 or --dsize 1000, if")
    assert lines[2].startswith("batch size x matrix size: 8,000 with 100 mini-batches per load, balanced at 4")
    assert lines[3].startswith("predicted 2.00 s per iteration, measured ")
    assert "loading is hidden" in format_advice(make_phases_record(load=1.0, compute=9.0))[1]
    advice, unpredicted = format_advice(make_phases_record("resnet50", load=1.0, compute=1.0))
    assert advice.startswith("balanced: ")
    assert "not calibrated" in unpredicted

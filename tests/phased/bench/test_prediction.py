"""What a machine is expected to take for a pass, by its schedule."""

from __future__ import annotations

import random

import pytest

from tessera.geometry import Mesh
from tessera.machine import Link, Machine
from tessera.phased.bench.prediction import Work, expected

MACHINE = Machine(
    name="host",
    title="invented",
    worker="core",
    workers=Mesh(1, 2),
    local_memory=1 << 30,
    global_memory=1 << 31,
    flops={"float32": (1e9, 2e9)},
    links={
        "streaming": Link(bandwidth=(1e6,)),
        "streaming_warm": Link(bandwidth=(4e6,)),
        "copy": Link(bandwidth=(1e9,)),
    },
)


def test_a_pass_is_predicted_by_its_schedule():
    work = [Work(bytes=random.uniform(1e3, 1e6), flops=random.uniform(1e6, 1e9), read=0.0) for _ in range(5)]
    loads, computes = [one.bytes / 1e6 for one in work], [one.flops / 1e9 for one in work]

    def time(schedule: str, **options) -> float:
        found = expected(MACHINE, work, schedule=schedule, dtype="float32", link="streaming", **options)
        assert found is not None
        return found.time

    assert time("sequential") == pytest.approx(sum(loads) + sum(computes))
    for schedule in ("phased", "overlapped"):
        assert time(schedule, devices=2) == pytest.approx(sum(map(max, loads, computes)))
    assert time("resident") == time("sharded", devices=2) == pytest.approx(sum(computes))
    halves = [compute / 2 for compute in computes]
    assert time("data-parallel", devices=2) == pytest.approx(sum(map(max, loads, halves)))
    assert time("sharded", devices=2, batches=4) == pytest.approx(
        sum(halves)
    )  # both compute, on different mini-batches
    mapped = expected(MACHINE, work, schedule="phased", dtype="float32", link=None, devices=2)
    assert mapped is not None
    assert (mapped.load, mapped.time) == (0, pytest.approx(sum(computes)))
    assert expected(MACHINE, work, schedule="phased", dtype="float64", link="streaming") is None
    assert expected(MACHINE, work, schedule="phased", dtype="float32", link="network") is None

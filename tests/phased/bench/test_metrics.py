"""Tests of predicted times for each schedule, and of detecting the file system of a path."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tessera.geometry import Mesh
from tessera.machine import Link, Machine
from tessera.phased.bench.metrics import PhaseWork, get_file_system, predict_times
from tessera.phased.choices import SCHEDULES

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
    work = [PhaseWork(bytes=random.uniform(1e3, 1e6), flops=random.uniform(1e6, 1e9), read=0.0) for _ in range(5)]
    loads, computes = [phase.bytes / 1e6 for phase in work], [phase.flops / 1e9 for phase in work]

    def time(schedule: str, **options) -> float:
        times = predict_times(MACHINE, work, schedule=SCHEDULES[schedule], dtype="float32", link="streaming", **options)
        assert times is not None
        return times.time

    assert time("sequential") == pytest.approx(sum(loads) + sum(computes))
    for schedule in ("phased", "overlapped"):
        assert time(schedule, devices=2) == pytest.approx(sum(map(max, loads, computes)))
    assert time("resident") == time("sharded", devices=2) == pytest.approx(sum(computes))
    halves = [compute / 2 for compute in computes]
    assert time("data-parallel", devices=2) == pytest.approx(sum(map(max, loads, halves)))
    assert time("sharded", devices=2, batches=4) == pytest.approx(
        sum(halves)
    )  # both devices compute at the same time, on different mini-batches
    mapped = predict_times(MACHINE, work, schedule=SCHEDULES["phased"], dtype="float32", link=None, devices=2)
    assert mapped is not None
    assert (mapped.load, mapped.time) == (0, pytest.approx(sum(computes)))
    assert predict_times(MACHINE, work, schedule=SCHEDULES["phased"], dtype="float64", link="streaming") is None
    assert predict_times(MACHINE, work, schedule=SCHEDULES["phased"], dtype="float32", link="network") is None


def test_the_file_system_of_a_path_is_found(tmp_path: Path):
    mounts = tmp_path / "mounts"
    space = tmp_path / "a place"
    space.mkdir()
    mounts.write_text(
        f"/dev/vda / ext4 rw 0 0\ntmpfs {tmp_path} tmpfs rw 0 0\n"
        f"/dev/vdb {str(space).replace(' ', chr(92) + '040')} xfs rw 0 0\n"
    )
    assert get_file_system(tmp_path / "file", mounts) == "tmpfs"
    assert get_file_system(space / "file", mounts) == "xfs"
    assert get_file_system(Path("/"), mounts) == "ext4"
    assert get_file_system(Path("/"), tmp_path / "none") == ""

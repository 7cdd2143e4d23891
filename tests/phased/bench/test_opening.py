"""What a model is opened with is what the case says, and how the worker was launched."""

from __future__ import annotations

import os

import pytest

from tessera.launch import Worker
from tessera.measure.allocator import current_allocator
from tessera.measure.sync import ALONE
from tessera.phased.bench.opening import open_model
from tessera.phased.bench.workload import Workload
from tessera.phased.cases import cases


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("workers", "cpus"), [("threads", ()), ("threads", (0,)), ("processes", ())])
def test_devices_are_pinned_and_allocate_as_their_worker(workers, cpus):
    (case,) = cases(["tests.phased.bench.own:Looks"], image_size=[4], schedule=["phased"], workers=[workers])
    worker = Worker(rank=0, size=1, spawn="processes", cpus=cpus, threads=2, sync=ALONE)
    workload = Workload.of(case)
    with workload.file() as path, open_model(worker, case, workload, path) as model:
        cores, steady = model.run(workload.inputs())[0].tolist()
    assert cores == (1 if cpus else len(os.sched_getaffinity(0)))
    assert bool(steady) == (current_allocator() == "steady")

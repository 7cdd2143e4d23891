"""Tests of opening the model of a case: the options of the case and of the worker are applied."""

from __future__ import annotations

import os

import pytest

from tessera.launch import Worker
from tessera.measure.sync import SINGLE_RANK
from tessera.phased.bench.workload import Workload, open_model
from tessera.phased.cases import cases


@pytest.mark.timeout(60)
@pytest.mark.parametrize("cpus", [(), (0,)])
def test_devices_are_pinned_if_their_worker_is(cpus):
    (case,) = cases(["tests.phased.bench.custom_models:Looks"], image_size=[4], schedule=["phased"])
    worker = Worker(rank=0, size=1, spawn="processes", cpus=cpus, threads=2, sync=SINGLE_RANK)
    workload = Workload.from_case(case)
    with workload.open_weights_file() as path, open_model(worker, case, workload, path) as model:
        (cores,) = model.run(workload.build_inputs())[0].tolist()
    assert cores == (1 if cpus else len(os.sched_getaffinity(0)))

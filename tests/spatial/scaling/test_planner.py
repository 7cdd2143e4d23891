"""Tests of the planner: the splits that it considers, its choice, its reasons, and its text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessera.errors import TesseraError
from tessera.machine.machine import Link, Machine
from tessera.spatial.scaling.overheads import compute_message_overhead, measure_operation_overheads
from tessera.spatial.scaling.plan_table import describe_plan, dump_plan, list_plan_lines
from tessera.spatial.scaling.planner import SplitPlan, describe_split, plan_splits
from tessera.spatial.scaling.prediction import ScalingPoint, SplitStep, StepMemory, StepTimes
from tests.spatial.test_cost import make_machine

STEP = SplitStep(model="resnet18", batch=4)


def list_splits(plan: SplitPlan) -> set[str]:
    return {describe_split(split) for split in plan.splits}


def make_point(replicas: int, mesh: tuple[int, ...], times: StepTimes, memory: StepMemory) -> ScalingPoint:
    return ScalingPoint(
        mesh=mesh,
        image=(64, 64),
        tile=(32, 32),
        replicas=replicas,
        batch=4,
        times=times,
        bytes=memory,
        available_memory=1 << 30,
    )


def make_plan(*splits: ScalingPoint, machine: Machine | None = None) -> SplitPlan:
    return SplitPlan(step=STEP, image=(64, 64), workers=4, machine=machine or make_machine(), splits=splits)


REPLICAS = make_point(
    4, (1, 1), StepTimes(compute=2.0, gradients=0.5), StepMemory(weights=100 << 20, activations=400 << 20)
)
TILES = make_point(
    1, (2, 2), StepTimes(compute=2.0, launches=1.5, exchange=0.2), StepMemory(weights=100 << 20, activations=300 << 20)
)


def test_all_ways_to_divide_the_workers_are_predicted() -> None:
    plan = plan_splits(STEP, (64, 64), 4, make_machine())
    expected = {"4 replicas", "2 replicas x 1x2 tiles", "2 replicas x 2x1 tiles", "2x2 tiles", "1x4 tiles", "4x1 tiles"}
    assert list_splits(plan) == expected
    assert [split.seconds for split in plan.splits] == sorted(split.seconds for split in plan.splits)
    assert plan.fastest is plan.splits[0]
    assert plan.smallest.memory == min(split.memory for split in plan.splits)
    assert list_splits(plan_splits(replace(STEP, batch=1), (64, 64), 1, make_machine())) == {"not split"}


def test_a_batch_of_one_can_only_be_tiled() -> None:
    plan = plan_splits(replace(STEP, batch=1), (64, 64), 2, make_machine())
    assert list_splits(plan) == {"1x2 tiles", "2x1 tiles"}


def test_a_given_mesh_fixes_the_tiles() -> None:
    assert list_splits(plan_splits(STEP, (64, 64), 4, make_machine(), mesh=(2,))) == {"2 replicas x 1x2 tiles"}
    assert list_splits(plan_splits(STEP, (64, 64), 4, make_machine(), mesh=(4, 1))) == {"4x1 tiles"}


@pytest.mark.parametrize(
    ("image", "workers", "mesh", "says"),
    [
        ((64, 64), 4, (3,), "--mesh 3 has 3 tiles, which does not divide 4 workers: allowed: meshes of 1, 2, 4 tiles"),
        ((64, 64), 4, (2, 1, 2), "the mesh has more dims than the image"),
        ((64, 64), 64, (128, 1), "--mesh 128x1 has 128 tiles, which does not divide 64 workers"),
        (
            (2, 2),
            64,
            None,
            "the mesh has more parts than the image has pixels along a dim: got '2x2 pixels for 1x16 ranks'",
        ),
        ((2, 2), 16, (8, 2), "the workers cannot be used: too few images or pixels"),
        ((64, 64), 128, None, "made-up has 64 workers, and the bandwidth between machines is unknown"),
    ],
)
def test_impossible_plans_are_refused(
    image: tuple[int, ...], workers: int, mesh: tuple[int, ...] | None, says: str
) -> None:
    with pytest.raises(TesseraError, match=says):
        plan_splits(STEP, image, workers, make_machine(64, network=False), mesh=mesh)


def test_slow_messages_favour_replicas_and_little_memory_favours_the_split_that_fits() -> None:
    here = make_machine(4, flops=1e15)
    slow = replace(here, links={**here.links, "link": Link(bandwidth=(1e12,), latency=1e-2)})
    assert describe_split(plan_splits(STEP, (64, 64), 4, slow).fastest) == "4 replicas"
    fitting = make_plan(replace(REPLICAS, available_memory=450 << 20), replace(TILES, available_memory=450 << 20))
    assert fitting.fastest.mesh == (2, 2)
    assert fitting.explain_fastest() == (
        "computation takes 54.1% of the step; 4 replicas is faster, but needs 500 MiB a worker"
    )


def test_the_reasons_name_the_deciding_part() -> None:
    plan = make_plan(REPLICAS, TILES)
    assert list_plan_lines(plan) == [
        "fastest: 4 replicas, 2.50 s per step (1.60 images/s), 500 MiB per worker",
        "  why: computation takes 80.0% of the step; 2x2 tiles takes 48.0% longer, mostly for the overhead of launches "
        "(1.50 s more)",
        "  memory: weights 100 MiB, activations 400 MiB",
        "smallest: 2x2 tiles, 3.70 s per step (1.08 images/s), 400 MiB per worker",
        "  why: activations take 75.0% of the memory; the fastest split needs 100 MiB more for activations",
        "  memory: weights 100 MiB, activations 300 MiB",
    ]
    assert list_plan_lines(make_plan(REPLICAS))[:3] == [
        "fastest and smallest: 4 replicas, 2.50 s per step (1.60 images/s), 500 MiB per worker",
        "  why: computation takes 80.0% of the step; it is the only split",
        "  why: activations take 80.0% of the memory",
    ]
    tight = make_plan(replace(REPLICAS, available_memory=1 << 20))
    assert list_plan_lines(tight)[-1] == "no split fits: a worker has 1.00 MiB"
    assert describe_plan(plan) == "resnet18, batch 4, float32, training, 64x64 image, 4 workers of A machine"


def test_plain_values() -> None:
    values = dump_plan(make_plan(REPLICAS, TILES))
    assert values["fastest"] == "4 replicas"
    assert values["smallest"] == "2x2 tiles"
    assert values["splits"][1]["memory_activations"] == 300 << 20
    assert values["splits"][0]["step"] == pytest.approx(2.5)


def test_overheads_of_this_host() -> None:
    overheads = measure_operation_overheads()
    assert 1e-8 < overheads["launch"] < 1e-3
    assert 1e-7 < overheads["dispatch"] < 1e-1
    assert compute_message_overhead(1e-6, Link(bandwidth=(1e9,), latency=5e-6), 1e-6) > 0

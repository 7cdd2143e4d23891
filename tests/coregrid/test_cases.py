"""Tests of the cases built from a user's options, and the convolutions that they describe."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tessera.coregrid.cases import cases
from tessera.coregrid.config import MathFidelity, ShardLayout
from tessera.coregrid.convolution import parse_padding, parse_pair
from tessera.coregrid.device.device import open_device
from tessera.coregrid.formats import Layout, bfloat8_b
from tessera.coregrid.problem import ConvProblem
from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.machine.catalogue import save_host
from tessera.measure.environment import compute_host_fingerprint, describe_environment
from tests.coregrid.machines import make_small_machine


def test_cases_are_all_combinations_of_values() -> None:
    cases_found = cases(image_size=[7, [14, 28]], shard_layout=["HEIGHT", "auto"], enable_split_reader=[True])
    assert len(cases_found) == 4
    assert {str(case.params["shard_layout"]) for case in cases_found} == {"HEIGHT", "auto"}
    assert all(case.params["enable_split_reader"] is True for case in cases_found)
    assert "weights_dtype" not in cases_found[0].params


def test_table_defines_one_case_per_convolution() -> None:
    cases_found = cases(table=["resnet50"], batch_size=[8])
    assert len(cases_found) == 23
    assert cases_found[0].params["layer"] == "resnet50:conv1"
    some = cases(table=["resnet50"], layers=["layer1.0.conv2", "conv1"])
    assert len(some) == 2
    for wrong in ({"kernel": [3]}, {"layers": ["layer9"]}):
        with pytest.raises(TesseraError):
            cases(table=["resnet50"], **wrong)
    with pytest.raises(TesseraError, match="table"):
        cases(layers=["conv1"])


def test_network_cases() -> None:
    (case,) = cases(["network"], machine=["grayskull-e150"], batch_size=[20])
    assert case.key == "conv/network[batch_size=20,machine=grayskull-e150,network=resnet50]"


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"image_sizes": [3]}, "did you mean image_size"),
        ({"shard_layout": ["DEPTH"]}, "unknown shard layout"),
        ({"machine": ["wormwood"]}, "unknown machine"),
        ({"kernel": [9], "image_size": [4], "padding": [0]}, "does not fit"),
        ({"in_channels": [30], "groups": [4]}, "divisible by groups"),
        ({"grid": ["9x9"], "shard_layout": ["HEIGHT"]}, "larger than"),
        ({"grid": ["nine"]}, "ROWSxCOLS"),
        ({"act_block_h_override": [40]}, "multiple of 32"),
    ],
)
def test_invalid_arguments_raise(axes: dict[str, list[object]], message: str) -> None:
    def make_plan() -> None:
        for case in cases(**axes):
            ConvProblem.of(case.params).plan()

    with pytest.raises(TesseraError, match=message):
        make_plan()


def test_problem_has_the_parameters_of_the_case() -> None:
    (case,) = cases(
        image_size=[[14, 28]],
        kernel=[[3, 5]],
        padding=[[0, 1, 2, 3]],
        dtype=["bfloat8_b"],
        math_fidelity=["LoFi"],
        shard_layout=["BLOCK"],
        grid=["2x4"],
        packer_l1_acc=[True],
    )
    problem = ConvProblem.of(case.params)
    assert (problem.conv.height, problem.conv.width, problem.conv.kernel) == (14, 28, (3, 5))
    assert problem.conv.padding == ((0, 1), (2, 3))
    assert problem.setup.config.dtype is bfloat8_b
    assert problem.setup.input_layout is Layout.TILE
    assert problem.setup.compute.math_fidelity is MathFidelity.LoFi
    assert problem.setup.compute.packer_l1_acc
    plan = problem.plan()
    assert (plan.layout, plan.grid, plan.sharding.rows) == (ShardLayout.BLOCK, Mesh(2, 4), 2)


def test_choices_of_a_layout() -> None:
    searched, own, sliced = (
        ConvProblem.of(cases(**axes)[0].params)
        for axes in ({}, {"shard_layout": ["auto"]}, {"shard_layout": ["HEIGHT"], "num_slices": [2]})
    )
    assert searched.plan() == searched.search().best.plan
    assert own.plan().footprint.total <= searched.plan().footprint.total
    assert len(sliced.plan().slices) == 2


@pytest.mark.parametrize("choice", ["search", "auto", "WIDTH"])
def test_config_of_a_plan_has_the_requested_grid(choice: str) -> None:
    plan = ConvProblem.of(cases(shard_layout=[choice], grid=["4x4"], image_size=[28])[0].params).plan()
    assert plan.grid == plan.config.grid == Mesh(4, 4)
    assert plan.config.shard_layout == plan.layout


def test_calibrated_host_is_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_HOME", str(tmp_path))
    with pytest.raises(TesseraError, match="not calibrated"):
        cases(machine=["host"])
    save_host(replace(make_small_machine(), name="host"), compute_host_fingerprint(describe_environment()))
    assert ConvProblem.of(cases(machine=["host"])[0].params).plan().grid == Mesh(3, 4)
    assert open_device("host").grid == Mesh(3, 4)


def test_parse_window_parameters() -> None:
    assert parse_padding([1, 2]) == ((1, 1), (2, 2))
    assert parse_pair("stride", 2) == parse_pair("stride", [2, 2]) == parse_pair("stride", np.array([2, 2])) == (2, 2)
    for wrong in ("same", 1.5, (1.5, 2), (1, 2, 3), None):
        with pytest.raises(TesseraError, match=r"stride must be a number or \(height, width\)"):
            parse_pair("stride", wrong)


def test_listing_cases_needs_no_torch() -> None:
    program = "import sys, tessera.coregrid.cases; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"

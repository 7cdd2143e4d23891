"""Tests of predicted scaling: the parts of a step add up, strong and weak scaling, tables, plots and pages."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from xml.etree import ElementTree

import pytest
import torch
from torch import nn

from tessera.errors import TesseraError
from tessera.machine.machine import Machine
from tessera.models import build
from tessera.spatial.cost import predict_all_reduce, predict_exchange_traffic
from tessera.spatial.scaling.dry_run import run_dry, run_model_dry
from tessera.spatial.scaling.page import build_scaling_page
from tessera.spatial.scaling.plot import draw_scaling
from tessera.spatial.scaling.prediction import SplitStep, compute_efficiencies, get_mesh, predict_step
from tessera.spatial.scaling.table import MeasuredStep, ScalingResult, compute_scaling_errors, dump_scaling
from tests.spatial.scaling.test_dry_run import make_network
from tests.spatial.test_cost import make_machine

STEP = SplitStep(model="made-up")
OVERHEADS = {"launch": 3e-6, "dispatch": 50e-6, "message": 20e-6}


def test_the_parts_of_a_step_add_up() -> None:
    """Compare the prediction of a small network with a sum over its layers, computed by hand."""
    network = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1))
    here = replace(make_machine(8), overheads=OVERHEADS)
    run = run_dry(network, (64, 64), (2, 4))
    point = predict_step(run, here, STEP)
    flops = 2 * 32 * 16 * 9 * (3 * 6 * 2 + 6 * 6 * 3)  # the gradient of the image is not computed
    grown = 2 * 34 * 18 * 9 * 6 * 6  # the input gradient of the second convolution is computed with the halo
    assert flops / 1e9 <= point.times.compute <= (flops + grown) / 1e9
    assert point.times.launches == pytest.approx(len(run.operations) * 3e-6 + run.dispatches * 50e-6)
    exchange = sum(predict_exchange_traffic(t.traffic, t.item_bytes, here, overhead=0) for t in run.transfers)
    assert point.times.exchange == pytest.approx(exchange)
    # A worker in the middle of a row of 4 has 5 neighbours. Exchanges: two inputs forward, whose halos are kept for the
    # weight gradients, and the output gradient of the second convolution.
    sums = len(run.statistics) + len(run.gradients)
    assert point.times.messages == pytest.approx((3 * 5 + sums) * 20e-6)
    gradients = sum(predict_all_reduce(count, 8, here, overhead=0) for count in run.gradients)
    assert point.times.gradients == pytest.approx(gradients)
    assert sum(run.gradients) == run.gradient_bytes == sum(p.nbytes for p in network.parameters())
    assert point.seconds == pytest.approx(sum(seconds for _, seconds in point.times.list_parts()))
    assert point.memory == sum(count for _, count in point.bytes.list_parts())


def test_replicas_sum_gradients_and_divide_the_batch() -> None:
    here, step = make_machine(4), SplitStep(model="made-up", batch=8, optimizer="adam")
    run = run_dry(make_network(), (32, 32), (1, 2), batch=2)
    point = predict_step(run, here, step, replicas=4)
    assert point.ranks == 8
    spatial = predict_step(run, here, step)
    # Two replicas on each machine, then two machines, whose port two all-reduces share.
    expected = predict_all_reduce(run.gradient_bytes, 4, here, per_machine=2, overhead=0, concurrent=2)
    assert point.times.gradients == pytest.approx(spatial.times.gradients + expected)
    assert point.bytes.optimizer == 2 * run.gradient_bytes
    alone = predict_step(run_dry(make_network(), (32, 32), (1, 1)), replace(here, overheads=OVERHEADS), step)
    assert alone.times.messages == alone.times.exchange == alone.times.gradients == 0
    with pytest.raises(TesseraError, match="unknown optimizer: got 'lion'"):
        SplitStep(model="resnet18", optimizer="lion")


def test_more_ranks_than_cores_share_them() -> None:
    run, here = run_dry(make_network(), (32, 32), (1, 4)), make_machine(2, network=False)
    spread = predict_step(run, make_machine(4), STEP)
    shared = predict_step(run, here, STEP, machines=1)
    assert shared.times.compute == pytest.approx(2 * spread.times.compute, rel=1e-4)
    with pytest.raises(TesseraError, match="got 'network'"):
        predict_step(run, here, STEP)


def test_strong_scaling_loses_efficiency_and_weak_scaling_keeps_it() -> None:
    here = make_machine(16, flops=1e13)
    meshes = [get_mesh(count, "nearest", (512, 512)) for count in (1, 4, 16, 64)]
    strong = [predict_step(run_model_dry("resnet18", (512, 512), mesh), here, STEP) for mesh in meshes]
    weak = [
        predict_step(run_model_dry("resnet18", tuple(128 * count for count in mesh), mesh), here, STEP)
        for mesh in meshes
    ]
    shares = compute_efficiencies(strong)
    assert shares[0] == 1
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < compute_efficiencies(weak)[-1] <= 1
    assert [p.memory for p in strong] == sorted((p.memory for p in strong), reverse=True)
    assert len({p.tile for p in weak}) == 1
    assert all(p.times.compute < p.seconds for p in strong[1:])


@pytest.mark.timeout(180)
def test_hundreds_of_ranks_take_seconds() -> None:
    point = predict_step(run_model_dry("resnet18", (8192, 8192), (16, 16)), make_machine(64, flops=1e13), STEP)
    assert point.tile == (512, 512)
    assert point.fits
    assert not predict_step(run_model_dry("resnet18", (16384, 16384), (1, 1)), make_machine(64), STEP).fits


def test_the_registered_model_is_unchanged() -> None:
    model = build("resnet18")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    run_model_dry("resnet18", (64, 64), (1, 2))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    with pytest.raises(TesseraError, match="did you mean resnet50"):
        run_model_dry("resnet5", (64, 64), (1, 2))


@pytest.mark.parametrize(
    ("ranks", "method", "image", "says"),
    [
        (
            64,
            "vertical",
            (64, 32),
            "the mesh has more parts than the image has pixels along a dim: got '64x32 pixels for 1x64 ranks'",
        ),
        (4, "diagonal", (64, 64), "unknown slice method"),
        (4, "vertical", (64, 64, 64), "slice methods apply only to images with two dims"),
        (
            64,
            "nearest",
            (4, 4),
            "the mesh has more parts than the image has pixels along a dim: got '4x4 pixels for 1x64 ranks'",
        ),
    ],
)
def test_invalid_meshes_are_refused(ranks: int, method: str, image: tuple[int, ...], says: str) -> None:
    with pytest.raises(TesseraError, match=says):
        get_mesh(ranks, method, image)


@pytest.mark.parametrize(
    ("ranks", "image", "mesh"),
    [
        (4096, (4096, 4096), (64, 64)),
        (6, (64, 64), (2, 3)),
        (7, (64, 64), (1, 7)),
        (8, (16, 256), (1, 8)),
        (8, (96, 96, 96), (2, 2, 2)),
        (4, (2, 64, 64), (1, 2, 2)),
    ],
)
def test_the_nearest_mesh_has_the_shortest_boundaries(
    ranks: int, image: tuple[int, ...], mesh: tuple[int, ...]
) -> None:
    assert get_mesh(ranks, "nearest", image) == mesh
    assert prod(mesh) == ranks


def make_scaling(target: Machine, *, measured: bool = True) -> ScalingResult:
    meshes = [get_mesh(count, "nearest", (64, 64)) for count in (1, 2, 4, 8)]
    points = [predict_step(run_dry(make_network(), (64, 64), mesh), target, STEP) for mesh in meshes]
    run = [
        MeasuredStep(predicted=p, seconds=p.seconds * factor, memory=1 << 20)
        for p, factor in zip(points, (2, 2, 3), strict=False)
    ]
    return ScalingResult(step="small <b>", strong=points, weak=points, measured=run if measured else ())


def test_errors_of_the_prediction_and_of_the_scaling() -> None:
    scaling = make_scaling(make_machine())
    assert [m.error for m in scaling.measured] == pytest.approx([-1 / 2, -1 / 2, -2 / 3])
    assert compute_scaling_errors(scaling.measured) == pytest.approx([0, 0, -1 / 3])
    values = dump_scaling(scaling)
    assert [row["ranks"] for row in values["strong"]] == [1, 2, 4, 8]
    assert values["measured"][2]["error_of_scaling"] == pytest.approx(-1 / 3)
    for point in values["strong"]:
        parts = ("compute", "launches", "exchange", "messages", "statistics", "gradients")
        assert point["step"] == pytest.approx(sum(point[part] for part in parts))


def test_the_plot_shows_every_point_and_is_self_contained() -> None:
    scaling = make_scaling(make_machine())
    root = ElementTree.fromstring(draw_scaling(scaling))
    titles = [title.text for title in root.iter("{http://www.w3.org/2000/svg}title")]
    assert sum(title.startswith("measured, ") for title in titles if title) == 3
    assert sum(title.startswith("step, ") for title in titles if title) == 8
    assert "prefers-color-scheme: dark" in draw_scaling(scaling)
    assert "<style" not in draw_scaling(scaling, standalone=False)


def test_the_page_holds_the_plot_and_the_tables() -> None:
    page = build_scaling_page(make_scaling(make_machine()))
    assert page.count("<svg") >= 1
    for word in ("Strong scaling", "Weak scaling", "Measured here", "error of the scaling", "small &lt;b&gt;"):
        assert word.lower() in page.lower(), word
    assert "Measured here" not in build_scaling_page(make_scaling(make_machine(), measured=False))

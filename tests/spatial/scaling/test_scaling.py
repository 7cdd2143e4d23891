"""Tests of predicted scaling: counts equal a real training step of the network, and the parts of a step add up."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tessera.errors import Refused, TesseraError
from tessera.geometry import Mesh, Window
from tessera.machine.machine import Machine
from tessera.models import build
from tessera.spatial.cost import compute_grid_traffic, predict_all_reduce, predict_exchange_traffic
from tessera.spatial.scaling.page import build_scaling_page
from tessera.spatial.scaling.plot import draw_scaling
from tessera.spatial.scaling.prediction import compute_efficiencies, find_squarest_mesh, get_mesh, predict_step
from tessera.spatial.scaling.table import MeasuredStep, Scaling, compute_scaling_errors, dump_scaling
from tessera.spatial.scaling.training_step import TrainingStep, count_operations, count_training_step
from tests.spatial.test_cost import make_machine


def make_small_network(kernel: int = 3, stride: int = 1, channels: int = 4) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, channels, kernel, stride, padding=kernel // 2),
        nn.BatchNorm2d(channels),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        nn.Conv2d(channels, 8, 3, padding=1, groups=2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


@given(st.integers(8, 40), st.integers(8, 40), st.sampled_from([1, 3, 5]), st.integers(1, 2), st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_the_counted_step_equals_a_real_step(height: int, width: int, kernel: int, stride: int, batch: int) -> None:
    work = count_operations(make_small_network(kernel, stride), (height, width), batch=batch)
    real, counter, kept = make_small_network(kernel, stride), FlopCounterMode(display=False), dict[int, int]()

    def keep(tensor: Tensor) -> Tensor:
        if not any(tensor.untyped_storage()._cdata == p.untyped_storage()._cdata for p in real.parameters()):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = real(torch.randn(batch, 3, height, width))
        output.sum().backward()
    assert sum(operation.flops for operation in work.operations) == counter.get_total_flops()
    state = sum(t.nbytes for t in (*real.parameters(), *real.buffers()))
    assert work.weight_bytes == state
    assert work.gradient_bytes == sum(p.grad.nbytes for p in real.parameters() if p.grad is not None)
    # A normalisation also saves its running statistics for backward; they are counted as weights here.
    activations = sum(piece.bytes for piece in work.saved)
    assert activations == pytest.approx(sum(kept.values()), rel=0.02, abs=400)


def test_halos_and_sums_are_those_of_the_layers() -> None:
    work = count_operations(make_small_network(kernel=5, stride=2), (32, 48), batch=2)
    halos = [operation.halo for operation in work.operations if operation.halo]
    assert [(halo.sizes, halo.window) for halo in halos] == [
        ((2, 32, 48), Window.of(5, stride=2, padding=2)),
        ((2, 16, 24), Window.of(3, stride=2, padding=1)),
        ((2, 8, 12), Window.of(3, padding=1)),
    ]
    assert [(halo.pixel_bytes, halo.adjoint, halo.hides) for halo in halos] == [
        (3 * 4, False, True),  # the gradient of the image is not computed
        (4 * 4, True, False),
        (4 * 4, True, True),
    ]
    # Batch norm sums two values per channel, forward and backward; the pool sums its output.
    assert [operation.summed for operation in work.operations if operation.summed] == [32, 2 * 8 * 4, 32]


def test_weights_are_whole_on_every_rank_and_images_are_split() -> None:
    work = count_operations(make_small_network(), (32, 32))
    for operation in work.operations:
        if "convolution" in operation.name:
            planes = {piece.plane for piece in operation.pieces}
            assert None in planes, "the weights, or their gradients"
            assert planes - {None} <= {(32, 32), (16, 16)}
    point = predict_step(work, Mesh(4, 4), make_machine(), "float32")
    alone = predict_step(work, Mesh(1, 1), make_machine(), "float32")
    assert point.state == alone.state == work.weight_bytes + work.gradient_bytes
    assert alone.activations / 16 < point.activations < alone.activations / 6


def test_the_parts_of_a_step_add_up() -> None:
    """Compare the prediction of a small network with a sum over its layers, computed by hand."""
    network = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1))
    work, here, mesh = count_operations(network, (64, 64)), make_machine(4), Mesh(2, 4)
    point = predict_step(work, mesh, here, "float32")
    pixels = 32 * 16
    flops = 2 * pixels * 9 * (3 * 6 * 2 + 6 * 6 * 3)  # the gradient of the image is not computed
    assert point.compute == pytest.approx(flops / 1e9, rel=1e-6)
    first, second = (
        predict_exchange_traffic(compute_grid_traffic((1, 64, 64), Window.of(3, padding=1), mesh), 4 * channels, here)
        for channels in (3, 6)
    )
    assert point.exchange == pytest.approx(first + 2 * second)
    weights = sum(p.numel() for p in network.parameters()) * 4
    assert point.weights == pytest.approx(predict_all_reduce(weights, 8, here))
    # A tile of 32 x 16 with neighbours on three sides: 31 x 14 outputs read no pixels of a neighbour.
    behind, inside = 2 * pixels * 9 * 6 / 1e9, 31 * 14 / pixels
    hidden = min(first, 3 * behind * inside) + min(second, 6 * behind * inside) + min(second, 6 * behind)
    assert point.hidden == pytest.approx(hidden)
    assert point.seconds == pytest.approx(point.compute + point.exchange - hidden + point.weights)
    assert point.statistics == 0


def test_more_ranks_than_cores_share_them() -> None:
    work, here = count_operations(make_small_network(), (32, 32)), make_machine(2, network=False)
    spread = predict_step(work, Mesh(1, 4), make_machine(4), "float32")
    shared = predict_step(work, Mesh(1, 4), here, "float32", machines=1)
    assert shared.compute == pytest.approx(2 * spread.compute, rel=1e-6)
    with pytest.raises(TesseraError, match="got 'network'"):
        predict_step(work, Mesh(1, 4), here, "float32")


def test_strong_scaling_loses_efficiency_and_weak_scaling_keeps_it() -> None:
    here = make_machine(16, flops=1e13)
    meshes = [find_squarest_mesh(count) for count in (1, 4, 16, 64, 256)]
    work = count_training_step("resnet18", (1024, 1024))
    strong = [predict_step(work, mesh, here, "float32") for mesh in meshes]
    weak = [
        predict_step(count_training_step("resnet18", (256 * m.rows, 256 * m.cols)), m, here, "float32") for m in meshes
    ]
    shares = compute_efficiencies(strong)
    assert shares[0] == 1
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < compute_efficiencies(weak)[-1] <= 1
    assert [p.activations for p in strong] == sorted((p.activations for p in strong), reverse=True)
    assert len({p.tile for p in weak}) == 1
    assert all(0 <= p.hidden <= p.exchange for p in (*strong, *weak))
    assert all(p.compute < p.seconds for p in strong[1:])


@pytest.mark.timeout(60)
def test_four_thousand_ranks_take_seconds() -> None:
    work = count_training_step("resnet50", (16384, 16384))
    assert isinstance(work, TrainingStep)
    point = predict_step(work, find_squarest_mesh(4096), make_machine(64, flops=1e13), "float32")
    assert point.tile == (256, 256)
    assert point.fits
    assert not predict_step(work, Mesh(1, 1), make_machine(64, flops=1e13), "float32").fits


def test_the_registered_model_is_unchanged() -> None:
    model = build("resnet18")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    count_training_step("resnet18", (64, 64))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


class Resized(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.interpolate(x, scale_factor=2, mode="bilinear")


def test_unpredictable_networks_are_refused() -> None:
    with pytest.raises(Refused, match=r"the halo of aten.*upsample_bilinear2d.* cannot be predicted"):
        count_operations(nn.Sequential(nn.Conv2d(3, 4, 3), Resized()), (16, 16))
    with pytest.raises(TesseraError, match="does not accept this image"):
        count_operations(nn.Conv2d(3, 4, 9), (4, 4))
    with pytest.raises(TesseraError, match="did you mean resnet50"):
        count_training_step("resnet5", (64, 64))


@pytest.mark.parametrize(
    ("ranks", "method", "plane", "says"),
    [
        (6, "square", (64, 64), "6 parts do not form a square; allowed: 1x6, 2x3, 3x2, 6x1"),
        (64, "vertical", (64, 32), "the image is smaller than the mesh: got '64x32 pixels for 1x64 ranks'"),
        (4, "diagonal", (64, 64), "unknown slice method"),
    ],
)
def test_invalid_meshes_are_refused(ranks: int, method: str, plane: tuple[int, int], says: str) -> None:
    with pytest.raises(TesseraError, match=says):
        get_mesh(ranks, method, plane)


def make_scaling(target: Machine, *, measured: bool = True) -> Scaling:
    work = count_operations(make_small_network(), (64, 64))
    points = [predict_step(work, find_squarest_mesh(n), target, "float32") for n in (1, 2, 4, 8)]
    run = [
        MeasuredStep(predicted=p, seconds=p.seconds * factor, memory=1 << 20)
        for p, factor in zip(points, (2, 2, 3), strict=False)
    ]
    return Scaling(step="small <b>", strong=points, weak=points, measured=run if measured else ())


def test_errors_of_the_prediction_and_of_the_scaling() -> None:
    scaling = make_scaling(make_machine())
    assert [m.error for m in scaling.measured] == pytest.approx([-1 / 2, -1 / 2, -2 / 3])
    assert compute_scaling_errors(scaling.measured) == pytest.approx([0, 0, -1 / 3])
    values = dump_scaling(scaling)
    assert [row["ranks"] for row in values["strong"]] == [1, 2, 4, 8]
    assert values["measured"][2]["error_of_scaling"] == pytest.approx(-1 / 3)
    for point in values["strong"]:
        parts = point["compute"] + point["exchange"] - point["hidden"] + point["statistics"] + point["weights"]
        assert point["step"] == pytest.approx(parts)


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

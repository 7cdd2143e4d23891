"""Normalisations cut over ranks against torch's own."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import nn

from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tests.spatial.layers.agreement import agrees, cut, meshes, on_ranks, quick, seeds

BATCH: dict[int, Any] = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
INSTANCE: dict[int, Any] = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}
kinds = st.sampled_from(["tiles", "tiles", "samples", "whole"])


@st.composite
def shapes(draw: st.DrawFn, dims: int, channels: int) -> tuple[int, ...]:
    sizes = [draw(st.integers(1, 7)) for _ in range(dims)]
    return (draw(st.integers(1, 3)), channels, *sizes)


@pytest.mark.parametrize("dims", [1, 2, 3])
@quick
@given(
    data=st.data(),
    mesh=meshes,
    seed=seeds,
    kind=kinds,
    training=st.booleans(),
    momentum=st.sampled_from([0.1, 0.7, None]),
    affine=st.booleans(),
    tracked=st.booleans(),
)
def test_batch_norm(
    dims: int, data: Any, mesh: Mesh, seed: int, kind: Any, training: bool, momentum: Any, affine: bool, tracked: bool
) -> None:
    shape = data.draw(shapes(dims, 3))
    assume(shape[0] * torch.Size(shape[2:]).numel() > 1)
    module = BATCH[dims](3, momentum=momentum, affine=affine, track_running_stats=tracked).train(training)
    last = data.draw(st.booleans())
    agrees(module, shape, mesh, seed, kind=kind, channels_last=last and dims == 2)


def test_batch_norm_with_a_weight_and_no_bias() -> None:
    agrees(nn.BatchNorm2d(2, bias=False), (2, 2, 5, 5), Mesh(2, 2), 0)


def test_batch_norm_of_vectors() -> None:
    agrees(nn.BatchNorm1d(4), (5, 4), Mesh(1, 3), 1, kind="samples")


def test_a_variance_much_smaller_than_the_mean() -> None:
    """Squares of the values would lose it."""
    torch.manual_seed(2)
    image = 1e5 + torch.randn(1, 1, 8, 8, dtype=torch.float64)
    expected = nn.BatchNorm2d(1).double()(image).detach()

    def run(layer: Any, own: Any, transport: Any) -> None:
        part = layer.placed.box(transport.rank)
        found = layer(cut(image, part))
        torch.testing.assert_close(found, cut(expected, part), rtol=1e-9, atol=1e-9)

    on_ranks(nn.BatchNorm2d(1).double(), (1, 8, 8), Mesh(2, 2), run)


def test_the_same_in_single_precision() -> None:
    torch.manual_seed(3)
    image = 100 + torch.randn(2, 3, 9, 9)
    uncut, leaf = nn.BatchNorm2d(3), image.clone().requires_grad_()
    expected = uncut(leaf)
    grad = torch.randn_like(expected)
    expected.backward(grad)

    def run(layer: Any, own: Any, transport: Any) -> None:
        part = layer.placed.box(transport.rank)
        tile = cut(image, part).requires_grad_()
        found = layer(tile)
        torch.testing.assert_close(found, cut(expected, part), rtol=1e-4, atol=1e-4)
        found.backward(cut(grad, part))
        torch.testing.assert_close(tile.grad, cut(leaf.grad, part), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(own.running_var, uncut.running_var)

    on_ranks(nn.BatchNorm2d(3), (2, 9, 9), Mesh(2, 2), run)


NORMS = [nn.GroupNorm(2, 4), nn.GroupNorm(1, 4, affine=False), nn.InstanceNorm2d(4, affine=True), nn.BatchNorm2d(4)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("module", NORMS, ids=["groups", "one group", "instance", "batch"])
def test_halves_with_a_large_mean_are_exact_to_their_rounding(module: nn.Module, dtype: torch.dtype) -> None:
    """Held against doubles that are rounded once, at the end."""
    torch.manual_seed(5)
    module = deepcopy(module).to(dtype)
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_()
    image, mesh = (100 + torch.randn(2, 4, 9, 9)).to(dtype), Mesh(2, 2)
    uncut, leaf = deepcopy(module).double(), image.double().requires_grad_()
    expected = uncut(leaf)
    grad = torch.randn(2, 4, 9, 9).to(dtype)
    expected.backward(grad.double())

    def run(layer: Any, own: Any, transport: Any) -> Any:
        part = layer.placed.box(transport.rank)
        tile = cut(image, part).requires_grad_()
        found = layer(tile)
        found.backward(cut(grad, part))
        return part, found.detach(), tile.grad, own

    unit = torch.finfo(dtype).eps  # of the last digit
    parts = on_ranks(module, (2, 9, 9), mesh, run)
    for part, found, grad_tile, _ in parts:
        assert found.dtype == grad_tile.dtype == dtype
        torch.testing.assert_close(found.double(), cut(expected, part), rtol=unit, atol=1e-4)
        torch.testing.assert_close(grad_tile.double(), cut(leaf.grad, part), rtol=unit, atol=1e-4)
    for name, weight in uncut.named_parameters():
        each = [own.get_parameter(name).grad for *_, own in parts]
        assert all(one.dtype == dtype for one in each)
        assert weight.grad is not None
        rounded = sum(one.double().abs() for one in each) * unit  # each rank rounds its part
        assert ((sum(one.double() for one in each) - weight.grad).abs() <= rounded + 1e-3).all(), name


def test_one_value_has_no_statistics() -> None:
    def run(layer: Any, own: Any, transport: Any) -> None:
        with pytest.raises(TesseraError, match="more than one value per channel"):
            layer(torch.zeros(0, 2, 0, 0))

    on_ranks(nn.BatchNorm2d(2), (1, 1, 1), Mesh(1, 2), run)


@quick
@given(data=st.data(), mesh=meshes, seed=seeds, kind=kinds, groups=st.sampled_from([1, 2, 4]), affine=st.booleans())
def test_group_norm(data: Any, mesh: Mesh, seed: int, kind: Any, groups: int, affine: bool) -> None:
    dims = data.draw(st.integers(1, 3))
    shape = data.draw(shapes(dims, 4))
    assume(4 // groups * torch.Size(shape[2:]).numel() > 1)
    agrees(nn.GroupNorm(groups, 4, affine=affine), shape, mesh, seed, kind=kind, channels_last=data.draw(st.booleans()))


@quick
@given(data=st.data(), mesh=meshes, seed=seeds, kind=kinds, affine=st.booleans(), training=st.booleans())
def test_instance_norm(data: Any, mesh: Mesh, seed: int, kind: Any, affine: bool, training: bool) -> None:
    dims = data.draw(st.integers(1, 3))
    shape = data.draw(shapes(dims, 3))
    assume(torch.Size(shape[2:]).numel() > 1)
    agrees(INSTANCE[dims](3, affine=affine).train(training), shape, mesh, seed, kind=kind)


def test_layer_norm_of_whole_images() -> None:
    agrees(nn.LayerNorm([2, 5, 4]), (3, 2, 5, 4), Mesh(1, 2), 4, kind="samples")


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (nn.InstanceNorm2d(2, track_running_stats=True), "track_running_stats=False"),
        (nn.LayerNorm([2, 4, 4]), "gather_at"),
    ],
)
def test_refusals(module: nn.Module, said: str) -> None:
    with pytest.raises(TesseraError, match=f"part.layer.*{said}"):
        on_ranks(module, (1, 4, 4), Mesh(1, 2), lambda *_: None)


@pytest.mark.parametrize("module", [nn.GroupNorm(2, 2), nn.InstanceNorm2d(2)])
@pytest.mark.parametrize("kind", ["tiles", "samples"])
def test_groups_of_one_value_are_refused(module: nn.Module, kind: Any) -> None:
    with pytest.raises(TesseraError, match="more than one value"):
        on_ranks(module, (2, 1, 1), Mesh(1, 2), lambda *_: None, kind=kind)

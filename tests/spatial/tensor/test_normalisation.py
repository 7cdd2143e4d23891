"""Tests of normalisations on split tensors: results equal torch's."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

from tessera.spatial.tensor.boundary import join_parts
from tests.spatial.tensor.agreement import MeshCounts, check_agreement, meshes, quick, run_on_ranks, seeds, split

BATCH: dict[int, Any] = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
INSTANCE: dict[int, Any] = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}
kinds = st.sampled_from(["tiles", "tiles", "samples", "channels", "whole"])


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
    dims: int,
    data: Any,
    mesh: MeshCounts,
    seed: int,
    kind: Any,
    training: bool,
    momentum: Any,
    affine: bool,
    tracked: bool,
) -> None:
    shape = data.draw(shapes(dims, 3))
    assume(shape[0] * torch.Size(shape[2:]).numel() > 1)
    module = BATCH[dims](3, momentum=momentum, affine=affine, track_running_stats=tracked).train(training)
    last = data.draw(st.booleans())
    check_agreement(module, shape, mesh, seed, kind=kind, channels_last=last and dims == 2)


def test_batch_norm_with_a_weight_and_no_bias() -> None:
    check_agreement(nn.BatchNorm2d(2, bias=False), (2, 2, 5, 5), (2, 2), 0)


@pytest.mark.parametrize("kind", ["samples", "channels", "whole"])
def test_batch_norm_of_vectors(kind: Any) -> None:
    check_agreement(nn.BatchNorm1d(4), (5, 4), (1, 3), 1, kind=kind)


def test_batch_norm_with_frozen_weights() -> None:
    module = nn.BatchNorm2d(2)
    for weight in module.parameters():
        weight.requires_grad_(False)
    torch.manual_seed(3)
    image = torch.randn(2, 2, 5, 5, dtype=torch.float64)
    plain, leaf = deepcopy(module).double(), image.clone().requires_grad_()
    plain(leaf).square().mul(image).sum().backward()

    def run(group: Any) -> Tensor | None:
        own = image.clone().requires_grad_()
        deepcopy(module).double()(split(own, group)).square().mul(image).sum().backward()
        return own.grad

    for grad in run_on_ranks((2, 2), run):
        torch.testing.assert_close(grad, leaf.grad)


def test_a_variance_much_smaller_than_the_mean() -> None:
    """Check a case in which a variance computed as the mean of squares minus the squared mean would lose all digits."""
    torch.manual_seed(2)
    image = 1e5 + torch.randn(1, 1, 8, 8, dtype=torch.float64)
    expected = nn.BatchNorm2d(1).double()(image).detach()

    def run(group: Any) -> Tensor:
        return join_parts(nn.BatchNorm2d(1).double()(split(image, group))).detach()

    for output in run_on_ranks((2, 2), run):
        torch.testing.assert_close(output, expected, rtol=1e-9, atol=1e-9)


def test_a_small_variance_in_single_precision() -> None:
    torch.manual_seed(3)
    image = 100 + torch.randn(2, 3, 9, 9)
    unsplit, leaf = nn.BatchNorm2d(3), image.clone().requires_grad_()
    expected = unsplit(leaf)
    grad = torch.randn_like(expected)
    expected.backward(grad)

    def run(group: Any) -> Any:
        module, own = nn.BatchNorm2d(3), image.clone().requires_grad_()
        for weight in module.parameters():
            weight.register_hook(join_parts)
        output = module(split(own, group))
        (output * grad).sum().backward()
        return join_parts(output).detach(), own.grad, module.running_var

    for output, own_grad, variance in run_on_ranks((2, 2), run):
        torch.testing.assert_close(output, expected.detach(), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(own_grad, leaf.grad, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(variance, unsplit.running_var)


NORMS = [nn.GroupNorm(2, 4), nn.GroupNorm(1, 4, affine=False), nn.InstanceNorm2d(4, affine=True), nn.BatchNorm2d(4)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("module", NORMS, ids=["groups", "one group", "instance", "batch"])
def test_16_bit_values_with_a_large_mean_are_exact_to_their_rounding(module: nn.Module, dtype: torch.dtype) -> None:
    """Compare with float64 results: the error is at most the rounding of the result."""
    torch.manual_seed(5)
    module = deepcopy(module).to(dtype)
    with torch.no_grad():
        for weight in module.parameters():
            weight.normal_()
    image = (100 + torch.randn(2, 4, 9, 9)).to(dtype)
    unsplit, leaf = deepcopy(module).double(), image.double().requires_grad_()
    expected = unsplit(leaf)
    grad = torch.randn(2, 4, 9, 9).to(dtype)
    expected.backward(grad.double())
    assert leaf.grad is not None

    def run(group: Any) -> Any:
        own, own_image = deepcopy(module), image.clone().requires_grad_()
        for weight in own.parameters():
            weight.register_hook(join_parts)
        output = own(split(own_image, group))
        output.backward(split(grad, group))
        return join_parts(output).detach(), own_image.grad, own

    unit = torch.finfo(dtype).eps  # relative rounding error of the dtype
    for output, own_grad, own in run_on_ranks((2, 2), run):
        assert output.dtype == own_grad.dtype == dtype
        torch.testing.assert_close(output.double(), expected.detach(), rtol=unit, atol=1e-4)
        torch.testing.assert_close(own_grad.double(), leaf.grad, rtol=unit, atol=1e-4)
        for name, weight in unsplit.named_parameters():
            actual = own.get_parameter(name).grad
            assert actual.dtype == dtype
            assert weight.grad is not None
            torch.testing.assert_close(actual.double(), weight.grad, rtol=4 * unit, atol=4 * unit)  # each rank rounds


@pytest.mark.parametrize(
    ("module", "shape"),
    [(nn.BatchNorm2d(2), (1, 2, 1, 1)), (nn.GroupNorm(2, 2), (1, 2, 1, 1)), (nn.InstanceNorm2d(2), (2, 2, 1, 1))],
)
def test_groups_of_one_value_are_refused_as_in_torch(module: nn.Module, shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="more than 1"):
        module(torch.zeros(shape))
    with pytest.raises(ValueError, match="more than 1"):
        run_on_ranks((1, 2), lambda group: module(split(torch.zeros(shape), group)))


def test_group_norm_of_one_value() -> None:
    """Check a case that torch accepts for more than one sample: the output is the bias."""
    check_agreement(nn.GroupNorm(2, 2), (2, 2, 1, 1), (1, 2), 1)


@quick
@given(data=st.data(), mesh=meshes, seed=seeds, kind=kinds, groups=st.sampled_from([1, 2, 4]), affine=st.booleans())
def test_group_norm(data: Any, mesh: MeshCounts, seed: int, kind: Any, groups: int, affine: bool) -> None:
    dims = data.draw(st.integers(1, 3))
    shape = data.draw(shapes(dims, 4))
    assume(4 // groups * torch.Size(shape[2:]).numel() > 1)
    check_agreement(
        nn.GroupNorm(groups, 4, affine=affine), shape, mesh, seed, kind=kind, channels_last=data.draw(st.booleans())
    )


@quick
@given(
    data=st.data(),
    mesh=meshes,
    seed=seeds,
    kind=kinds,
    affine=st.booleans(),
    training=st.booleans(),
    tracked=st.booleans(),
)
def test_instance_norm(
    data: Any, mesh: MeshCounts, seed: int, kind: Any, affine: bool, training: bool, tracked: bool
) -> None:
    dims = data.draw(st.integers(1, 3))
    shape = data.draw(shapes(dims, 3))
    assume(torch.Size(shape[2:]).numel() > 1)
    module = INSTANCE[dims](3, affine=affine, track_running_stats=tracked).train(training)
    check_agreement(module, shape, mesh, seed, kind=kind)


@quick
@given(mesh=meshes, seed=seeds, kind=kinds, dims=st.integers(1, 3), affine=st.booleans())
def test_layer_norm(mesh: MeshCounts, seed: int, kind: Any, dims: int, affine: bool) -> None:
    """Check layer norms over columns, over pixels, and over channels and pixels."""
    shape = (3, 2, 5, 4)
    check_agreement(nn.LayerNorm(shape[-dims:], elementwise_affine=affine), shape, mesh, seed, kind=kind)
    check_agreement(nn.RMSNorm(shape[-dims:], elementwise_affine=affine), shape, mesh, seed, kind=kind)

"""Tests of pooling on tiles: results equal torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from tessera.spatial.tensor.boundary import join_parts
from tests.spatial.tensor.agreement import (
    Applied,
    MeshCounts,
    check_agreement,
    meshes,
    quick,
    run_on_ranks,
    seeds,
    split,
)

MAXIMA: dict[int, Any] = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
MEANS: dict[int, Any] = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}
ADAPTIVE: dict[int, Any] = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}

ADAPTIVE_MAXIMA: dict[int, Any] = {1: nn.AdaptiveMaxPool1d, 2: nn.AdaptiveMaxPool2d, 3: nn.AdaptiveMaxPool3d}


@st.composite
def pools(draw: st.DrawFn, dims: int, *, dilated: bool) -> tuple[dict[str, Any], tuple[int, ...]]:
    """Draw the arguments of a pool, and the shape of a batch of images that the pool fits."""

    def each(values: st.SearchStrategy[int]) -> list[int]:
        return [draw(values) for _ in range(dims)]

    kernel, stride = each(st.integers(1, 4)), each(st.integers(1, 4))
    dilation = each(st.integers(1, 2)) if dilated else [1] * dims
    padding = [draw(st.integers(0, k // 2)) for k in kernel]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    # torch refuses volumes smaller than the kernel; a dilated window that reads only padding has no gradient
    room = [r if dilated or dims == 3 else max(1, r - 2 * p) for r, p in zip(reach, padding, strict=True)]
    sizes = [draw(st.integers(least, least + 9)) for least in room]
    options: dict[str, Any] = {"kernel_size": tuple(kernel), "stride": tuple(stride), "padding": tuple(padding)}
    if dilated:
        options["dilation"] = tuple(dilation)
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *sizes)
    return options | {"ceil_mode": draw(st.booleans())}, shape


@quick
@given(case=pools(2, dilated=True), mesh=meshes, seed=seeds, last=st.booleans())
def test_any_maximum_of_images(case: Any, mesh: MeshCounts, seed: int, last: bool) -> None:
    options, shape = case
    check_agreement(nn.MaxPool2d(**options), shape, mesh, seed, channels_last=last)


@quick
@given(case=pools(2, dilated=False), mesh=meshes, seed=seeds, last=st.booleans(), counted=st.booleans(), data=st.data())
def test_any_mean_of_images(case: Any, mesh: MeshCounts, seed: int, last: bool, counted: bool, data: Any) -> None:
    options, shape = case
    divisor = data.draw(st.sampled_from([None, None, 1, 5]))
    module = nn.AvgPool2d(**options, count_include_pad=counted, divisor_override=divisor)
    check_agreement(module, shape, mesh, seed, channels_last=last)


@pytest.mark.parametrize("dims", [1, 3])
@quick
@given(data=st.data(), mesh=meshes, seed=seeds, counted=st.booleans())
def test_pools_of_signals_and_volumes(dims: int, data: Any, mesh: MeshCounts, seed: int, counted: bool) -> None:
    options, shape = data.draw(pools(dims, dilated=True))
    check_agreement(MAXIMA[dims](**options), shape, mesh, seed, rounds=1)
    options, shape = data.draw(pools(dims, dilated=False))
    check_agreement(MEANS[dims](**options, count_include_pad=counted), shape, mesh, seed, rounds=1)


@pytest.mark.parametrize("kind", ["samples", "channels", "whole"])
@pytest.mark.parametrize("module", [nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2)])
def test_pools_of_other_layouts(module: nn.Module, kind: Any) -> None:
    check_agreement(module, (2, 3, 6, 7), (2, 2), 3, kind=kind)


def test_equal_values_pass_their_gradient_to_the_same_pixel() -> None:
    torch.manual_seed(5)
    image = torch.randint(0, 3, (1, 2, 9, 9)).double()
    leaf = image.clone().requires_grad_()
    nn.MaxPool2d(3, 2, 1)(leaf).sum().backward()
    assert leaf.grad is not None

    def run(group: Any) -> Tensor | None:
        own = image.clone().requires_grad_()
        nn.MaxPool2d(3, 2, 1)(split(own, group)).sum().backward()
        return own.grad

    for grad in run_on_ranks((2, 2), run):
        assert torch.equal(grad, leaf.grad)


@st.composite
def adaptive(draw: st.DrawFn, dims: int, modules: dict[int, Any]) -> tuple[nn.Module, tuple[int, ...]]:
    sizes = [draw(st.integers(1, 9)) for _ in range(dims)]
    target = draw(st.sampled_from([(1,) * dims, None]))
    if target is None:
        target = tuple(draw(st.integers(1, 5)) for _ in range(dims))
    return modules[dims](target), (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *sizes)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("modules", [ADAPTIVE, ADAPTIVE_MAXIMA], ids=["mean", "maximum"])
@quick
@given(data=st.data(), mesh=meshes, seed=seeds)
def test_adaptive_pools(dims: int, modules: Any, data: Any, mesh: MeshCounts, seed: int) -> None:
    module, shape = data.draw(adaptive(dims, modules))
    check_agreement(module, shape, mesh, seed, channels_last=dims == 2)


def test_an_adaptive_pool_that_keeps_a_dim() -> None:
    check_agreement(nn.AdaptiveAvgPool2d((None, 2)), (1, 2, 5, 6), (2, 2), 6)
    check_agreement(nn.AdaptiveMaxPool2d((None, 2)), (1, 2, 5, 6), (2, 2), 6)


def test_halves_are_summed_in_higher_precision() -> None:
    image = torch.full((1, 1, 64, 64), 0.1, dtype=torch.bfloat16)

    def run(group: Any) -> float:
        return float(nn.AdaptiveAvgPool2d(1)(split(image, group)))

    expected = float(torch.tensor(0.1, dtype=torch.bfloat16))
    assert run_on_ranks((1, 2), run) == [expected] * 2


def unpool(x: Tensor) -> Tensor:
    values, indices = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(values * 2, indices, 2, output_size=x.shape[2:])


@quick
@given(mesh=meshes, seed=seeds, height=st.integers(2, 9), width=st.integers(2, 9))
def test_a_maximum_put_back_at_its_index(mesh: MeshCounts, seed: int, height: int, width: int) -> None:
    check_agreement(Applied(unpool), (2, 3, height, width), mesh, seed)


@quick
@given(case=pools(2, dilated=True), mesh=meshes, seed=seeds, last=st.booleans())
def test_the_indices_of_maxima(case: Any, mesh: MeshCounts, seed: int, last: bool) -> None:
    options, shape = case
    torch.manual_seed(seed)
    image = torch.randint(0, 4, shape).double()  # with equal values
    if last:
        image = image.contiguous(memory_format=torch.channels_last)
    module = nn.MaxPool2d(**options, return_indices=True)
    expected = module(image)

    def run(group: Any) -> Any:
        return [join_parts(part) for part in module(split(image, group))]

    for values, indices in run_on_ranks(mesh, run):
        assert torch.equal(values, expected[0])
        assert torch.equal(indices, expected[1])


@pytest.mark.parametrize("kind", ["tiles", "samples", "channels", "whole"])
@pytest.mark.parametrize("module", [nn.LPPool2d(2, 3, 2), nn.LPPool2d(3, 2, ceil_mode=True)], ids=str)
def test_power_average_pools(module: nn.Module, kind: Any) -> None:
    check_agreement(nn.Sequential(nn.Softplus(), module), (2, 3, 7, 8), (2, 2), 1, kind=kind)


@pytest.mark.parametrize(
    "module", [nn.MaxPool2d(2, padding=2), nn.AvgPool2d(7), nn.MaxPool2d(7)], ids=["padding", "mean", "maximum"]
)
def test_errors_of_torch_are_raised(module: nn.Module) -> None:
    with pytest.raises(RuntimeError) as expected:
        module(torch.zeros(1, 1, 4, 4))
    with pytest.raises(RuntimeError) as caught:
        run_on_ranks((1, 2), lambda group: module(split(torch.zeros(1, 1, 4, 4), group)))
    assert str(expected.value) in str(caught.value)

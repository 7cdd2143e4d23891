"""Pools cut over ranks against torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tests.spatial.layers.agreement import agrees, meshes, on_ranks, quick, seeds

MAXIMA: dict[int, Any] = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}
MEANS: dict[int, Any] = {1: nn.AvgPool1d, 2: nn.AvgPool2d, 3: nn.AvgPool3d}
ADAPTIVE: dict[int, Any] = {1: nn.AdaptiveAvgPool1d, 2: nn.AdaptiveAvgPool2d, 3: nn.AdaptiveAvgPool3d}


@st.composite
def pools(draw: st.DrawFn, dims: int, *, dilated: bool) -> tuple[dict[str, Any], tuple[int, ...]]:
    """The arguments of a pool, and the shape of a batch of images that it fits."""

    def each(values: st.SearchStrategy[int]) -> list[int]:
        return [draw(values) for _ in range(dims)]

    kernel, stride = each(st.integers(1, 4)), each(st.integers(1, 4))
    dilation = each(st.integers(1, 2)) if dilated else [1] * dims
    padding = [draw(st.integers(0, k // 2)) for k in kernel]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    # torch refuses volumes smaller than the kernel; a dilated window that reads padding alone has no gradient
    room = [r if dilated or dims == 3 else max(1, r - 2 * p) for r, p in zip(reach, padding, strict=True)]
    sizes = [draw(st.integers(least, least + 9)) for least in room]
    options: dict[str, Any] = {"kernel_size": tuple(kernel), "stride": tuple(stride), "padding": tuple(padding)}
    if dilated:
        options["dilation"] = tuple(dilation)
    shape = (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *sizes)
    return options | {"ceil_mode": draw(st.booleans())}, shape


@quick
@given(case=pools(2, dilated=True), mesh=meshes, seed=seeds, last=st.booleans())
def test_any_maximum_of_images(case: Any, mesh: Mesh, seed: int, last: bool) -> None:
    options, shape = case
    agrees(nn.MaxPool2d(**options), shape, mesh, seed, channels_last=last)


@quick
@given(case=pools(2, dilated=False), mesh=meshes, seed=seeds, last=st.booleans(), counted=st.booleans(), data=st.data())
def test_any_mean_of_images(case: Any, mesh: Mesh, seed: int, last: bool, counted: bool, data: Any) -> None:
    options, shape = case
    divisor = data.draw(st.sampled_from([None, None, 1, 5]))
    module = nn.AvgPool2d(**options, count_include_pad=counted, divisor_override=divisor)
    agrees(module, shape, mesh, seed, channels_last=last)


@pytest.mark.parametrize("dims", [1, 3])
@quick
@given(data=st.data(), mesh=meshes, seed=seeds, counted=st.booleans())
def test_pools_of_signals_and_volumes(dims: int, data: Any, mesh: Mesh, seed: int, counted: bool) -> None:
    options, shape = data.draw(pools(dims, dilated=True))
    agrees(MAXIMA[dims](**options), shape, mesh, seed, rounds=1)
    options, shape = data.draw(pools(dims, dilated=False))
    agrees(MEANS[dims](**options, count_include_pad=counted), shape, mesh, seed, rounds=1)


@pytest.mark.parametrize("kind", ["samples", "whole"])
@pytest.mark.parametrize("module", [nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(2)])
def test_whole_images_are_pooled_where_they_are(module: nn.Module, kind: Any) -> None:
    agrees(module, (2, 3, 6, 7), Mesh(2, 2), 3, kind=kind)


def test_equal_values_pass_their_gradient_to_the_same_pixel() -> None:
    torch.manual_seed(5)
    image = torch.randint(0, 3, (1, 2, 9, 9)).double().requires_grad_()
    nn.MaxPool2d(3, 2, 1)(image).sum().backward()

    def run(layer: Any, own: Any, transport: Any) -> None:
        rows, cols = (slice(0, 5), slice(5, 9)), (slice(0, 5), slice(5, 9))
        row, col = divmod(transport.rank, 2)
        part = (slice(None), slice(None), rows[row], cols[col])
        tile = image.detach()[part].clone().requires_grad_()
        layer(tile).sum().backward()
        assert image.grad is not None
        assert torch.equal(tile.grad, image.grad[part])

    on_ranks(nn.MaxPool2d(3, 2, 1), (1, 9, 9), Mesh(2, 2), run)


@st.composite
def adaptive(draw: st.DrawFn, dims: int) -> tuple[nn.Module, tuple[int, ...]]:
    sizes = [draw(st.integers(1, 9)) for _ in range(dims)]
    target = draw(st.sampled_from([(1,) * dims, None]))
    if target is None:
        target = tuple(draw(st.integers(1, 5)) for _ in range(dims))
    return ADAPTIVE[dims](target), (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *sizes)


@pytest.mark.parametrize("dims", [1, 2, 3])
@quick
@given(data=st.data(), mesh=meshes, seed=seeds)
def test_adaptive_means_are_whole_on_every_rank(dims: int, data: Any, mesh: Mesh, seed: int) -> None:
    module, shape = data.draw(adaptive(dims))
    agrees(module, shape, mesh, seed, channels_last=dims == 2)
    kinds = on_ranks(module, (shape[0], *shape[2:]), mesh, lambda layer, own, transport: layer.placed.kind)
    assert kinds == ["whole"] * mesh.size


def test_a_dim_that_is_left_as_it_is() -> None:
    agrees(nn.AdaptiveAvgPool2d((None, 2)), (1, 2, 5, 6), Mesh(2, 2), 6)


def test_halves_are_added_up_in_more_than_halves() -> None:
    def run(layer: Any, own: Any, transport: Any) -> float:
        return float(layer(torch.full((1, 1, 64, 32), 0.1, dtype=torch.bfloat16)))

    expected = float(torch.tensor(0.1, dtype=torch.bfloat16))
    assert on_ranks(nn.AdaptiveAvgPool2d(1), (1, 64, 64), Mesh(1, 2), run) == [expected] * 2


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (nn.MaxPool2d(2, return_indices=True), "return_indices=False"),
        (nn.MaxPool2d(2, padding=2), "half of its window"),
        (nn.AdaptiveMaxPool2d(1), "gather_at"),
        (nn.AvgPool2d(7), "does not fit"),
    ],
)
def test_refusals(module: nn.Module, said: str) -> None:
    with pytest.raises(TesseraError, match=f"part.layer.*{said}"):
        on_ranks(module, (1, 4, 4), Mesh(1, 2), lambda *_: None)


def test_a_second_forward_before_backward_is_refused() -> None:
    def run(layer: Any, own: Any, transport: Any) -> None:
        first, second = (torch.randn(1, 1, 6, 3, requires_grad=True) for _ in range(2))
        output = layer(first)
        layer(second)
        with pytest.raises(TesseraError, match="run backward before the next forward"):
            output.sum().backward()

    on_ranks(nn.MaxPool2d(3, 1, 1), (1, 6, 6), Mesh(1, 2), run)

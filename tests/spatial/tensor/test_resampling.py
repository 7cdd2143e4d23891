"""Tests of up- and downsampling on tiles: results equal torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

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

LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}
factors = st.one_of(st.sampled_from([1.0, 2.0, 4.0, 3.0, 0.5]), st.floats(0.3, 3.5))


@st.composite
def resamplings(draw: st.DrawFn, dims: int, modes: tuple[str, ...]) -> tuple[nn.Module, tuple[int, ...]]:
    mode = draw(st.sampled_from(modes))
    options: dict[str, Any] = {"mode": mode}
    if mode in LINEAR.values():
        options["align_corners"] = draw(st.booleans())
    sizes = [draw(st.integers(4, 12 if dims < 3 else 6)) for _ in range(dims)]
    if draw(st.booleans()):
        options["size"] = tuple(draw(st.integers(1, 20 if dims < 3 else 8)) for _ in range(dims))
    else:
        by_scale = draw(st.booleans())
        options["scale_factor"] = draw(factors) if by_scale else tuple(draw(factors) for _ in range(dims))
        options["recompute_scale_factor"] = draw(st.sampled_from([None, False, True]))
    return nn.Upsample(**options), (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *sizes)


@quick
@given(case=resamplings(2, ("nearest", "nearest-exact")), mesh=meshes, seed=seeds, last=st.booleans())
@example(case=(nn.Upsample(scale_factor=1.125, mode="nearest-exact"), (1, 1, 4, 6)), mesh=(1, 2), seed=0, last=False)
def test_nearest_of_images(case: Any, mesh: MeshCounts, seed: int, last: bool) -> None:
    module, shape = case
    check_agreement(module, shape, mesh, seed, channels_last=last)


@quick
@given(case=resamplings(2, ("bilinear",)), mesh=meshes, seed=seeds, last=st.booleans())
def test_bilinear_of_images(case: Any, mesh: MeshCounts, seed: int, last: bool) -> None:
    module, shape = case
    check_agreement(module, shape, mesh, seed, channels_last=last)


@pytest.mark.parametrize("dims", [1, 3])
@quick
@given(data=st.data(), mesh=meshes, seed=seeds)
def test_signals_and_volumes(dims: int, data: Any, mesh: MeshCounts, seed: int) -> None:
    module, shape = data.draw(resamplings(dims, ("nearest", "nearest-exact", LINEAR[dims])))
    check_agreement(module, shape, mesh, seed, rounds=1)


def test_a_nearest_gradient_of_torch_that_differs_from_its_output() -> None:
    """Check a case in which torch's forward reads pixel 0 three times, but its backward counts it twice."""
    check_agreement(nn.Upsample(scale_factor=2.2), (1, 3, 4), (1, 2), 0)
    check_agreement(nn.Upsample(scale_factor=2.2), (1, 2, 4, 6), (1, 2), 0)
    check_agreement(nn.Upsample(scale_factor=1.125), (1, 2, 4, 8), (2, 2), 0)
    check_agreement(nn.Upsample(scale_factor=1.125), (1, 2, 4, 4), (2, 2), 0)


@quick
@given(
    mesh=meshes,
    seed=seeds,
    mode=st.sampled_from(["bilinear", "bicubic", "area", "nearest", "nearest-exact"]),
    antialias=st.booleans(),
    size=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    kind=st.sampled_from(["tiles", "samples", "channels", "whole"]),
)
def test_any_mode_and_size(
    mesh: MeshCounts, seed: int, mode: str, antialias: bool, size: tuple[int, int], kind: Any
) -> None:
    antialias = antialias and mode in ("bilinear", "bicubic")

    def resize(x: Tensor) -> Tensor:
        return F.interpolate(x, size=size, mode=mode, antialias=antialias)

    check_agreement(Applied(resize), (2, 3, 7, 9), mesh, seed, kind=kind)


@pytest.mark.parametrize("kind", ["samples", "channels", "whole"])
def test_images_of_other_layouts(kind: Any) -> None:
    check_agreement(nn.Upsample(scale_factor=1.5, mode="bicubic"), (2, 2, 5, 6), (1, 3), 0, kind=kind)


@quick
@given(
    mesh=meshes,
    seed=seeds,
    mode=st.sampled_from(["nearest", "bilinear", "bicubic"]),
    factor=st.sampled_from([(2, 2), (4, 2), (3, 3), (1, 2)]),
    height=st.integers(1, 16),
    width=st.integers(1, 16),
    last=st.booleans(),
)
def test_whole_factors(
    mesh: MeshCounts, seed: int, mode: str, factor: tuple[int, int], height: int, width: int, last: bool
) -> None:
    check_agreement(
        nn.Upsample(scale_factor=factor, mode=mode), (1, 2, height, width), mesh, seed, channels_last=last, rounds=1
    )


@pytest.mark.parametrize("factor", [2, 3])
@quick
@given(mesh=meshes, seed=seeds, height=st.integers(1, 5), width=st.integers(1, 5))
def test_pixels_shuffled_to_channels_and_back(
    factor: int, mesh: MeshCounts, seed: int, height: int, width: int
) -> None:
    check_agreement(nn.PixelShuffle(factor), (2, 2 * factor**2, height, width), mesh, seed)
    check_agreement(nn.PixelUnshuffle(factor), (2, 2, height * factor, width * factor), mesh, seed)


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("kind", ["tiles", "samples", "channels"])
def test_sampling_on_a_grid(mode: str, kind: Any) -> None:
    def sample(x: Tensor, angle: Tensor) -> Tensor:
        grid = F.affine_grid(angle.expand(x.shape[0], 2, 3), list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, mode=mode, align_corners=False)

    check_agreement(Applied(sample, (1, 2, 3)), (2, 3, 6, 7), (2, 2), 4, kind=kind)


def test_a_resampling_without_size_is_refused_as_in_torch() -> None:
    with pytest.raises(ValueError, match="size or scale_factor should be defined"):
        run_on_ranks((1, 2), lambda group: nn.Upsample()(split(torch.zeros(1, 1, 4, 4), group)))

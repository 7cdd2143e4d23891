"""Up- and downsampling cut over ranks against torch's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.spatial.layers.enlarging import Enlarged
from tessera.spatial.layers.resampling import Resampling, resample
from tessera.spatial.layers.taps import Tapped, linear_taps, nearest_taps
from tests.spatial.layers.agreement import agrees, meshes, on_ranks, quick, seeds

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
        one = draw(st.booleans())
        options["scale_factor"] = draw(factors) if one else tuple(draw(factors) for _ in range(dims))
        only = [True] if mode == "nearest" and dims != 2 else [None, False, True]  # others may be refused
        options["recompute_scale_factor"] = draw(st.sampled_from(only))
    return nn.Upsample(**options), (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *sizes)


@quick
@given(case=resamplings(2, ("nearest", "nearest-exact")), mesh=meshes, seed=seeds, last=st.booleans())
@example(
    case=(nn.Upsample(scale_factor=1.125, mode="nearest-exact"), (1, 1, 4, 6)), mesh=Mesh(1, 2), seed=0, last=False
)
def test_nearest_of_images(case: Any, mesh: Mesh, seed: int, last: bool) -> None:
    module, shape = case
    agrees(module, shape, mesh, seed, channels_last=last)


@quick
@given(case=resamplings(2, ("bilinear",)), mesh=meshes, seed=seeds, last=st.booleans())
def test_bilinear_of_images(case: Any, mesh: Mesh, seed: int, last: bool) -> None:
    module, shape = case
    agrees(module, shape, mesh, seed, channels_last=last)


@pytest.mark.parametrize("dims", [1, 3])
@quick
@given(data=st.data(), mesh=meshes, seed=seeds)
def test_signals_and_volumes(dims: int, data: Any, mesh: Mesh, seed: int) -> None:
    module, shape = data.draw(resamplings(dims, ("nearest", "nearest-exact", LINEAR[dims])))
    agrees(module, shape, mesh, seed, rounds=1)


def test_a_gradient_of_torch_that_is_not_of_its_output() -> None:
    """Kept to see when torch mends it: forward pixel 0 is read three times, backward twice."""
    signal = torch.arange(4.0).view(1, 1, 4).requires_grad_()
    output = F.interpolate(signal, scale_factor=2.2)
    output.sum().backward()
    assert output.flatten().tolist().count(0) == 3
    assert signal.grad is not None
    assert float(signal.grad.flatten()[0]) == 2
    with pytest.raises(TesseraError, match=r"part.layer.*scale_factor=2.2.*recompute_scale_factor=True"):
        on_ranks(nn.Upsample(scale_factor=2.2), (1, 4), Mesh(1, 2), lambda *_: None)
    agrees(nn.Upsample(scale_factor=2.2), (1, 2, 4, 6), Mesh(1, 2), 0)  # of images they belong together
    agrees(nn.Upsample(scale_factor=1.125), (1, 2, 4, 8), Mesh(2, 2), 0)
    agrees(nn.Upsample(scale_factor=1.125), (1, 2, 4, 4), Mesh(2, 2), 0)


@pytest.mark.parametrize("kind", ["samples", "whole"])
def test_whole_images_are_resampled_where_they_are(kind: Any) -> None:
    agrees(nn.Upsample(scale_factor=1.5, mode="bicubic"), (2, 2, 5, 6), Mesh(1, 3), 0, kind=kind)


@quick
@given(
    size=st.integers(1, 3000),
    target=st.integers(1, 6000),
    scale=st.one_of(st.none(), st.floats(0.05, 8.0)),
    mode=st.sampled_from(["nearest", "nearest-exact"]),
    precision=st.sampled_from([torch.float32, torch.float64]),
    last=st.booleans(),
)
def test_nearest_pixels_are_torchs(size: int, target: int, scale: Any, mode: str, precision: Any, last: bool) -> None:
    image = torch.rand(1, 3, 2, size, dtype=precision)
    image = image.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    if scale is not None:
        target = int(size * scale)
        if target < 1:
            return
        expected = F.interpolate(image, scale_factor=(2.0, scale), mode=mode)
    else:
        expected = F.interpolate(image, size=(4, target), mode=mode)
    found = nearest_taps(size, target, scale, mode, precision, last).read(image, 3)
    assert torch.equal(found, expected[:, :, ::2])


@quick
@given(
    size=st.integers(1, 3000),
    target=st.integers(1, 6000),
    scale=st.one_of(st.none(), st.floats(0.05, 8.0)),
    align=st.booleans(),
    precision=st.sampled_from([torch.float32, torch.float64]),
)
def test_weights_of_neighbours_are_torchs(size: int, target: int, scale: Any, align: bool, precision: Any) -> None:
    image = torch.rand(1, 2, size, dtype=precision)
    if scale is not None:
        target = int(size * scale)
        if target < 1:
            return
        expected = F.interpolate(image, scale_factor=scale, mode="linear", align_corners=align)
    else:
        expected = F.interpolate(image, size=target, mode="linear", align_corners=align)
    found = linear_taps(size, target, scale, align, precision).read(image, 2)
    tolerance = 1e-12 if precision == torch.float64 else 1e-3  # of an index of thousands, floats keep four places
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_powers_of_two_take_torchs_own_kernels() -> None:
    def run(layer: Any, own: Any, transport: Any) -> type:
        return type(layer._reading(torch.float32))

    for module, kind in (
        (nn.Upsample(scale_factor=2), Enlarged),
        (nn.UpsamplingNearest2d(scale_factor=4), Enlarged),
        (nn.Upsample(scale_factor=2, mode="bilinear"), Enlarged),
        (nn.UpsamplingBilinear2d(scale_factor=2), Tapped),  # which aligns corners
        (nn.Upsample(scale_factor=3), Tapped),
        (nn.Upsample(size=(8, 7)), Tapped),
    ):
        assert on_ranks(module, (1, 4, 4), Mesh(1, 2), run) == [kind] * 2


def test_an_interpolation_without_a_module() -> None:
    def run(layer: Any, own: Any, transport: Any) -> tuple[int, ...]:
        asked = Resampling(size=(6, 9), mode="bilinear", align_corners=True)
        return resample(asked, layer.placed, layer._settings).placed.sizes  # type: ignore[no-any-return]

    assert on_ranks(nn.Upsample(scale_factor=2), (1, 4, 4), Mesh(1, 2), run) == [(1, 6, 9)] * 2


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (nn.Upsample(scale_factor=2, mode="bicubic"), "allowed: nearest, nearest-exact, bilinear.*gather_at"),
        (nn.Upsample(), "to a size or by a factor"),
    ],
)
def test_refusals(module: nn.Module, said: str) -> None:
    with pytest.raises(TesseraError, match=f"part.layer.*{said}"):
        on_ranks(module, (1, 4, 4), Mesh(1, 2), lambda *_: None)

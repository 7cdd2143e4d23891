"""Tests of convolutions on tiles, with any window: results equal torch's."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tessera.errors import TesseraError
from tessera.geometry import HaloPlan, Mesh, Partition, Window
from tessera.spatial.distribution import OVERLAPS, Distribution, SpatialSettings
from tessera.spatial.exchange import CountedExchange, halo_exchange
from tessera.spatial.layers.convolution import TileConvolution, build_convolution
from tessera.spatial.layers.overlap import OverlapStages
from tessera.transport.in_process import run_ranks
from tests.spatial.layers.agreement import check_agreement, copy_part, meshes, quick, run_on_ranks, seeds

CONVOLUTIONS: dict[int, Any] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}


@st.composite
def convolutions(draw: st.DrawFn, dims: int = 2, *, plain: bool = False) -> tuple[nn.Module, tuple[int, ...]]:
    """Draw a convolution and the shape of images that it fits; `plain`: stride 1 and zero padding."""

    def each(values: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(values) for _ in range(dims))

    kernel, dilation = each(st.integers(1, 4)), each(st.integers(1, 2))
    word = draw(st.sampled_from(["same", "valid", None, None, None]))
    stride = (1,) * dims if word == "same" or plain else each(st.integers(1, 3))
    mode = "zeros" if plain else draw(st.sampled_from(["zeros", "zeros", "reflect", "replicate", "circular"]))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    padding = each(st.integers(0, 3))
    pads = {"same": [r - 1 for r in reach], "valid": [0] * dims}.get(word or "", list(padding))
    least = [max(1, r - 2 * p, p + (mode != "zeros")) for r, p in zip(reach, pads, strict=True)]
    sizes = [small + draw(st.integers(0, 9 if dims < 3 else 4)) for small in least]
    groups = draw(st.integers(1, 2))
    channels, filters = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    module = CONVOLUTIONS[dims](
        channels,
        filters,
        kernel,
        stride=stride,
        dilation=dilation,
        padding=word or padding,
        padding_mode=mode,
        groups=groups,
        bias=draw(st.booleans()),
    )
    return module, (draw(st.integers(1, 2)), channels, *sizes)


@quick
@given(case=convolutions(), mesh=meshes, seed=seeds, overlap=st.sampled_from(OVERLAPS), last=st.booleans())
def test_any_convolution_of_images(case: Any, mesh: Mesh, seed: int, overlap: Any, last: bool) -> None:
    module, shape = case
    check_agreement(module, shape, mesh, seed, overlap=overlap, channels_last=last)


@quick
@given(case=convolutions(dims=1), mesh=meshes, seed=seeds, overlap=st.sampled_from(OVERLAPS))
def test_any_convolution_of_signals(case: Any, mesh: Mesh, seed: int, overlap: Any) -> None:
    module, shape = case
    check_agreement(module, shape, mesh, seed, overlap=overlap, rounds=1)


@quick
@given(case=convolutions(dims=3), mesh=meshes, seed=seeds, last=st.booleans())
def test_any_convolution_of_volumes(case: Any, mesh: Mesh, seed: int, last: bool) -> None:
    module, shape = case
    check_agreement(module, shape, mesh, seed, channels_last=last, rounds=1)


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_the_first_layer_needs_no_gradient_of_its_image(overlap: Any) -> None:
    check_agreement(nn.Conv2d(3, 4, 3, padding=1), (2, 3, 9, 8), Mesh(2, 2), 0, overlap=overlap, of_image=False)


def test_more_ranks_than_rows() -> None:
    check_agreement(nn.Conv2d(2, 3, 3, padding=1), (1, 2, 2, 1), Mesh(3, 2), 1)


def test_frozen_weights_get_no_gradient() -> None:
    module = nn.Conv2d(1, 1, 3, padding=1)
    module.weight.requires_grad_(False)

    def run(layer: Any, own: Any, transport: Any) -> None:
        tile = torch.randn(1, 1, 4, 2, requires_grad=True)
        layer(tile).sum().backward()
        assert own.weight.grad is None
        assert tile.grad is not None
        assert float(own.bias.grad) == 8

    run_on_ranks(module, (1, 4, 4), Mesh(1, 2), run)


def test_a_window_of_one_pixel_needs_no_buffer() -> None:
    def run(layer: Any, own: Any, transport: Any) -> bool:
        assert isinstance(layer, TileConvolution)
        return layer._frames.is_needed

    assert run_on_ranks(nn.Conv2d(1, 1, 1), (1, 4, 4), Mesh(1, 2), run) == [False, False]
    assert run_on_ranks(nn.Conv2d(1, 1, 1, stride=2), (1, 8, 8), Mesh(1, 2), run) == [False, False]
    assert run_on_ranks(nn.Conv2d(1, 1, 1, stride=2), (1, 4, 3), Mesh(1, 3), run) == [True] * 3  # column 2 is sent
    assert run_on_ranks(nn.Conv2d(1, 1, 3, padding=1), (1, 8, 8), Mesh(1, 2), run) == [True, True]


@pytest.mark.parametrize("make", [nn.Conv2d, nn.ConvTranspose2d])
def test_a_second_forward_before_backward_is_refused(make: Any) -> None:
    def run(layer: Any, own: Any, transport: Any) -> None:
        first, second = (torch.randn(1, 1, 6, 3, requires_grad=True) for _ in range(2))
        output = layer(first)
        latest = layer(second)
        with pytest.raises(TesseraError, match="run the backward pass before the next forward pass"):
            output.sum().backward()
        latest.sum().backward()
        assert first.grad is None
        assert second.grad is not None

    run_on_ranks(make(1, 1, 3, padding=1), (1, 6, 6), Mesh(1, 2), run)


def test_an_overwritten_frame_gives_no_gradient() -> None:
    image = Partition.split_by_grid((1, 6, 6), Mesh(1, 2))
    plan = HaloPlan(image, Window.of(3, padding=1), image)

    def run(transport: Any) -> None:
        first = torch.randn(1, 1, 6, 3, requires_grad=True)
        weight = torch.randn(1, 1, 3, 3, requires_grad=True)
        frame = halo_exchange(first, plan, transport)
        linear, convolved = frame.sum(), nn.functional.conv2d(frame, weight).sum()
        with torch.no_grad():
            halo_exchange(first, plan, transport)
        with pytest.raises(TesseraError, match="run the backward pass before the next forward pass"):
            linear.backward()
        with pytest.raises(
            RuntimeError, match="which is output 0 of HaloExchange"
        ):  # torch checks the tensors that it saved itself
            torch.autograd.grad(convolved, weight)

    run_ranks(2, run)


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_a_tile_of_the_wrong_shape_is_refused(overlap: Any) -> None:
    def run(layer: Any, own: Any, transport: Any) -> None:
        with torch.no_grad(), pytest.raises(TesseraError, match="wrong shape or dtype for a tile"):
            layer(torch.randn(1, 1, 6, 1))  # `copy_` would broadcast this tile over all columns

    run_on_ranks(nn.Conv2d(1, 1, 3, padding=1), (1, 6, 6), Mesh(1, 2), run, overlap=overlap)


def test_buffers_allocated_without_gradients_work_for_training() -> None:
    module = nn.Conv2d(1, 1, 3, padding=1)

    def run(layer: Any, own: Any, transport: Any) -> None:
        tile = torch.randn(1, 1, 6, 3)
        with torch.inference_mode():
            expected = layer(tile).clone()
        output = layer(tile.requires_grad_())
        assert torch.equal(output, expected)
        output.sum().backward()
        assert tile.grad is not None

    run_on_ranks(module, (1, 6, 6), Mesh(1, 2), run)


def test_buffers_are_freed_with_their_layer() -> None:
    module = nn.Conv2d(1, 1, 3, padding=1)

    def run(transport: Any) -> bool:
        settings = SpatialSettings(transport=transport, mesh=Mesh(1, 2))
        layer: Any = build_convolution(module, Distribution.of(settings.mesh, (1, 6, 6)), settings)
        layer(torch.randn(1, 1, 6, 3))
        buffers = weakref.ref(layer._frames.exchange(torch.randn(1, 1, 6, 3)))
        del layer
        gc.collect()
        return buffers() is None

    assert run_ranks(2, run) == [True, True]


def test_the_interior_follows_from_the_plan() -> None:
    distribution = Distribution.of(Mesh(3, 3), (1, 12, 12))
    middle = OverlapStages.of(HaloPlan(distribution.partition, Window.of(3, padding=1), distribution.partition), 4)
    assert repr(middle.interior) == "Box(0:1, 5:7, 5:7)"
    assert sum(box.size for box in middle.borders) + middle.interior.size == 16
    mirrored = OverlapStages.of(
        HaloPlan(distribution.partition, Window.of(3, padding=1), distribution.partition, "reflect"), 0
    )
    assert repr(mirrored.interior) == "Box(0:1, 1:3, 1:3)"  # mirrored padding belongs to the borders


def test_auto_times_once_and_all_ranks_agree() -> None:
    def run(layer: Any, own: Any, transport: Any) -> str:
        tile = torch.randn(1, 2, 8, 4)
        layer(tile)
        (exchange, _), chosen = next(iter(layer._chosen.items()))
        rounds = exchange.rounds
        layer(tile)
        assert exchange.rounds == rounds + 1
        return str(chosen)

    assert len(set(run_on_ranks(nn.Conv2d(2, 2, 3, padding=1), (1, 8, 8), Mesh(1, 2), run, overlap="auto"))) == 1


@pytest.mark.parametrize("overlap", OVERLAPS)
def test_gradients_are_sent_while_others_are_computed_unless_overlap_is_none(
    overlap: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[int, list[str]] = {0: [], 1: []}
    compute, finish = TileConvolution.compute_gradients, CountedExchange.finish_adjoint

    def log_compute(layer: Any, grad: Any, frame: Any, weight: Any, bias: Any, wanted: list[bool]) -> Any:
        seen[layer._settings.transport.rank].append("tile" if wanted[0] else "weight")
        return compute(layer, grad, frame, weight, bias, wanted)

    def log_finish(exchange: Any) -> Any:
        seen[exchange._transport.rank].append("arrived")
        return finish(exchange)

    monkeypatch.setattr(TileConvolution, "compute_gradients", log_compute)
    monkeypatch.setattr(CountedExchange, "finish_adjoint", log_finish)

    def run(layer: Any, own: Any, transport: Any) -> None:
        layer(torch.randn(1, 1, 6, 3, requires_grad=True)).sum().backward()

    run_on_ranks(nn.Conv2d(1, 1, 3, padding=1), (1, 6, 6), Mesh(1, 2), run, overlap=overlap)
    expected = ["tile", "arrived", "weight"] if overlap == "none" else ["tile", "weight", "arrived"]
    assert seen == {0: expected, 1: expected}


def test_weights_are_read_at_every_call() -> None:
    module = nn.Conv2d(1, 1, 3, padding=1, bias=False)
    image = torch.randn(1, 1, 4, 4)

    def run(layer: Any, own: Any, transport: Any) -> None:
        tile = copy_part(image, Distribution.of(Mesh(1, 2), (1, 4, 4)).get_box(transport.rank))
        layer(tile)
        with torch.no_grad():
            own.weight.zero_()
        assert not layer(tile).any()

    run_on_ranks(module, (1, 4, 4), Mesh(1, 2), run)


@quick
@given(case=convolutions(), mesh=meshes, seed=seeds, overlap=st.sampled_from(OVERLAPS), last=st.booleans())
def test_inference_in_several_rounds(case: Any, mesh: Mesh, seed: int, overlap: Any, last: bool) -> None:
    """Check inference in several rounds. Without gradients, the frame may contain only the borders."""
    module, shape = case
    torch.manual_seed(seed)
    layout = torch.channels_last if last else torch.contiguous_format
    images = [torch.randn(shape).contiguous(memory_format=layout) for _ in range(3)]
    sizes = (shape[0], *shape[2:])
    inputs = Distribution.of(mesh, sizes)

    @torch.no_grad()
    def run(layer: Any, own: Any, transport: Any) -> Any:
        return [layer(copy_part(image, inputs.get_box(transport.rank))) for image in images], layer.distribution

    with torch.no_grad():
        expected = [module(image) for image in images]
    results = run_on_ranks(module, sizes, mesh, run, overlap=overlap, channels_last=last)
    for rank, (outputs, distribution) in enumerate(results):
        for output, whole in zip(outputs, expected, strict=True):
            torch.testing.assert_close(
                output, copy_part(whole, distribution.get_box(rank)), rtol=1e-4, atol=1e-4, check_stride=False
            )


@pytest.mark.parametrize("dims", CONVOLUTIONS)
@quick
@given(data=st.data(), mesh=meshes, seed=seeds, last=st.booleans())
def test_contributions_of_the_halo_are_added(dims: int, data: st.DataObject, mesh: Mesh, seed: int, last: bool) -> None:
    """Check inference with a stride of one: the tile is convolved without a halo, then the halo's part is added."""
    module, shape = data.draw(convolutions(dims, plain=True))
    torch.manual_seed(seed)
    module, image = module.double(), torch.randn(shape, dtype=torch.float64)
    sizes = (shape[0], *shape[2:])
    inputs = Distribution.of(mesh, sizes)

    @torch.no_grad()
    def run(layer: Any, own: Any, transport: Any) -> Any:
        tile = copy_part(image, inputs.get_box(transport.rank))
        return layer(tile), layer(tile), layer.distribution.get_box(transport.rank)

    with torch.no_grad():
        expected = module(image)
    for *outputs, box in run_on_ranks(module, sizes, mesh, run, overlap="recompute", channels_last=last):
        for output in outputs:
            torch.testing.assert_close(output, copy_part(expected, box), rtol=1e-10, atol=1e-10, check_stride=False)


def test_inference_does_not_copy_the_tile() -> None:
    distribution = Distribution.of(Mesh(1, 2), (1, 8, 8))
    for window, has in ((Window.of(3, padding=1), True), (Window.of(2, padding=[(0, 1), (0, 1)]), False)):
        stages = OverlapStages.of(HaloPlan(distribution.partition, window, distribution.partition), 0)
        assert (stages.shortcut is not None) == has

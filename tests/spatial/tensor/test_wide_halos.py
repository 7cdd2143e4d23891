"""Tests of halos that serve several windows in a row: results equal torch's, and exchanges are saved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tessera.errors import TesseraError
from tessera.spatial import parallelize
from tessera.spatial.tensor import transfer
from tessera.spatial.tensor.boundary import join_parts
from tessera.spatial.tensor.halo_depth import LinkCosts, choose_depth
from tessera.spatial.tensor.layout import split_dims_evenly
from tessera.spatial.tensor.rules import wide_windows
from tessera.spatial.tensor.split_tensor import SplitGroup, get_margin
from tessera.transport.in_process import InProcessTransport, open_single_rank, run_ranks
from tests.spatial.tensor.agreement import (
    MeshCounts,
    check_agreement,
    check_close,
    meshes,
    run_on_ranks,
    seeds,
    split,
)

depths = st.integers(2, 6)


def make_stack(count: int, channels: int = 2, **options: Any) -> nn.Sequential:
    """Return convolutions with biases, which make an output of zero padding different from zero."""
    layers = [nn.Conv2d(channels, channels, 3, padding=1, **options) for _ in range(count)]
    return nn.Sequential(*(layer for conv in layers for layer in (conv, nn.ReLU())))


@contextmanager
def count_exchanges() -> Iterator[list[int]]:
    """Count the rounds in which data is sent, of all ranks together."""
    counts = [0]
    start = transfer._Line.start

    def counting(line: Any, tile: Tensor) -> None:
        counts[0] += 1
        start(line, tile)

    transfer._Line.start = counting  # type: ignore[method-assign]
    try:
        yield counts
    finally:
        transfer._Line.start = start  # type: ignore[method-assign]


class Residual(nn.Module):
    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x)


class Dense(Residual):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.layers(x)], 1)[:, : x.shape[1]]


class Written(Residual):
    """Write to a view of an activation, and to the activation, between two convolutions."""

    def forward(self, x: Tensor) -> Tensor:
        y = self.layers[0](x)
        before = y.detach()
        y[:, :1] += 1
        z = self.layers[1](y * 2).contiguous()
        z.view(-1)[3:9].mul_(2)
        z[:, :, 1].mul_(before[:, :, 1])
        return self.layers[2](z).add_(before)


@st.composite
def networks(draw: Any, channels: int = 2) -> nn.Module:
    """Draw a network of convolutions, norms, activations, pools, residuals and joins on the same channels."""

    def draw_convolution() -> nn.Module:
        kernel, dilation = draw(st.sampled_from([(1, 1), (3, 1), (3, 1), (3, 2), (5, 1), (2, 1), (4, 1)]))
        padding = draw(st.sampled_from([(kernel - 1) * dilation // 2] * 4 + [0, 1]))
        stride = draw(st.sampled_from([1, 1, 1, 1, 2]))
        groups = draw(st.sampled_from([1, channels]))
        return nn.Conv2d(channels, channels, kernel, stride=stride, padding=padding, dilation=dilation, groups=groups)

    def draw_even() -> nn.Module:
        return nn.Conv2d(channels, channels, 3, padding=1, bias=draw(st.booleans()))

    def draw_layer() -> nn.Module:
        kind = draw(st.sampled_from(["conv"] * 4 + ["act", "norm", "residual", "dense", "pool", "written"]))
        if kind == "conv":
            return draw_convolution()
        if kind == "act":
            return draw(st.sampled_from([nn.ReLU(inplace=True), nn.SiLU(), nn.ReLU6(), nn.Tanh(), nn.PReLU(channels)]))
        if kind == "norm":
            return draw(
                st.sampled_from(
                    [nn.BatchNorm2d(channels), nn.BatchNorm2d(channels).eval(), nn.GroupNorm(channels, channels)]
                )
            )
        if kind == "pool":
            return draw(st.sampled_from([nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(3, 1, 1), nn.MaxPool2d(2)]))
        inner = [draw_even(), nn.BatchNorm2d(channels), nn.ReLU(inplace=draw(st.booleans())), draw_even()]
        if kind == "written":
            return Written(*(draw_even() for _ in range(3)))
        return (Residual if kind == "residual" else Dense)(*inner[: draw(st.sampled_from([1, 3, 4]))])

    return nn.Sequential(draw_even(), *(draw_layer() for _ in range(draw(st.integers(2, 6)))), draw_even())


@settings(max_examples=30, deadline=None)
@given(
    network=networks(),
    mesh=meshes,
    depth=depths,
    seed=seeds,
    height=st.integers(19, 27),
    width=st.integers(19, 27),
    last=st.booleans(),
)
def test_any_network(
    network: nn.Module, mesh: MeshCounts, depth: int, seed: int, height: int, width: int, last: bool
) -> None:
    try:
        network(torch.zeros(2, 2, height, width)).sum().backward()
    except (RuntimeError, ValueError, IndexError):
        return  # the image became too small, or a layer writes what another one has saved
    network.zero_grad()
    # Random weights make activations of up to 1e6, and gradients before a norm are differences of large numbers.
    check_agreement(
        network, (2, 2, height, width), mesh, seed, channels_last=last, halo_depth=depth, rounds=1, tolerance=1e-7
    )


@pytest.mark.parametrize("mesh", [(1, 2), (2, 2), (1, 3)])
@pytest.mark.parametrize("depth", [2, 3, 8])
def test_padding_is_zero_for_every_convolution(mesh: MeshCounts, depth: int) -> None:
    """Check that pixels outside of the image are zero for every layer, not the bias of the layer before."""
    network = nn.Sequential(*(nn.Conv2d(1, 1, 3, padding=1) for _ in range(4)))
    for kind in ("tiles", "whole"):
        check_agreement(network, (1, 1, 7, 9), mesh, 3, kind=kind, halo_depth=depth)


@settings(max_examples=20, deadline=None)
@given(mesh=meshes, depth=depths, seed=seeds, height=st.integers(2, 7), width=st.integers(2, 7))
def test_tiles_thinner_than_the_halo(mesh: MeshCounts, depth: int, seed: int, height: int, width: int) -> None:
    network = nn.Sequential(make_stack(3), nn.Conv2d(2, 2, 5, padding=2), nn.BatchNorm2d(2))
    check_agreement(network, (2, 2, height, width), mesh, seed, halo_depth=depth, rounds=1)


@pytest.mark.parametrize(
    ("convolution", "shape", "mesh"),
    [
        (nn.Conv3d, (1, 2, 7, 5, 9), (2, 1, 2)),
        (nn.Conv3d, (1, 2, 7, 5, 9), (2, 2)),
        (nn.Conv1d, (2, 2, 23), (3,)),
    ],
)
def test_volumes_and_signals(convolution: Any, shape: tuple[int, ...], mesh: MeshCounts) -> None:
    layers = [convolution(2, 2, 3, padding=1) for _ in range(4)]
    network = nn.Sequential(*(layer for conv in layers for layer in (conv, nn.ReLU(inplace=True))))
    check_agreement(network, shape, mesh, 5, halo_depth=3)


@pytest.mark.parametrize(
    ("depth", "forward", "backward"),
    # The halos of the forward pass are kept. The margin of a gradient is limited by the margin of the activations that
    # the forward pass has saved.
    [(1, 8, 8), (2, 4, 4), (4, 2, 4), (8, 1, 3)],
)
def test_one_exchange_serves_several_convolutions(depth: int, forward: int, backward: int) -> None:
    network = make_stack(8).double()
    image = torch.randn(1, 2, 12, 16, dtype=torch.float64)

    def run(group: SplitGroup) -> None:
        output = network(split(image.clone().requires_grad_(), group))
        group.transport.barrier()
        if group.rank == 0:
            seen.append(counts[0])
        group.transport.barrier()
        output.backward(split(torch.ones(1, 2, 12, 16, dtype=torch.float64), group))

    seen: list[int] = []
    with count_exchanges() as counts:
        run_on_ranks((1, 2), run, halo_depth=depth)
    gathers = 2  # the gradient of the image becomes a plain tensor
    assert (seen[0], counts[0] - seen[0] - gathers) == (2 * forward, 2 * backward)


def test_batch_norm_and_residuals_keep_the_margin() -> None:
    block = [nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU(inplace=True), nn.Conv2d(2, 2, 3, padding=1)]
    network = nn.Sequential(Residual(*block, nn.GroupNorm(1, 2)), Dense(*block))
    with count_exchanges() as counts, torch.no_grad():
        run_on_ranks((1, 2), lambda group: network(split(torch.randn(1, 2, 12, 16), group)), halo_depth=4)
    assert counts[0] == 2


def test_a_write_invalidates_the_margins_of_all_aliases() -> None:
    def run(group: SplitGroup) -> list[bool]:
        x: Any = split(torch.randn(1, 2, 8, 8), group)
        y = torch.conv2d(x, torch.ones(2, 2, 3, 3), padding=1)
        alias, piece = y.detach(), y[:, :1]
        states = [get_margin(y) is not None, get_margin(alias) is not None]
        y.relu_()
        states += [get_margin(y) is not None, get_margin(alias) is None]
        piece.add_(1)
        return [*states, get_margin(y) is None]

    assert run_on_ranks((1, 2), run, halo_depth=2) == [[True] * 5] * 2


def test_second_derivatives_and_checkpoints() -> None:
    network = nn.Sequential(make_stack(2), nn.Tanh(), make_stack(2)).double()
    image = torch.randn(1, 2, 9, 8, dtype=torch.float64)

    def compute(model: nn.Module, x: Tensor) -> list[Tensor]:
        value = checkpoint(model, x * x, use_reentrant=False).square().sum()
        (first,) = torch.autograd.grad(value, x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        return [first.detach(), second]

    expected = compute(network, image.clone().requires_grad_())

    def run(group: SplitGroup) -> list[Any]:
        leaf = split(image, group).requires_grad_()
        return [join_parts(value) for value in compute(deepcopy(network), leaf)]

    for results in run_on_ranks((2, 2), run, halo_depth=3):
        for actual, wanted in zip(results, expected, strict=True):
            check_close(actual, wanted)


SLOW = LinkCosts(latency=1.0, seconds_per_byte=0.0)


def test_the_depth_follows_from_latency_bandwidth_and_computation() -> None:
    tiles = split_dims_evenly((1, 8, 64, 64), (3,), (2,))

    def choose(latency: float, seconds: float, per_byte: float = 0.0) -> int:
        link = LinkCosts(latency=latency, seconds_per_byte=per_byte)
        return choose_depth(tiles, ([1, 1], [1, 1]), link=link, pixel_bytes=32, seconds=seconds)

    assert choose(latency=0.0, seconds=1e-3) == 1
    assert choose(latency=1.0, seconds=1e-3) == 16
    # A window recomputes 1/32 of its time per column: two windows save 0.5 latencies and recompute half a column each.
    assert [choose(latency=latency, seconds=32e-3) for latency in (0.9e-3, 1.1e-3, 3.1e-3)] == [1, 2, 3]


def test_auto_learns_how_many_convolutions_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_windows, "measure_link", lambda transport: SLOW)
    torch.manual_seed(4)
    network = nn.Sequential(make_stack(3), nn.AdaptiveAvgPool2d(12), make_stack(2)).double()
    image = torch.randn(1, 2, 16, 20, dtype=torch.float64)
    with torch.no_grad():
        expected = network(image)

    def run(transport: InProcessTransport) -> Any:
        parallel = parallelize(network, "1x2", transport=transport, halo_depth="auto")
        return [parallel.explain(image).to_rows() for _ in range(2)], parallel.gather(parallel(image)).detach()

    for passes, output in run_ranks(2, run):
        check_close(output, expected)
        notes = [[row["why"] for row in rows if row["operator"] == "convolution"] for rows in passes]
        inside = "inside the margin"
        assert notes[0] == ["halo for 16 windows", inside, inside, "halo for 16 windows", inside]
        assert notes[1] == ["halo for 3 windows", inside, inside, "halo for 2 windows", inside]


def test_auto_learns_the_depths_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_windows, "measure_link", lambda transport: SLOW)

    def run(transport: InProcessTransport) -> Any:
        parallel = parallelize(make_stack(8), "1x2", transport=transport, halo_depth="auto")
        depths = []
        for _ in range(4):
            parallel(torch.ones(1, 2, 24, 40)).sum().backward()
            depths.append([exchange.depth for _, exchange in parallel.group.exchanges])
        return depths

    for depths in run_ranks(2, run):
        assert depths[0][0] == 16
        assert depths[2] == depths[3] == [8, 2, 4, 1]  # nothing follows the last one: the image needs no gradient


@pytest.mark.parametrize("mesh", [(1, 2), (2, 2)])
def test_auto_measures_and_is_exact(mesh: MeshCounts) -> None:
    check_agreement(make_stack(5), (1, 2, 16, 14), mesh, 8, halo_depth="auto")


@pytest.mark.parametrize("depth", [0, -1, 1.5, "all"])
def test_bad_depths_are_refused(depth: Any) -> None:
    with pytest.raises(TesseraError, match="halo_depth"):
        parallelize(nn.Conv2d(1, 1, 3), "1x1", transport=open_single_rank(), halo_depth=depth)

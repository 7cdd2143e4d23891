"""Tests of convolutions that overlap with their halo exchange, and of halos that are kept for the backward pass."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from tessera.geometry import Window
from tessera.spatial.tensor.rules.overlapped_windows import plan_overlap
from tessera.spatial.tensor.rules.window_plans import plan_window
from tessera.spatial.tensor.split_tensor import SplitGroup
from tests.spatial.tensor.agreement import MeshCounts, check_agreement, meshes, run_on_ranks, seeds, split
from tests.spatial.tensor.test_wide_halos import count_exchanges

torch.set_num_threads(1)
MODES = ["split", "recompute"]


@settings(max_examples=60, deadline=None)
@given(
    mesh=meshes,
    mode=st.sampled_from(MODES),
    seed=seeds,
    kernel=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    padding=st.integers(0, 3),
    size=st.tuples(st.integers(9, 17), st.integers(9, 17)),
    channels_last=st.booleans(),
)
def test_overlapped_convolutions_equal_torch(
    mesh: MeshCounts,
    mode: str,
    seed: int,
    kernel: tuple[int, int],
    stride: int,
    dilation: int,
    padding: int,
    size: tuple[int, int],
    channels_last: bool,
) -> None:
    layers = [nn.Conv2d(2, 4, kernel, stride, padding, dilation), nn.Tanh(), nn.Conv2d(4, 2, 3, padding=1, groups=2)]
    check_agreement(nn.Sequential(*layers), (2, 2, *size), mesh, seed, overlap=mode, channels_last=channels_last)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("convolution", "shape", "mesh"),
    [
        (nn.Conv3d, (1, 2, 7, 5, 9), (2, 1, 2)),
        (nn.Conv3d, (1, 2, 7, 5, 9), (2, 2)),
        (nn.Conv1d, (2, 2, 23), (3,)),
        (nn.Conv2d, (1, 2, 2, 3), (2, 2)),  # tiles without an interior
        (nn.Conv2d, (1, 2, 3, 2), (3, 2)),
    ],
)
def test_volumes_signals_and_thin_tiles(convolution: Any, shape: tuple[int, ...], mesh: MeshCounts, mode: str) -> None:
    layers = [convolution(2, 2, 3, padding=1) for _ in range(3)]
    network = nn.Sequential(*(layer for conv in layers for layer in (conv, nn.ReLU(inplace=True))))
    check_agreement(network, shape, mesh, 5, overlap=mode)


def test_the_interior_and_the_borders_are_disjoint_and_complete() -> None:
    def run(group: SplitGroup) -> tuple[torch.Size, list[Any], torch.Tensor]:
        layout, window = group.get_tiles((1, 2, 12, 16), 2), Window.of(3, padding=1)
        plan = plan_window(group, layout, 2, window, (12, 16))
        pieces = plan_overlap(plan, window, group.rank)
        counts = torch.zeros(plan.output.get_local_shape(group.rank))
        assert pieces.interior is not None
        for piece in (pieces.interior, *pieces.borders):
            counts[piece.output] += 1
        return counts[pieces.interior.output].shape, pieces.borders, counts

    for inner, borders, counts in run_on_ranks((2, 2), run):
        assert tuple(inner) == (1, 2, 5, 7)
        assert len(borders) == 2
        assert bool((counts == 1).all())


@pytest.mark.parametrize("mode", ["none", *MODES])
def test_backward_fetches_gradients_only(mode: str) -> None:
    """The halo of the forward pass is kept; a frozen weight needs none."""
    network = nn.Sequential(*(nn.Conv2d(2, 2, 3, padding=1) for _ in range(4))).double()
    image = torch.randn(1, 2, 12, 16, dtype=torch.float64)

    def run(group: SplitGroup) -> None:
        output = network(split(image.clone().requires_grad_(), group))
        group.transport.barrier()
        if group.rank == 0:
            seen.append(counts[0])
        group.transport.barrier()
        output.sum().backward()

    seen: list[int] = []
    with count_exchanges() as counts:
        run_on_ranks((1, 2), run, overlap=mode)
    gathers = 2  # the gradient of the image becomes a plain tensor
    assert (seen[0], counts[0] - seen[0] - gathers) == (2 * 4, 2 * 4)


def test_a_kept_halo_is_not_used_after_a_write() -> None:
    """The convolution's input is written after the forward pass, in a way that autograd does not notice."""
    network = nn.Conv2d(2, 2, 3, padding=1).double()
    image = torch.randn(1, 2, 6, 8, dtype=torch.float64)

    def run(group: SplitGroup) -> tuple[torch.Tensor, torch.Tensor]:
        own = nn.Conv2d(2, 2, 3, padding=1).double()
        own.load_state_dict(network.state_dict())
        tiles = split(image, group)
        output = own(tiles)
        tiles.data.mul_(2)
        output.sum().backward()
        assert own.weight.grad is not None
        return own.weight.grad, tiles

    plain, changed = network, image.clone()
    output = plain(changed)
    changed.data.mul_(2)
    output.sum().backward()
    for grad, _ in run_on_ranks((1, 2), run):
        torch.testing.assert_close(grad, plain.weight.grad)

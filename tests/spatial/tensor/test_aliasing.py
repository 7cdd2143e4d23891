"""Tests of views, copies and in-place writes of split tensors: the same aliasing as plain torch, alike on all ranks."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tessera.spatial.tensor.boundary import join_parts, split_whole
from tessera.spatial.tensor.split_tensor import SplitGroup
from tests.spatial.tensor.agreement import MeshCounts, check_close, make_layout_of_kind, run_on_ranks, split

torch.set_num_threads(1)


def write_flattened_slice(x: Tensor) -> Tensor:
    x[..., :7].flatten(2).add_(1)
    return x


def read_flattened_slice_after_write(x: Tensor) -> Tensor:
    y = x[..., :7].flatten(2)
    x.mul_(2)
    return y * 1


def write_selected_row(x: Tensor) -> Tensor:
    x[:, :, 0].add_(100)
    return x


def write_unfolded(x: Tensor) -> Tensor:
    x.unfold(3, 2, 2).add_(1)
    return x


def write_contiguous_copy(x: Tensor) -> Tensor:
    x[:, :2].contiguous().relu_()
    return x


def write_reshaped_copy(x: Tensor) -> Tensor:
    x[:, :2].reshape(-1).add_(100)
    return x


def write_detached_view(x: Tensor) -> Tensor:
    x.detach()[:, 1:].mul_(3)
    return x


def attend_to_cropped_convolution(x: Tensor) -> Tensor:
    y = F.conv2d(x[:, :, :-1], torch.ones(3, x.shape[1], 3, 3, dtype=x.dtype), padding=1)
    tokens = y.flatten(2).transpose(1, 2).unsqueeze(1)
    return F.scaled_dot_product_attention(tokens, tokens, tokens)


def convolve_twice_with_a_split_weight(x: Tensor) -> Tensor:
    weight, image = x[:2, :, :, :3] * 1.0, torch.zeros_like(x[:1]) + 1
    return F.conv2d(image, weight) + F.conv2d(image, weight)


def roll_indices(x: Tensor) -> Tensor:
    _, indices = F.max_pool2d(x, 2, return_indices=True)
    return torch.roll(indices, 0, 3)


def copy_indices(x: Tensor) -> Tensor:
    return deepcopy(F.max_pool2d(x, 2, return_indices=True)[1])


def write_joined(x: Tensor) -> Tensor:
    join_parts(x).add_(100) if hasattr(x, "layout_on_ranks") else x.clone().add_(100)
    return x


def write_conjugate(x: Tensor) -> Tensor:
    z = torch.complex(x, x + 1)
    z.conj().mul_(2 + 1j)
    return z


def test_every_element(x: Tensor) -> Tensor:
    return torch.any(x > 0, dim=())  # type: ignore[call-overload, no-any-return]


test_every_element.__test__ = False  # type: ignore[attr-defined]


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("mesh", [(1, 2), (2, 1), (2, 2)])
@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (write_flattened_slice, (1, 4, 4, 8)),
        (write_flattened_slice, (2, 4, 4, 8)),
        (read_flattened_slice_after_write, (2, 4, 4, 8)),
        (write_selected_row, (1, 2, 2, 5)),
        (write_selected_row, (2, 3, 4, 6)),
        (write_unfolded, (1, 2, 4, 6)),
        (write_contiguous_copy, (2, 4, 4, 4)),
        (write_reshaped_copy, (2, 4, 4, 4)),
        (write_detached_view, (2, 4, 4, 4)),
        (attend_to_cropped_convolution, (2, 4, 8, 8)),
        (convolve_twice_with_a_split_weight, (2, 4, 6, 6)),
        (roll_indices, (2, 3, 8, 8)),
        (copy_indices, (2, 3, 8, 8)),
        (write_joined, (1, 2, 2, 5)),
        (write_conjugate, (2, 3, 4, 4)),
        (test_every_element, (2, 3, 4, 4)),
    ],
)
@pytest.mark.parametrize("channels_last", [False, True])
def test_views_and_writes_act_as_in_plain_torch(
    function: Callable[[Tensor], Tensor], shape: tuple[int, ...], mesh: MeshCounts, inference: bool, channels_last: bool
) -> None:
    torch.manual_seed(len(shape) + sum(shape))
    image = torch.randn(shape, dtype=torch.float64)
    if channels_last:
        image = image.contiguous(memory_format=torch.channels_last)

    with torch.inference_mode(inference):
        expected = function(image.clone())

    def run(group: SplitGroup) -> Any:
        with torch.inference_mode(inference):
            x = split_whole(image.clone(), make_layout_of_kind("tiles", shape, group), group)
            result = function(x)
            return join_parts(result).clone(), result.stride() if hasattr(result, "layout_on_ranks") else None

    results = run_on_ranks(mesh, run)
    for result, _ in results:
        check_close(result, expected)
    assert len({strides for _, strides in results}) == 1, "ranks must agree on the strides of the whole tensor"


def test_group_norm_of_windows_with_merged_samples() -> None:
    image, factors = torch.randn(1, 8, 4, 4, dtype=torch.float64), torch.randn(8, 1, 1, dtype=torch.float64)

    def compute(x: Tensor) -> Tensor:
        windows = x.view(1, 8, 2, 2, 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(-1, 8, 2, 2)
        return (F.group_norm(windows, 2).square() * factors).sum()

    def run(group: SplitGroup) -> Tensor:
        return join_parts(compute(split_whole(image, group.get_tiles(image.shape, 2), group)))

    for result in run_on_ranks((2, 2), run):
        check_close(result, compute(image))


def test_half_precision_average_pool_of_large_values_is_finite() -> None:
    image = torch.full((1, 1, 64, 64), 40.0, dtype=torch.float16)

    def run(group: SplitGroup) -> Tensor:
        return join_parts(F.avg_pool2d(split_whole(image, group.get_tiles(image.shape, 2), group), 48, 8))

    for result in run_on_ranks((1, 2), run):
        assert torch.equal(result, F.avg_pool2d(image, 48, 8))


def test_view_of_an_ordinary_tensor_in_inference_mode() -> None:
    whole = torch.randn(1, 2, 4, 6, dtype=torch.float64)

    def run(group: SplitGroup) -> Tensor:
        tensor = split(whole, group)
        with torch.inference_mode():
            view = tensor.view(1, 2, 24)
            view.mul_(2)
        return join_parts(tensor).detach()

    for result in run_on_ranks((1, 2), run):
        check_close(result, whole * 2)


WRITES_THROUGH_VIEWS: list[Callable[[Tensor], object]] = [
    lambda y: y[0].flatten(1).mul_(2),
    lambda y: y.unsqueeze(0).view(1, *y.shape[:2], -1).mul_(2),
    lambda y: y[:, :2].flatten(2).mul_(3),
    lambda y: y.select(1, 0).view(-1).add_(1),
]


def write_view_after_reshape(y: Tensor) -> None:
    view = y[:, :2]
    view.flatten(2)
    view.mul_(3)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("mesh", [(1, 2), (2, 2)])
@pytest.mark.parametrize("write", [*WRITES_THROUGH_VIEWS, write_view_after_reshape])
def test_a_part_of_larger_memory_is_written_through_views_of_views(
    write: Callable[[Tensor], object], mesh: MeshCounts, depth: int
) -> None:
    """Outputs of convolutions with margins, and their input gradients, are cut out of larger tensors."""
    image = torch.randn(1, 3, 9, 12, dtype=torch.float64)
    weights = torch.randn(4, 3, 3, 3, dtype=torch.float64), torch.randn(4, 4, 3, 3, dtype=torch.float64)

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        leaf = x.detach().requires_grad_()
        hidden = F.conv2d(leaf, weights[0], padding=1)
        written = hidden.detach()
        write(written)

        def scale(grad: Tensor) -> Tensor:
            write(grad)
            return grad

        hidden.register_hook(scale)
        F.conv2d(hidden.square(), weights[1], padding=1).square().sum().backward()
        assert leaf.grad is not None
        return written, leaf.grad

    expected = run(image)
    for results in run_on_ranks(
        mesh, lambda group: [join_parts(value) for value in run(split(image, group))], halo_depth=depth
    ):
        for actual, wanted in zip(results, expected, strict=True):
            check_close(actual, wanted, 1e-9)

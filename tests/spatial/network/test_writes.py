"""Tests of in-place writes in a network: they apply on every tile and are visible through every alias."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.spatial.comparison import check_agreement

torch.set_num_threads(1)


def add_in_place(y: Tensor, z: Tensor) -> None:
    y += z


def scale_in_place(y: Tensor, z: Tensor) -> None:
    y *= 3.0
    y -= z


def divide_in_place(y: Tensor, z: Tensor) -> None:
    y /= 2.0
    y.add_(z)


def write_channels(y: Tensor, z: Tensor) -> None:
    y[:, :2] += 1
    y[:, 2:] = z[:, :2]


def write_pixels(y: Tensor, z: Tensor) -> None:
    y[:, :, 1:3] = 0
    y[..., 2:7] *= 2
    y[:, :, 5, 3] = z[:, :, 0, 0]


def write_samples(y: Tensor, z: Tensor) -> None:
    y[0] = z[1]
    y[1, 2, 3:5].zero_()


def write_through_views(y: Tensor, z: Tensor) -> None:
    y.view(y.shape[0], -1).mul_(2)
    y.transpose(2, 3)[:, :, 4].add_(1)
    y.permute(0, 2, 3, 1)[..., 0] -= 3
    y.flatten(2)[..., 10:20] += z.flatten(2)[..., :10]


def write_by_mask(y: Tensor, z: Tensor) -> None:
    y[z > 0] = 0.5
    y.masked_fill_(z < -0.2, -1)
    y.clamp_(-1, 1)


def write_copy(y: Tensor, z: Tensor) -> None:
    y.copy_(z.relu())
    y.index_fill_(3, torch.tensor([0, 5]), 2.0)


WRITES = [
    add_in_place,
    scale_in_place,
    divide_in_place,
    write_channels,
    write_pixels,
    write_samples,
    write_through_views,
    write_by_mask,
    write_copy,
]


class Written(nn.Module):
    """A network in which a value has two names and is written in place through one of them."""

    def __init__(self, write: Callable[[Tensor, Tensor], None]) -> None:
        super().__init__()
        self.first, self.second, self.write = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 5, padding=2), write

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        kept = y
        self.write(y, self.second(x))
        return y * kept


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("mesh", ["1x1", "2x2", "1x3", "8x1"])
def test_an_in_place_write_is_visible_under_both_names(write: Callable[[Tensor, Tensor], None], mesh: str) -> None:
    check_agreement(Written(write).double(), mesh, torch.randn(2, 3, 8, 9, dtype=torch.float64))

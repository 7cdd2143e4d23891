"""What a network writes into in place is written into on every tile, under each of its names."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.spatial.against_uncut import agree

torch.set_num_threads(1)


def added(y: Tensor, z: Tensor) -> None:
    y += z


def scaled(y: Tensor, z: Tensor) -> None:
    y *= 3.0
    y -= z


def divided(y: Tensor, z: Tensor) -> None:
    y /= 2.0
    y.add_(z)


class Written(nn.Module):
    """A value with two names, written into by one of them."""

    def __init__(self, write: Callable[[Tensor, Tensor], None]) -> None:
        super().__init__()
        self.first, self.second, self.write = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 5, padding=2), write

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        kept = y
        self.write(y, self.second(x))
        return y * kept


@pytest.mark.parametrize("write", [added, scaled, divided])
@pytest.mark.parametrize("mesh", ["1x1", "2x2"])
def test_a_value_with_two_names_is_written_into_under_both(write: Callable[[Tensor, Tensor], None], mesh: str) -> None:
    agree(Written(write).double(), mesh, torch.randn(2, 3, 8, 9, dtype=torch.float64))

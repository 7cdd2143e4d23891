"""Tests of functions and tensor methods between layers: results on any split equal the unsplit network's."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.spatial.comparison import check_agreement

torch.set_num_threads(1)


def multiply_halves(x: Tensor) -> Tensor:
    first, second = torch.split(x, 2, dim=1)
    return first * second


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "activations": lambda x: F.hardswish(x) + F.gelu(x) * F.leaky_relu(x, 0.2) - F.softplus(x),
    "in place": lambda x: F.relu((x * 2).add_(1).mul_(-1.5), inplace=True),
    "operators": lambda x: (2 - x) / (x.abs() + 1) ** 2 + -x,
    "operators in place": lambda x: operator.imul(operator.iadd(x * 1, x), x),
    "methods": lambda x: x.sigmoid().contiguous().pow(2).to(torch.float64).clone(),
    "maximum": lambda x: torch.maximum(x, -x * 2),
    "concatenation": lambda x: torch.cat([x, x.relu(), x * 2], dim=-3),
    "softmax": lambda x: torch.softmax(x, 1) + F.log_softmax(x, dim=1),
    "normalised channels": lambda x: F.normalize(x),
    "channels": lambda x: torch.cat([x[:, 1:3], x[:, ::2, :, :]], 1),
    "split": multiply_halves,
    "mean of channels": lambda x: x - x.mean(1, keepdim=True),
    "mean of pixels": lambda x: x - torch.mean(x, dim=[-2, -1], keepdim=True),
    "gate": lambda x: x * torch.sigmoid(x.mean((2, 3))).unsqueeze(-1).unsqueeze(-1),
    "features": lambda x: F.log_softmax(F.adaptive_avg_pool2d(x, 1).view(x.size(0), -1), dim=1),
    "grid of features": lambda x: torch.flatten(F.adaptive_avg_pool2d(x, (2, 3)), 1).tanh(),
    "squeezed": lambda x: F.adaptive_avg_pool2d(x, 1).squeeze(3).squeeze(2),
    "pools": lambda x: F.max_pool2d(x, 3, 1, 1) + F.avg_pool2d(x, 3, stride=1, padding=1),
    "pool of pairs": lambda x: F.max_pool2d(x, 2),
    "whole and tiles": lambda x: torch.cat([x, F.interpolate(F.adaptive_avg_pool2d(x, 1), size=x.shape[-2:])], 1),
    "larger": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
    "padded": lambda x: F.pad(x, (1, 2, 0, 1), value=0.5),
    "padded by mirrors": lambda x: F.pad(x, (2, 1, 1, 0), mode="reflect"),
    "more channels": lambda x: F.pad(x, (0, 0, 0, 0, 1, 2)),
    "more channels and pixels": lambda x: F.pad(x, (1, 1, 0, 0, 2, 2)),
    "flattened": lambda x: x.flatten(1),
    "all in one vector": lambda x: x.view(-1),
    "spectrum": lambda x: torch.fft.fft2(x).abs(),
    "sum of columns": lambda x: x.sum(3),
    "every second row": lambda x: x[:, :, ::2],
    "rows twice": lambda x: torch.cat([x, x], 2),
    "softmax of columns": lambda x: x.softmax(-1),
    "mean of everything": lambda x: x.mean(),
    "mean of rows": lambda x: x.mean(2),
    "rows minus their mean": lambda x: x - x.mean((2,), keepdim=True),
    "device": lambda x: x.to(x.device),
    "control flow": lambda x: x if x.sum() > 0 else -x,
    "stack": lambda x: torch.stack([x, x.relu()], 1).flatten(1, 2),
    "repeat": lambda x: x.repeat(1, 2, 1, 1),
    "expand_as": lambda x: x.mean((2, 3), keepdim=True).expand_as(x) * x,
    "new dims": lambda x: (x[:, None] * x[:, :, None]).flatten(1, 2),
    "where with a plain mask": lambda x: torch.where(torch.ones(x.shape[2:]).tril().bool(), x, -x),
}


class Between(nn.Module):
    """A network with a convolution, then a function that also gets a weight and a buffer with a value per channel."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.conv, self.function, self.scale = (
            nn.Conv2d(3, 4, 3, padding=1),
            function,
            nn.Parameter(torch.randn(4, 1, 1)),
        )
        self.register_buffer("shift", torch.randn(1, 4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.conv(x) * torch.exp(self.scale) + self.shift.abs())


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("gather_at", [None, "conv"])
def test_a_function_between_layers(name: str, gather_at: str | None) -> None:
    check_agreement(Between(FUNCTIONS[name]).double(), "2x2", torch.randn(2, 3, 9, 11).double(), gather_at=gather_at)

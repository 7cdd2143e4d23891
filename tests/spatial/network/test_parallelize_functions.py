"""Functions and methods between the layers give on tiles, on samples and on whole values what they give uncut."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.spatial.against_uncut import agree

torch.set_num_threads(1)


def halves(x: Tensor) -> Tensor:
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
    "split": halves,
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
}


class Between(nn.Module):
    """A convolution, a function, and a weight per channel of its own."""

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
    agree(Between(FUNCTIONS[name]).double(), "2x2", torch.randn(2, 3, 9, 11).double(), gather_at=gather_at)

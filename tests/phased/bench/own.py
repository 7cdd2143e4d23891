"""Networks of a user's own, as `module:callable` names them: small, and each with something that is not everywhere."""

from __future__ import annotations

import os

import torch
from torch import Tensor, fx, nn


class Twice(nn.Module):
    """Calls a layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.conv(self.conv(x)))


class Tied(nn.Module):
    """Has tied weights and buffers, a buffer that no state dict holds, gives tensors in a structure, one of bools."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3)
        self.second.weight = self.first.weight
        self.register_buffer("mean", torch.rand(3, 1, 1), persistent=False)
        for layer in (self.first, self.second):
            layer.register_buffer("scale", torch.full((3, 1, 1), 0.5))
        self.second.scale = self.first.scale

    def forward(self, x: Tensor) -> dict[str, object]:
        y = self.first(x - self.mean) * self.first.scale
        z = self.second(y) * self.second.scale
        return {"all": [y, z], "above": z > 1e9, "size": x.shape[0]}


class Sized(Tied):
    """The same with one tensor at its end."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.second(self.first(x - self.mean))


class Mixes(nn.Module):
    """Has a call that may mix samples, so that only mini-batches can be divided."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.second(self.first(x)), 0)


class Writes(nn.Module):
    """Writes into its input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        x += 1
        return self.second(self.first(x))


@fx.wrap
def looked(x: Tensor) -> Tensor:
    """How many cores whoever computes this may run on, and whether its allocator is set to keep freed pages."""
    return x.new_tensor([len(os.sched_getaffinity(0)), "MALLOC_TOP_PAD_" in os.environ])


class Looks(nn.Module):
    """Gives what its device is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return looked(self.layer(x))

"""Small custom networks for `module:callable`, each with an unusual property."""

from __future__ import annotations

import os

import torch
from torch import Tensor, nn


class Twice(nn.Module):
    """A network that calls one layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.last = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.conv(self.conv(x)))


class Tied(nn.Module):
    """A network with tied weights and buffers and a non-persistent buffer, which returns nested tensors and a size."""

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
    """The network `Tied` with a single tensor as its output."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.second(self.first(x - self.mean))


class Mixes(nn.Module):
    """A network with a softmax over the batch: it mixes samples, so a batch cannot be split by samples."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.second(self.first(x)), 0)


class Writes(nn.Module):
    """A network that writes into its input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 3), nn.Conv2d(3, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        x += 1
        return self.second(self.first(x))


class Looks(nn.Module):
    """A network that returns the number of cores of the device that computes it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).new_tensor([len(os.sched_getaffinity(0))])


class Text(nn.Module):
    """A small causal language model with keyword arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(50, 16), nn.Linear(16, 50)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(3))

    def forward(self, tokens: Tensor, *, scale: Tensor) -> dict[str, Tensor]:
        x = self.embed(tokens) * scale
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        for layer in self.layers:
            x = layer(x, src_mask=mask.to(x.dtype), is_causal=True)
        return {"logits": self.head(x)}


def build_text() -> tuple[nn.Module, dict[str, Tensor]]:
    """Return the language model and one mini-batch of 4 sequences."""
    return Text().eval(), {"tokens": torch.randint(50, (4, 7)), "scale": torch.rand(1)}


class Reversed(nn.Module):
    """A network that uses its layers in the opposite order of their registration."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for width in (48, 48, 48, 48, 48))

    def forward(self, x: Tensor) -> Tensor:
        for layer in reversed(self.layers):
            x = layer(x)
        return x


def build_reversed() -> tuple[nn.Module, Tensor]:
    """Return a network whose order of use is learnt, and its input."""
    return Reversed().eval(), torch.randn(1, 48)


def build_pair() -> tuple[nn.Module, str, str]:
    """Return neither a model nor a model with its inputs."""
    return nn.Linear(2, 2), "a", "b"

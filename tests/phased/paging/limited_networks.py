"""Networks of the tests of memory limits, by name, each with its inputs: 60 MB of weights or more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera.models import build_layers

Inputs = tuple[Any, ...]
WIDTH, DEPTH = 1024, 16  # 4 MB a layer


class Recurrent(nn.Module):
    """Recurrent layers one after the other."""

    def __init__(self, kind: type[nn.RNNBase], count: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(kind(512, 512, batch_first=True) for _ in range(count))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)[0]
        return x


class Decoder(nn.Module):
    """Attention over a cache of keys and values that grows with every call."""

    def __init__(self) -> None:
        super().__init__()
        self.projections = nn.ModuleList(nn.Linear(WIDTH, 3 * WIDTH) for _ in range(8))
        self.cache: list[Tensor] = [torch.zeros(1, 0, 2 * WIDTH)] * 8

    def forward(self, x: Tensor) -> Tensor:
        for number, project in enumerate(self.projections):
            query, new = project(x).split([WIDTH, 2 * WIDTH], -1)
            self.cache[number] = torch.cat([self.cache[number], new], 1)
            key, value = self.cache[number].chunk(2, -1)
            x = x + F.scaled_dot_product_attention(query, key, value)
        return x


class Experts(nn.Module):
    """A mixture of experts: the input decides which weights are used."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(DEPTH))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(DEPTH // 2):
            x = F.layer_norm(self.experts[int(x.sum().abs() * 100) % DEPTH](x), (WIDTH,))
        return x


class Residual(nn.Module):
    """A block with a shortcut."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


def _repeat(build: Callable[[], nn.Module], count: int = DEPTH) -> nn.Module:
    return nn.Sequential(*(build() for _ in range(count)))


def _encoder() -> nn.Module:
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 6)


def _decoder() -> nn.Module:
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(512, 8, 2048, batch_first=True), 5)


def _images(size: int) -> Inputs:
    return (torch.randn(1, 3, size, size),)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Inputs]]] = {
    "resnet34": (lambda: build_layers("resnet34"), lambda: _images(64)),
    "resnet50": (lambda: build_layers("resnet50"), lambda: _images(96)),
    "resnet101": (lambda: build_layers("resnet101"), lambda: _images(64)),
    "resnext50_32x4d": (lambda: build_layers("resnext50_32x4d"), lambda: _images(64)),
    "efficientnet_b4": (lambda: build_layers("efficientnet_b4"), lambda: _images(96)),
    "efficientnet_b5": (lambda: build_layers("efficientnet_b5"), lambda: _images(96)),
    "unet": (lambda: build_layers("unet"), lambda: _images(64)),
    "linear": (lambda: _repeat(lambda: nn.Linear(WIDTH, WIDTH)), lambda: (torch.randn(64, WIDTH),)),
    "linear, many rows": (lambda: _repeat(lambda: nn.Linear(WIDTH, WIDTH)), lambda: (torch.randn(2048, WIDTH),)),
    "bfloat16": (
        lambda: _repeat(lambda: nn.Linear(2048, 2048), 8).to(torch.bfloat16),
        lambda: (torch.randn(4, 2048).to(torch.bfloat16),),
    ),
    "float64": (
        lambda: _repeat(lambda: nn.Linear(WIDTH, WIDTH), 8).double(),
        lambda: (torch.randn(4, WIDTH).double(),),
    ),
    "residual": (
        lambda: _repeat(lambda: Residual(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH)))),
        lambda: (torch.randn(64, WIDTH),),
    ),
    "batch norm": (
        lambda: _repeat(lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH))),
        lambda: (torch.randn(8, WIDTH),),
    ),
    "convolutions 1d": (lambda: _repeat(lambda: nn.Conv1d(512, 512, 5)), lambda: (torch.randn(1, 512, 128),)),
    "convolutions 2d": (
        lambda: _repeat(lambda: nn.Conv2d(384, 384, 3, padding=1)),
        lambda: (torch.randn(1, 384, 16, 16),),
    ),
    "convolutions 3d": (
        lambda: _repeat(lambda: nn.Conv3d(192, 192, 3, padding=1)),
        lambda: (torch.randn(1, 192, 6, 6, 6),),
    ),
    "transposed convolutions": (
        lambda: _repeat(lambda: nn.ConvTranspose2d(384, 384, 3, padding=1)),
        lambda: (torch.randn(1, 384, 8, 8),),
    ),
    "group norm": (
        lambda: _repeat(
            lambda: Residual(nn.Sequential(nn.GroupNorm(8, 384), nn.SiLU(), nn.Conv2d(384, 384, 3, padding=1)))
        ),
        lambda: (torch.randn(1, 384, 16, 16),),
    ),
    "LSTM": (lambda: Recurrent(nn.LSTM, 8), lambda: (torch.randn(2, 12, 512),)),
    "GRU": (lambda: Recurrent(nn.GRU, 10), lambda: (torch.randn(2, 12, 512),)),
    "transformer encoder": (_encoder, lambda: (torch.randn(2, 32, 512),)),
    "transformer decoder": (_decoder, lambda: (torch.randn(2, 16, 512), torch.randn(2, 32, 512))),
    "growing cache": (Decoder, lambda: (torch.randn(1, 64, WIDTH),)),
    "experts": (Experts, lambda: (torch.randn(2, WIDTH),)),
}


def build_network(name: str) -> nn.Module:
    """Return a network in evaluation mode; a model of the catalogue is on the meta device."""
    return NETWORKS[name][0]().eval()

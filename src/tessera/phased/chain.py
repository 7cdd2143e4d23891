"""The matrix chain: a benchmark network that multiplies [batch, D, D] by one [D, D] weight in each layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tessera.errors import TesseraError


class MatrixProduct(nn.Module):
    """A layer that multiplies its input matrices from the right by a square weight."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, size), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.matmul(x, self.weight)


class MatrixChain(nn.Module):
    """A chain of `num_layers` matrix products.

    Random weights are drawn from `seed` and scaled so that values stay in the range of float16 over any depth.
    No weights are drawn on the meta device (`with torch.device("meta"):`).
    """

    def __init__(self, dsize: int = 250, num_layers: int = 3, seed: int = 0) -> None:
        super().__init__()
        for name, value in (("dsize", dsize), ("num_layers", num_layers)):
            if value < 1:
                raise TesseraError(f"invalid {name} of a matrix chain", got=value, allowed="1 or more")
        self.dsize = dsize
        self.layers = nn.Sequential(*(MatrixProduct(dsize) for _ in range(num_layers)))
        generator = torch.Generator().manual_seed(seed)
        for layer in self.layers:
            assert isinstance(layer, MatrixProduct)
            if not layer.weight.is_meta:
                layer.weight.normal_(0, dsize**-0.5, generator=generator)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers(x)
        return result

    def input_shape(self, batch_size: int = 32) -> tuple[int, int, int]:
        """Return the shape of one mini-batch."""
        return (batch_size, self.dsize, self.dsize)

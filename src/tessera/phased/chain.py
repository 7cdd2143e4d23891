"""The matrix chain: [batch, D, D] times one [D, D] weight per layer, each layer a phase of its own if it has to be."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tessera.errors import TesseraError


class Multiply(nn.Module):
    """Multiplies matrices by a square weight from the right."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, size), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.matmul(x, self.weight)


class MatrixChain(nn.Module):
    """`num_layers` square weights, one after the other.

    Random weights are drawn from `seed` and scaled so that the numbers stay in the range of float16 over any number
    of layers. On the meta device (`with torch.device("meta"):`) none are drawn.
    """

    def __init__(self, dsize: int = 250, num_layers: int = 3, seed: int = 0) -> None:
        super().__init__()
        for what, value in (("dsize", dsize), ("num_layers", num_layers)):
            if value < 1:
                raise TesseraError(f"a matrix chain needs a {what}", got=value, allowed="1 or more")
        self.dsize = dsize
        self.layers = nn.Sequential(*(Multiply(dsize) for _ in range(num_layers)))
        generator = torch.Generator().manual_seed(seed)
        for layer in self.layers:
            assert isinstance(layer, Multiply)
            if not layer.weight.is_meta:
                layer.weight.normal_(0, dsize**-0.5, generator=generator)
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers(x)
        return result

    def input_shape(self, batch_size: int = 32) -> tuple[int, int, int]:
        """The shape of one mini-batch."""
        return (batch_size, self.dsize, self.dsize)

"""The networks of the comparison with accelerate, by name, so that a worker can build them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tessera.models import build, lay_out, model_info
from tessera.phased import PhasedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Either linear layers of `size` with `rows` rows of input, or a model of the catalogue with `rows` images."""

    title: str
    rows: int
    size: int = 0
    layers: int = 0
    model: str = ""
    image: int = 224

    def network(self) -> nn.Module:
        """With values; the same each time."""
        if self.model:
            return build(self.model)
        torch.manual_seed(0)
        return nn.Sequential(*(nn.Linear(self.size, self.size) for _ in range(self.layers))).eval()

    def bare(self) -> nn.Module:
        """Without values."""
        with torch.device("meta"):
            return lay_out(self.model).eval() if self.model else self.network()

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.rows, 3, self.image, self.image) if self.model else (self.rows, self.size)

    def input(self) -> Tensor:
        return torch.randn(self.input_shape, generator=torch.Generator().manual_seed(1))

    @property
    def budget(self) -> int:
        """Three layers of the stack; of a model a quarter of its weights, and at least what cannot be done without."""
        if not self.model:
            return 3 * (4 * (self.size**2 + self.size) + (1 << 16))
        least = PhasedModel.least_budget(lay_out(self.model).eval(), schedule="overlapped")
        return max(least, model_info(self.model).weight_bytes // 4)


def models(small: bool) -> list[Stack]:
    """Those of a comparison; small ones only show that it works."""
    shapes = ((128, 4),) if small else ((4096, 64), (2048, 32))
    stacks = [
        Stack(
            title=f"{layers} linear layers of {size}, {rows} row{'s' * (rows > 1)}", rows=rows, size=size, layers=layers
        )
        for size, layers in shapes
        for rows in (1, 256)
    ]
    names = ("resnet18",) if small else ("resnet50", "resnet152")
    return [*stacks, *(Stack(title=name, rows=1, model=name, image=64 if small else 224) for name in names)]

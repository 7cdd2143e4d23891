"""The networks of the comparison with accelerate, as descriptions from which a worker builds them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tessera.models import build, build_layers, model_info
from tessera.phased import PhasedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """A stack of `layers` linear layers of width `size` with `rows` input rows, or a named model with `rows` images."""

    title: str
    rows: int
    size: int = 0
    layers: int = 0
    model: str = ""
    image: int = 224

    def build_network(self) -> nn.Module:
        """Build the network with reproducible weights."""
        if self.model:
            return build(self.model)
        torch.manual_seed(0)
        return nn.Sequential(*(nn.Linear(self.size, self.size) for _ in range(self.layers))).eval()

    def build_skeleton(self) -> nn.Module:
        """Build the network on the meta device."""
        with torch.device("meta"):
            return build_layers(self.model).eval() if self.model else self.build_network()

    @property
    def input_shape(self) -> tuple[int, ...]:
        return (self.rows, 3, self.image, self.image) if self.model else (self.rows, self.size)

    def draw_input(self) -> Tensor:
        return torch.randn(self.input_shape, generator=torch.Generator().manual_seed(1))

    @property
    def budget(self) -> int:
        """Budget in bytes: three layers of the stack; for a model, a quarter of its weights or its minimum budget."""
        if not self.model:
            return 3 * (4 * (self.size**2 + self.size) + (1 << 16))
        least = PhasedModel.compute_min_budget(build_layers(self.model).eval(), schedule="overlapped", prefetch=True)
        return max(least, model_info(self.model).weight_bytes // 4)


def list_models(small: bool) -> list[Stack]:
    """Return the networks of the comparison; with `small`, tiny networks that only check that it runs."""
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

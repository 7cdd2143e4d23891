"""Random networks: chains, residual and branching networks, with tied weights, shared layers and batch norms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

KINDS = ("linear", "relu", "in_place", "norm", "add", "concatenate", "again", "tied", "weight", "grow")
Step = tuple[str, tuple[int, ...]]


class Drawn(nn.Module):
    """A random network: each step reads earlier values and appends a value of shape [samples, width]."""

    def __init__(self, width: int, steps: list[Step], outputs: tuple[int, ...]) -> None:
        super().__init__()
        self.steps, self.outputs = steps, outputs
        self.layers = nn.ModuleDict()
        self.scales = nn.ParameterDict()
        widths = [width]
        first: nn.Linear | None = None
        for number, (kind, sources) in enumerate(steps):
            own = widths[sources[0]]
            if kind == "linear":
                layer = nn.Linear(own, 3 + (7 * number) % 23)
                first = first or (layer if layer.in_features == width else None)
                self.layers[str(number)] = layer
                own = layer.out_features
            elif kind == "norm":
                norm = nn.BatchNorm1d(own)
                assert norm.running_mean is not None
                assert norm.running_var is not None
                norm.running_mean.normal_()
                norm.running_var.uniform_(0.5, 2)
                self.layers[str(number)] = norm
            elif kind == "again" and first is not None and own == first.in_features:
                self.layers[str(number)] = first
                own = first.out_features
            elif kind == "tied" and first is not None and own == first.in_features:
                tied = nn.Linear(own, first.out_features)
                tied.weight = first.weight
                self.layers[str(number)] = tied
                own = tied.out_features
            elif kind == "concatenate":
                own = sum(widths[source] for source in sources)
            elif kind == "weight":
                self.scales[str(number)] = nn.Parameter(torch.randn(own))
            widths.append(own)
        self.eval()

    def forward(self, x: Tensor) -> Tensor | tuple[Tensor, ...]:
        values = [x]
        for number, (kind, sources) in enumerate(self.steps):
            value = values[sources[0]]
            if str(number) in self.layers:
                value = self.layers[str(number)](value)
            elif kind == "relu":
                value = torch.relu(value)
            elif kind == "in_place":
                value = (value * 1.5).relu_()
            elif kind == "add":
                for source in sources[1:]:
                    value = value + values[source].mean(1, keepdim=True)
            elif kind == "grow":  # in place: all aliases of the value change
                value += values[sources[1]].mean(1, keepdim=True) if len(sources) > 1 else 1.5
            elif kind == "concatenate":
                value = torch.cat([values[source] for source in sources], 1)
            elif kind == "weight":
                value = value * self.scales[str(number)]
            values.append(value)
        outputs = tuple(values[index] for index in self.outputs)
        return outputs[0] if len(outputs) == 1 else outputs


@st.composite
def draw_networks(draw: st.DrawFn, kinds: Sequence[str] = KINDS) -> tuple[nn.Module, int]:
    """Draw a random network and its input width; its first step has weights, and its last value is an output."""
    width = draw(st.integers(1, 20))
    steps: list[Step] = [("linear", (0,))]
    for number in range(draw(st.integers(0, 9))):
        kind = draw(st.sampled_from(kinds))
        sources = draw(st.lists(st.integers(0, number + 1), min_size=1, max_size=3))
        steps.append((kind, tuple(sources)))
    outputs = (len(steps), *draw(st.lists(st.integers(0, len(steps)), max_size=2)))
    torch.manual_seed(draw(st.integers(0, 2**31)))
    return Drawn(width, steps, outputs), width


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Use one torch thread, as devices do in tests, because more threads may change the order of summation."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def as_tuple(output: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return output if isinstance(output, tuple) else (output,)

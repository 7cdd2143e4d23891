"""Units: every layer with weights begins one, in the order of the calls."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tessera.errors import TesseraError
from tessera.models import count, lay_out
from tessera.phased.network.graph import flops_of, trace, units_of
from tessera.phased.network.programs import parts_of
from tessera.phased.network.skeleton import skeleton_of


def test_the_units_of_a_residual_network():
    skeleton = skeleton_of(lay_out("resnet18").eval())
    graph = trace(skeleton)
    units = units_of(skeleton, graph)
    layers = [m for m in skeleton.model.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d | nn.Linear)]
    assert len(units) == len(layers)
    assert [unit.module for unit in units[:4]] == ["conv1", "bn1", "layer1.0.conv1", "layer1.0.bn1"]
    assert sum(len(unit.weights) for unit in units) == len(skeleton.names)
    flops = flops_of(skeleton, graph, units, [(2, 3, 64, 64)])
    assert sum(flops) == count(skeleton.model, (2, 3, 64, 64)).flops
    borders = [part.border for part in parts_of(skeleton, graph, [[unit] for unit in units])]
    assert max(len(border.inputs) for border in borders) == 2  # a branch and its shortcut
    made = {name for border in borders for name in border.outputs} | {"x"}
    assert all(name in made for border in borders for name in border.inputs)


class Shared(nn.Module):
    """One layer called twice, a bare parameter, a buffer, and a weight that is only given back."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("shift", torch.ones(3))
        self.only = nn.Parameter(torch.ones(1))
        self.unused = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.layer(self.layer(x) * self.scale + self.shift), self.only


def test_weights_belong_to_the_calls_that_read_them():
    skeleton = skeleton_of(Shared())
    units = units_of(skeleton, trace(skeleton))
    assert [set(unit.weights) for unit in units] == [
        {"layer.weight", "layer.bias"},
        {"scale"},
        {"shift"},
        {"layer.weight", "layer.bias", "only"},
    ]


def test_layers_that_hold_their_weights_elsewhere_are_refused():
    skeleton = skeleton_of(nn.Sequential(nn.LSTM(3, 3)))
    with pytest.raises(TesseraError, match="recurrent"):
        units_of(skeleton, trace(skeleton))

"""Tests of splitting a graph into units: every layer with weights begins a unit, in the order of the calls."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tessera.errors import TesseraError
from tessera.models import build_layers, compute_model_info
from tessera.phased.network.graph import count_unit_flops, split_units, trace_model
from tessera.phased.network.programs import split_parts
from tessera.phased.network.skeleton import build_skeleton


def test_a_residual_network_is_split_into_units():
    skeleton = build_skeleton(build_layers("resnet18").eval())
    graph = trace_model(skeleton)
    units = split_units(skeleton, graph)
    layers = [m for m in skeleton.model.modules() if isinstance(m, nn.Conv2d | nn.BatchNorm2d | nn.Linear)]
    assert len(units) == len(layers)
    assert [unit.module for unit in units[:4]] == ["conv1", "bn1", "layer1.0.conv1", "layer1.0.bn1"]
    assert sum(len(unit.weights) for unit in units) == len(skeleton.names)
    flops = count_unit_flops(skeleton, graph, units, [(2, 3, 64, 64)])
    assert sum(flops) == compute_model_info(skeleton.model, (2, 3, 64, 64)).flops
    boundaries = [part.boundary for part in split_parts(skeleton, graph, [[unit] for unit in units])]
    assert max(len(boundary.inputs) for boundary in boundaries) == 2  # a residual branch and its shortcut
    available = {name for border in boundaries for name in border.outputs} | {"x"}
    assert all(name in available for border in boundaries for name in border.inputs)


class Shared(nn.Module):
    """A network with a layer called twice, a parameter, a buffer, and a weight that is only returned."""

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
    skeleton = build_skeleton(Shared())
    units = split_units(skeleton, trace_model(skeleton))
    assert [set(unit.weights) for unit in units] == [
        {"layer.weight", "layer.bias"},
        {"scale"},
        {"shift"},
        {"layer.weight", "layer.bias", "only"},
    ]


def test_recurrent_layers_are_refused():
    skeleton = build_skeleton(nn.Sequential(nn.LSTM(3, 3)))
    with pytest.raises(TesseraError, match="recurrent"):
        split_units(skeleton, trace_model(skeleton))

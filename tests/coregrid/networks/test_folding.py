"""A folded network computes what the network computes, with fewer layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tessera.coregrid.networks.folding import folded
from tessera.models import build


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_folding_changes_no_numbers(name: str) -> None:
    model, images = build(name), torch.randn(2, 3, 64, 64)
    graph = folded(model)
    used = {str(node.target) for node in graph.graph.nodes if node.op == "call_module"}
    assert not any(isinstance(graph.get_submodule(target), nn.BatchNorm2d) for target in used)
    with torch.no_grad():
        torch.testing.assert_close(graph(images), model(images), atol=1e-4, rtol=1e-4)
    assert any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules())  # the model itself is left alone

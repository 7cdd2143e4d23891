"""Tests of folding batch norms: layers are removed, and the output is unchanged."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tessera.coregrid.networks.layers import fold_batch_norms
from tessera.models import build


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_folding_keeps_the_output(name: str) -> None:
    model, images = build(name), torch.randn(2, 3, 64, 64)
    graph = fold_batch_norms(model)
    used = {str(node.target) for node in graph.graph.nodes if node.op == "call_module"}
    assert not any(isinstance(graph.get_submodule(target), nn.BatchNorm2d) for target in used)
    with torch.no_grad():
        torch.testing.assert_close(graph(images), model(images), atol=1e-4, rtol=1e-4)
    assert any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules())  # the given model is unchanged

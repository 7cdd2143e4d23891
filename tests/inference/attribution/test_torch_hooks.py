"""Tests of operator timing by torch hooks: the layer and the FLOPs of every call."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tessera.inference.attribution.measure import group_operators
from tessera.inference.attribution.torch_hooks import describe_operators, time_operators
from tessera.models import build, compute_model_info


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.BatchNorm2d(8), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + x)


def build_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), Block(), nn.Conv2d(8, 16, 1), nn.Flatten(), nn.Linear(16 * 8 * 8, 5)
    ).eval()


def test_every_operator_is_attributed_to_the_layer_that_calls_it():
    result = time_operators(build_network(), torch.randn(2, 3, 8, 8), repeats=3)
    by_layer = [(one.layer, one.kind) for one in result]
    assert ("0", "convolution 3x3") in by_layer
    assert ("1.body.0", "convolution depthwise") in by_layer
    assert ("1", "add") in by_layer
    assert ("1", "relu") in by_layer
    assert ("2", "convolution 1x1") in by_layer
    assert any(layer == "4" and kind == "addmm" for layer, kind in by_layer)
    assert all(one.seconds > 0 for one in result)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_the_flops_of_all_operators_equal_the_flops_of_the_network(name):
    torch.set_num_threads(1)
    module = build(name)
    shape = (1, 3, 64, 64)
    calls = describe_operators(module, torch.randn(shape))
    assert sum(call.flops for call in calls) == compute_model_info(module, shape).flops


def test_bytes_include_tensors_read_and_written():
    module = nn.Sequential(nn.Conv2d(4, 4, 1, bias=False), nn.ReLU(inplace=True), nn.Flatten()).eval()
    image = torch.randn(1, 4, 6, 6)
    calls = describe_operators(module, image)
    convolution, relu = calls[0], calls[1]
    assert convolution.moved == 4 * (image.numel() * 2 + 16)
    assert relu.moved == 4 * image.numel() * 2, "in place: read and written"
    assert sum(call.moved for call in calls[2:]) == 0, "a view moves nothing"


def test_hooks_are_removed_and_do_not_change_the_outputs():
    module, image = build_network(), torch.randn(2, 3, 8, 8)
    before = module(image)
    time_operators(module, image, repeats=1)
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in module.modules())
    assert torch.equal(module(image), before)


def test_shares_add_up_to_one_by_kind_and_by_layer():
    result = time_operators(build_network(), torch.randn(2, 3, 8, 8), repeats=2)
    for by in ("kind", "layer"):
        shares = group_operators(result, by)
        assert sum(share.share for share in shares) == pytest.approx(1)
        assert sum(share.calls for share in shares) == len(result)
        assert [share.seconds for share in shares] == sorted((s.seconds for s in shares), reverse=True)

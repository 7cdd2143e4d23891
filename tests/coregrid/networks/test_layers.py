"""The layers of networks, as their own modules have them."""

from __future__ import annotations

import pytest

from tessera.coregrid.networks.layers import Layer, Residual, convolutions, network
from tessera.coregrid.networks.tables import table
from tessera.errors import TesseraError
from tessera.models.flops import model_info


def test_resnet_50() -> None:
    found = network("resnet50", 8)
    assert [part.kind for part in found.parts if isinstance(part, Layer)] == [
        "conv",
        "max_pool",
        "global_pool",
        "linear",
    ]
    blocks = [part for part in found.parts if isinstance(part, Residual)]
    assert len(blocks) == 16
    assert all(len(block.body) == 3 for block in blocks)
    assert [len(block.shortcut) for block in blocks].count(1) == 4
    assert len(found.convolutions) == 53
    stem = found.convolutions[0].conv
    assert (stem.batch, stem.height, stem.kernel, stem.stride, stem.padding) == (
        8,
        224,
        (7, 7),
        (2, 2),
        ((3, 3), (3, 3)),
    )
    assert found.parts[-1].conv.is_matmul


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "resnext50_32x4d", "vgg16"])
def test_the_flops_are_those_of_the_model(name: str) -> None:
    layers = network(name, 2).layers
    counted = sum(layer.conv.flops for layer in layers if layer.kind in ("conv", "linear"))
    assert counted == model_info(name, batch_size=2).flops


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "efficientnet_b0"])
def test_any_model_has_a_table_but_not_any_is_planned(name: str) -> None:
    assert len(convolutions(name, 1)) > 20
    with pytest.raises(TesseraError, match="does not plan"):
        network(name, 1)


def test_a_table_has_every_shape_once() -> None:
    rows = table("resnet50", 1)
    assert len({row.conv for row in rows}) == len(rows)
    assert sum(row.count for row in rows) == 53
    assert next(row for row in rows if row.name == "layer1.0.conv2").count == 3

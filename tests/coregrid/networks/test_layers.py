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


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("read_before_its_activation", "first: what follows it cannot be fused"),
        ("norm_first", "1: it follows no convolution|cannot be fused"),
        ("activated_pool", "1: what follows it cannot be fused"),
        ("number_added", "adds a number"),
        ("concatenated", "does not read one value"),
        ("wrapped_around", "padding is zeros"),
    ],
)
def test_what_would_come_out_wrong_is_refused(name: str, said: str) -> None:
    with pytest.raises(TesseraError, match=said):
        network(f"tests.coregrid.networks.chains:{name}", 1, 8)


@pytest.mark.parametrize(
    ("name", "batch", "size", "said"),
    [
        ("resnet18", 0, 224, "reads images"),
        ("resnet18", -1, None, "reads images"),
        ("resnet18", 1, 0, "reads images"),
        ("vgg16", 1, 16, "does not take images of 16x16"),
    ],
)
def test_images_that_a_model_does_not_take(
    name: str, batch: int, size: int | None, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for read in (network, table):
        with pytest.raises(TesseraError, match=said):
            read(name, batch, size)
    assert capfd.readouterr().err == ""


def test_activations_and_flattened_images() -> None:
    found = network("tests.coregrid.networks.chains:flattened", 2, 16)
    assert [layer.activation for layer in found.layers] == ["relu", "", "relu6", "", "hardswish", ""]
    assert [layer.flattened for layer in found.layers[-2:]] == [(24, 4, 4), None]
    residual = network("tests.coregrid.networks.chains:squashed", 2, 16).parts[1]
    assert isinstance(residual, Residual)
    assert residual.activation == "tanh"
    assert [layer.activation for layer in residual.body] == ["relu6", ""]


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

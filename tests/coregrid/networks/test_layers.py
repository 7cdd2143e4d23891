"""Tests of the layer lists of networks, compared with the modules of the models, and of all convolutions of one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tessera.coregrid as ttnn
from tessera.coregrid.networks.layers import (
    GridLayer,
    ResidualBlock,
    build_table,
    describe_network,
    fold_batch_norms,
    list_convolutions,
)
from tessera.errors import TesseraError
from tessera.models import build
from tessera.models.flops import model_info
from tests.coregrid.operations.agreement import RandomConv, compute_relative_error


def test_layers_and_residual_blocks_of_resnet_50() -> None:
    network = describe_network("resnet50", 8)
    assert [part.kind for part in network.parts if isinstance(part, GridLayer)] == [
        "conv",
        "max_pool",
        "global_pool",
        "linear",
    ]
    blocks = [part for part in network.parts if isinstance(part, ResidualBlock)]
    assert len(blocks) == 16
    assert all(len(block.body) == 3 for block in blocks)
    assert [len(block.shortcut) for block in blocks].count(1) == 4
    assert sum(layer.kind == "conv" for layer in network.layers) == 53
    stem = network.layers[0].conv
    assert (stem.batch, stem.height, stem.kernel, stem.stride, stem.padding) == (
        8,
        224,
        (7, 7),
        (2, 2),
        ((3, 3), (3, 3)),
    )
    assert network.parts[-1].conv.is_matmul


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "resnext50_32x4d", "vgg16"])
def test_flops_of_layers_equal_flops_of_the_model(name: str) -> None:
    layers = describe_network(name, 2).layers
    counted = sum(layer.conv.flops for layer in layers if layer.kind in ("conv", "linear"))
    assert counted == model_info(name, batch_size=2).flops


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("read_before_its_activation", "first: the operation after it cannot be fused"),
        ("norm_first", "1: it does not follow a convolution|cannot be fused"),
        ("activated_pool", "1: the operation after it cannot be fused"),
        ("number_added", "adds a constant"),
        ("concatenated", "is not a value of the graph"),
        ("wrapped_around", "unsupported padding mode"),
    ],
)
def test_unsupported_graphs_are_refused(name: str, message: str) -> None:
    with pytest.raises(TesseraError, match=message):
        describe_network(f"tests.coregrid.networks.chains:{name}", 1, 8)


@pytest.mark.parametrize(
    ("name", "batch", "size", "message"),
    [
        ("resnet18", 0, 224, "must be positive"),
        ("resnet18", -1, None, "must be positive"),
        ("resnet18", 1, 0, "must be positive"),
        ("vgg16", 1, 16, "does not accept images of 16x16"),
    ],
)
def test_unsupported_image_sizes_are_refused(
    name: str, batch: int, size: int | None, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for read in (describe_network, build_table):
        with pytest.raises(TesseraError, match=message):
            read(name, batch, size)
    assert capfd.readouterr().err == ""


def test_activations_and_flattened_images() -> None:
    network = describe_network("tests.coregrid.networks.chains:flattened", 2, 16)
    assert [layer.activation for layer in network.layers] == ["relu", "", "relu6", "", "hardswish", ""]
    assert [layer.flattened for layer in network.layers[-2:]] == [(24, 4, 4), None]
    residual = describe_network("tests.coregrid.networks.chains:squashed", 2, 16).parts[1]
    assert isinstance(residual, ResidualBlock)
    assert residual.activation == "tanh"
    assert [layer.activation for layer in residual.body] == ["relu6", ""]


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "efficientnet_b0"])
def test_unsupported_models_still_have_a_convolution_table(name: str) -> None:
    assert len(list_convolutions(name, 1)) > 20
    with pytest.raises(TesseraError, match="cannot plan"):
        describe_network(name, 1)


def test_table_lists_every_shape_once() -> None:
    rows = build_table("resnet50", 1)
    assert len({row.conv for row in rows}) == len(rows)
    assert sum(row.count for row in rows) == 53
    assert next(row for row in rows if row.name == "layer1.0.conv2").count == 3


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2"])
def test_folding_keeps_the_output(name: str) -> None:
    model, images = build(name), torch.randn(2, 3, 64, 64)
    graph = fold_batch_norms(model)
    used = {str(node.target) for node in graph.graph.nodes if node.op == "call_module"}
    assert not any(isinstance(graph.get_submodule(target), nn.BatchNorm2d) for target in used)
    with torch.no_grad():
        torch.testing.assert_close(graph(images), model(images), atol=1e-4, rtol=1e-4)
    assert any(isinstance(layer, nn.BatchNorm2d) for layer in model.modules())  # the given model is unchanged


LAYOUTS = [ttnn.HEIGHT_SHARDED, ttnn.WIDTH_SHARDED, ttnn.BLOCK_SHARDED]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_resnet50_convolution_equals_torch() -> None:
    device = ttnn.open_device("wormhole_n150")
    ran = dict.fromkeys(LAYOUTS, 0)
    distinct = {layer.conv for layer in list_convolutions("resnet50", 1)}
    for conv in distinct:
        problem = RandomConv(conv)
        expected = problem.compute_reference()
        for layout in LAYOUTS:
            config = ttnn.Conv2dConfig(dtype=ttnn.float32, weights_dtype=ttnn.float32, shard_layout=layout)
            try:
                output = problem.run(device, conv_config=config)
            except TesseraError as error:
                if "fit" not in str(error):
                    raise
                continue
            assert compute_relative_error(output, expected) < 1e-4, (conv, layout)
            ran[layout] += 1
    assert min(ran.values()) > len(distinct) // 2, ran

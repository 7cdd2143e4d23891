"""Tests of layers that are described from a recording of a network."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import tessera.coregrid as ttnn
from tessera.coregrid.networks.layers import build_table, describe_module, describe_network, list_convolutions
from tessera.errors import TesseraError
from tests.coregrid.networks.chains import CustomForward
from tests.coregrid.operations.agreement import RandomConv, compute_relative_error

CHAINS = "tests.coregrid.networks.chains"


def test_layers_of_resnet_50() -> None:
    network = describe_network("resnet50", 2)
    kinds = [layer.kind for layer in network.layers]
    assert [kinds.count(kind) for kind in ("conv", "add", "max_pool", "global_pool", "linear", "fold")] == [
        53,
        16,
        1,
        1,
        1,
        1,
    ]
    stem = network.layers[1]
    assert (stem.name, stem.activation, stem.folding) == ("conv1", "relu", 2)
    assert stem.window.kernel == (4, 4)
    assert (stem.window.height, stem.window.in_channels, stem.window.output_size) == (115, 12, (112, 112))
    assert all(layer.norm is not None for layer in network.layers if layer.kind == "conv")
    sums = [layer for layer in network.layers if layer.kind == "add"]
    assert all(layer.activation == "relu" for layer in sums)
    assert network.output_shapes == ((2, 1000),)


def test_activations_and_flattened_images() -> None:
    network = describe_network(f"{CHAINS}:flattened", 2, 16)
    assert [layer.activation for layer in network.layers] == ["relu", "", "relu6", "", "hardswish", ""]
    assert [layer.flattened for layer in network.layers[-2:]] == [(24, 4, 4), None]
    residual = describe_network(f"{CHAINS}:squashed", 2, 16)
    assert [(layer.kind, layer.activation) for layer in residual.layers] == [
        ("fold", ""),
        ("conv", "silu"),
        ("conv", "relu6"),
        ("conv", ""),
        ("conv", ""),
        ("add", "tanh"),
        ("global_pool", ""),
        ("linear", ""),
    ]


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("read_before_its_activation", ["conv", "elementwise", "add"]),
        ("norm_first", ["conv", "norm", "conv"]),
        ("activated_pool", ["conv", "max_pool", "elementwise", "conv"]),
        ("number_added", ["conv", "elementwise"]),
        ("concatenated", ["conv", "concat", "conv"]),
        ("mean_first", ["global_pool", "conv"]),
    ],
)
def test_operations_that_are_not_fused(name: str, kinds: list[str]) -> None:
    assert [layer.kind for layer in describe_network(f"{CHAINS}:{name}", 2, 16).layers] == kinds


def test_an_image_size_that_does_not_fit_is_one_line() -> None:
    with pytest.raises(TesseraError, match="does not accept images of 16x16"):
        describe_network("vgg11", 1, 16)
    with pytest.raises(TesseraError, match="must be positive"):
        describe_network("resnet18", 0)
    with pytest.raises(TesseraError, match="no layers"):
        describe_network(f"{CHAINS}:nothing", 1, 8)


def test_writing_through_a_view_is_refused() -> None:
    def forward(self: CustomForward, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x[:, :1].mul_(2)
        return self.last(x)

    module = CustomForward(forward, first=nn.Conv2d(3, 4, 1), last=nn.Conv2d(4, 4, 1))
    with pytest.raises(TesseraError, match="in place through a view"):
        describe_module(module, torch.empty(1, 3, 8, 8))


def test_control_flow_that_reads_values_runs_on_the_weights() -> None:
    def forward(self: CustomForward, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.first(x)) if self.first.bias.sum() > -1e9 else x

    module = CustomForward(forward, first=nn.Conv2d(3, 4, 3), last=nn.Conv2d(4, 4, 1)).train()
    network = describe_module(module, torch.empty(1, 3, 8, 8))
    assert [layer.kind for layer in network.layers] == ["conv", "conv"]
    assert module.training


def test_table_lists_every_shape_once() -> None:
    rows = build_table("resnet50", 1)
    assert len({row.conv for row in rows}) == len(rows)
    assert sum(row.count for row in rows) == 53
    assert next(row for row in rows if row.name == "layer1.0.conv2").count == 3


LAYOUTS = [ttnn.HEIGHT_SHARDED, ttnn.WIDTH_SHARDED, ttnn.BLOCK_SHARDED]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_resnet50_convolution_equals_torch() -> None:
    device = ttnn.open_device("wormhole_n150")
    ran = dict.fromkeys(LAYOUTS, 0)
    distinct = {layer.window for layer in list_convolutions("resnet50", 1)}
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

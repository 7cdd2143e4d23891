"""Tests of plans as ttnn programs: the emitted program runs here and computes what torch computes."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import tessera.coregrid as ttnn
from tessera.coregrid.config import Conv2dConfig, ShardLayout, SliceConfig
from tessera.coregrid.emit import emit_conv2d, emit_network
from tessera.coregrid.networks.layers import describe_network
from tessera.coregrid.networks.plan import plan_network
from tessera.coregrid.planning.plan import ConvPlan, plan_one
from tessera.coregrid.planning.setup import ConvSetup
from tessera.coregrid.planning.slicing import plan_sliced
from tessera.coregrid.search import plan_conv2d
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import square

N150 = load_machine("wormhole-n150")
CONV = square(2, 14, 64, 96)
PLANS = {
    "searched": lambda: plan_conv2d(CONV, N150, bias=True).best.plan,
    "BLOCK": lambda: plan_one(CONV, N150, Conv2dConfig(activation="relu"), layout=ShardLayout.BLOCK, bias=True),
    "sliced": lambda: plan_sliced(CONV, ConvSetup(machine=N150, bias=True), SliceConfig(num_slices=2)),
}


@pytest.mark.parametrize("name", PLANS)
def test_an_emitted_program_runs_and_equals_torch(name: str) -> None:
    plan: ConvPlan = PLANS[name]()
    device = ttnn.open_device("wormhole_n150")
    images, weights, bias = torch.randn(2, 64, 14, 14), torch.randn(96, 64, 3, 3) / 24, torch.randn(96)
    pixels = images.permute(0, 2, 3, 1).reshape(1, 1, -1, 64)
    names = {
        "device": device,
        "input_tensor": ttnn.from_torch(pixels, ttnn.bfloat16, layout=ttnn.TILE_LAYOUT, device=device),
        "weight_tensor": ttnn.from_torch(weights, ttnn.bfloat16),
        "bias_tensor": ttnn.from_torch(bias.reshape(1, 1, 1, -1), ttnn.bfloat16),
    }
    exec(emit_conv2d(plan).replace("import ttnn", "import tessera.coregrid as ttnn", 1), names)
    output = ttnn.to_torch(names["output_tensor"]).float().reshape(2, 14, 14, 96).permute(0, 3, 1, 2)
    expected = functional.conv2d(images, weights, bias, padding=1)
    if plan.config.activation:
        expected = expected.relu()
    pair = torch.stack([output.flatten(), expected.flatten()])
    assert torch.corrcoef(pair)[0, 1] > 0.999


def test_the_settings_of_a_network_are_python() -> None:
    plan = plan_network(describe_network("resnet18", 1, 64), N150).best
    names: dict[str, object] = {}
    exec(emit_network(plan).replace("import ttnn", "import tessera.coregrid as ttnn", 1), names)
    settings = names["CONVOLUTIONS"]
    assert isinstance(settings, dict)
    assert len(settings) == 21
    config, memory_config, slices = settings["layer1.0.conv1"]
    assert config.shard_layout is not None
    assert memory_config.is_sharded()
    assert slices is None


def test_settings_that_differ_from_the_defaults_of_ttnn_are_written() -> None:
    compute = ttnn.ComputeConfig(dst_full_sync_en=True)
    code = emit_conv2d(plan_one(CONV, N150, Conv2dConfig(), layout=ShardLayout.HEIGHT, compute=compute))
    assert "dst_full_sync_en=True" in code
    assert "reallocate_halo_output=False" in code  # True in ttnn

"""Tests of whole networks on a device, compared with torch."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import tessera.coregrid as ttnn
from tessera.coregrid.networks.layers import describe_module, describe_network
from tessera.coregrid.networks.plan import plan_network
from tessera.coregrid.networks.run import NetworkOnDevice
from tessera.geometry import Mesh
from tessera.machine import load_machine
from tessera.models import build
from tests.coregrid.networks.chains import CustomForward, make_norm
from tests.coregrid.operations.agreement import compute_correlation

FLOAT32 = ttnn.Conv2dConfig(dtype=ttnn.float32, weights_dtype=ttnn.float32, deallocate_activation=True)
BFLOAT16 = ttnn.Conv2dConfig(deallocate_activation=True)
BFLOAT8 = ttnn.Conv2dConfig(weights_dtype=ttnn.bfloat8_b, deallocate_activation=True)


def compute_logits(name: str, batch: int, size: int, config: ttnn.Conv2dConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of the device and of torch. The device runs twice; the second run uses prepared weights."""
    device, model = ttnn.open_device("wormhole_n150"), build(name)
    plan = plan_network(describe_network(name, batch, size), device.machine, config, ttnn.ComputeConfig()).best
    running = NetworkOnDevice(model, plan, device)
    images = torch.randn(batch, 3, size, size)
    running(torch.randn_like(images))
    result = running(images)
    assert device.arena.used == 0
    with torch.no_grad():
        return result, model(images)


@pytest.mark.timeout(300)
def test_residual_network_in_float32_equals_torch() -> None:
    result, expected = compute_logits("resnet18", 1, 64, FLOAT32)
    torch.testing.assert_close(result, expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("name", ["flattened", "squashed"])
def test_user_defined_networks_equal_torch(name: str) -> None:
    """Run networks with all activations and with batch norms; the device flattens by pixel, torch by channel."""
    result, expected = compute_logits(f"tests.coregrid.networks.chains:{name}", 3, 16, FLOAT32)
    torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-4)


def test_joins_gates_norms_and_views_equal_torch() -> None:
    """Run every kind of layer: folded stem, gate, group norm, transposed convolution, upsampling, concat, attention."""

    def forward(self: CustomForward, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.stem(x)
        gate = self.gate(x.mean((2, 3), keepdim=True)).sigmoid()
        small = self.norm(self.down(x * gate))
        joined = torch.cat([self.up(small), torch.nn.functional.interpolate(small, scale_factor=2), x], 1)
        x = self.pool(self.mix(joined) * 0.5 + 1)
        tokens = x.flatten(2).transpose(1, 2)
        attended = torch.softmax(tokens @ tokens.transpose(1, 2) / 8, -1) @ tokens
        first, second = self.head(attended).chunk(2, -1)
        return first - second, x.clamp(-0.5, 0.5)

    module = CustomForward(
        forward,
        stem=nn.Sequential(nn.Conv2d(3, 16, 7, stride=2, padding=3), make_norm(16), nn.ReLU()),
        gate=nn.Conv2d(16, 16, 1),
        down=nn.Conv2d(16, 32, 3, stride=2, padding=1, groups=4),
        norm=nn.GroupNorm(4, 32),
        up=nn.ConvTranspose2d(32, 16, 3, stride=2, padding=1, output_padding=1),
        mix=nn.Conv2d(64, 24, 1),
        pool=nn.AvgPool2d(2),
        head=nn.Linear(24, 10),
    ).eval()
    images, device = torch.randn(2, 3, 32, 32), ttnn.open_device("wormhole_n150")
    network = describe_module(module, images)
    assert {"fold", "conv_transpose", "concat", "upsample", "norm", "global_pool", "avg_pool", "other"} <= {
        layer.kind for layer in network.layers
    }
    plan = plan_network(network, device.machine, FLOAT32, ttnn.ComputeConfig()).best
    device.arena.reset_peak()
    results = NetworkOnDevice(module, plan, device)(images)
    assert device.arena.used == 0
    assert device.arena.peak <= max(step.memory for step in plan.steps)
    with torch.no_grad():
        for result, expected in zip(results, module(images), strict=True):
            torch.testing.assert_close(result, expected, atol=1e-4, rtol=1e-4)


def test_tensors_that_wait_are_spilled_and_large_layers_are_sliced() -> None:
    """Run a network that does not fit the cores of a small machine; outputs are still torch's."""

    def forward(self: CustomForward, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        return self.last(torch.cat([x, self.middle(x)], 1))

    module = CustomForward(
        forward,
        first=nn.Conv2d(3, 64, 3, padding=1),
        middle=nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1)),
        last=nn.Conv2d(128, 8, 3, padding=1),
    ).eval()
    machine = replace(load_machine("wormhole-n150"), local_memory=380_000, workers=Mesh(2, 2))
    images, device = torch.randn(1, 3, 56, 56), ttnn.open_device(machine)
    plan = plan_network(describe_module(module, images), machine, FLOAT32, ttnn.ComputeConfig()).best
    assert any(step.option.plan is not None and step.option.plan.slices for step in plan.steps)
    result = NetworkOnDevice(module, plan, device)(images)
    assert device.arena.peak <= machine.local_memory
    with torch.no_grad():
        torch.testing.assert_close(result, module(images), atol=1e-4, rtol=1e-4)


def test_gated_residuals_in_float32_equal_torch() -> None:
    result, expected = compute_logits("mobilenet_v3_small", 1, 32, FLOAT32)
    torch.testing.assert_close(result, expected, atol=1e-3, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("name", "size"), [("efficientnet_b0", 64), ("unet", 64)])
def test_joined_networks_equal_torch(name: str, size: int) -> None:
    result, expected = compute_logits(name, 2, size, FLOAT32)
    torch.testing.assert_close(result, expected, atol=1e-3, rtol=1e-3)


@pytest.mark.timeout(300)
def test_inverted_residuals_in_float32_equal_torch() -> None:
    result, expected = compute_logits("mobilenet_v2", 2, 32, FLOAT32)
    torch.testing.assert_close(result, expected, atol=1e-3, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_vgg11_equals_torch() -> None:
    result, expected = compute_logits("vgg11", 1, 224, FLOAT32)
    assert compute_correlation(result, expected) > 0.9999


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("batch", "config", "least"),
    [
        (1, FLOAT32, 0.9999),
        (8, FLOAT32, 0.9999),
        (1, BFLOAT16, 0.99),
        (8, BFLOAT16, 0.99),
        (16, BFLOAT16, 0.99),
        (20, BFLOAT16, 0.99),
        (1, BFLOAT8, 0.99),
        (8, BFLOAT8, 0.99),
        (16, BFLOAT8, 0.99),
        (20, BFLOAT8, 0.99),
    ],
)
def test_resnet50_correlates_with_torch(batch: int, config: ttnn.Conv2dConfig, least: float) -> None:
    result, expected = compute_logits("resnet50", batch, 224, config)
    assert compute_correlation(result, expected) > least

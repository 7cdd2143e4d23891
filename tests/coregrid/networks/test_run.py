"""Tests of whole networks on a device, compared with torch."""

from __future__ import annotations

import pytest
import torch

import tessera.coregrid as ttnn
from tessera.coregrid.networks.layers import describe_network
from tessera.coregrid.networks.plan import plan_network
from tessera.coregrid.networks.run import NetworkOnDevice
from tessera.models import build
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

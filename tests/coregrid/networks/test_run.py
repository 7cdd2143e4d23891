"""Whole networks on a device: the logits are torch's."""

from __future__ import annotations

import pytest
import torch

import tessera.coregrid as ttnn
from tessera.coregrid.networks.layers import network
from tessera.coregrid.networks.plan import plan_network
from tessera.coregrid.networks.run import NetworkOnDevice
from tessera.models import build
from tests.coregrid.operations.agreement import correlation

FLOAT32 = ttnn.Conv2dConfig(dtype=ttnn.float32, weights_dtype=ttnn.float32, deallocate_activation=True)
BFLOAT16 = ttnn.Conv2dConfig(deallocate_activation=True)
BFLOAT8 = ttnn.Conv2dConfig(weights_dtype=ttnn.bfloat8_b, deallocate_activation=True)


def logits(name: str, batch: int, size: int, config: ttnn.Conv2dConfig) -> tuple[torch.Tensor, torch.Tensor]:
    """Of the device and of torch; twice on the device, the second time with weights that are there already."""
    device, model = ttnn.open_device("wormhole_n150"), build(name)
    plan = plan_network(network(name, batch, size), device.machine, config, ttnn.ComputeConfig()).best
    running = NetworkOnDevice(model, plan, device)
    images = torch.randn(batch, 3, size, size)
    running(torch.randn_like(images))
    found = running(images)
    assert device.arena.used == 0
    with torch.no_grad():
        return found, model(images)


@pytest.mark.timeout(300)
def test_a_residual_network_in_float32() -> None:
    found, expected = logits("resnet18", 1, 64, FLOAT32)
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=1e-3)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize(("config", "least"), [(FLOAT32, 0.9999), (BFLOAT16, 0.99), (BFLOAT8, 0.99)])
def test_resnet50(batch: int, config: ttnn.Conv2dConfig, least: float) -> None:
    found, expected = logits("resnet50", batch, 224, config)
    assert correlation(found, expected) > least

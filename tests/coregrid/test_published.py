"""Tests of predictions against published times. The tables hold the errors; nothing in the model is fitted to them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessera.coregrid.networks.layers import describe_network
from tessera.coregrid.networks.plan import DEFAULT_CONV_CONFIG, plan_network
from tessera.coregrid.published import (
    PUBLISHED_RATES,
    PUBLISHED_TIMES,
    PublishedRate,
    PublishedTime,
    find_published_rate,
    predict_published_time,
)
from tessera.machine import load_machine

EXPLAINED_ERROR = 0.3  # larger errors have an explanation
TIME_ERRORS = {
    ("VAE of SDXL", "wormhole-n150"): -0.06,
    ("VAE of SDXL", "blackhole-p150"): 0.11,
    ("U-Net", "wormhole-n150"): 0.36,
    ("U-Net", "blackhole-p150"): 0.22,
    ("SDXL", "wormhole-n150"): -0.08,
    ("SDXL", "blackhole-p150"): 0.24,
    ("SegFormer", "wormhole-n150"): 0.15,
    ("SegFormer", "blackhole-p150"): 0.40,
    ("256 to 128 channels, HEIGHT", "wormhole-n150"): -0.01,
    ("256 to 128 channels, BLOCK", "wormhole-n150"): 0.13,
}
RATE_ERRORS = {
    ("resnet50", "grayskull-e150", 20): -0.14,
    ("resnet50", "wormhole-n150", 16): 0.03,
    ("resnet50", "blackhole-p150", 16): 0.05,
    ("resnet50", "blackhole-p150", 32): 0.13,
    ("mobilenet_v2", "wormhole-n150", 10): 0.28,
    ("vgg11", "wormhole-n150", 1): -0.22,
    ("vgg16", "wormhole-n150", 1): -0.18,
    ("unet_32", "wormhole-n150", 1): 0.05,
    ("unet_32", "blackhole-p150", 1): 0.90,
    ("vgg19_unet", "wormhole-n150", 1): 0.48,
    ("vgg19_unet", "blackhole-p150", 1): 0.57,
}


@pytest.mark.parametrize("row", PUBLISHED_TIMES, ids=lambda row: f"{row.name}-{row.machine}")
def test_error_of_a_convolution(row: PublishedTime) -> None:
    error = predict_published_time(row) / row.seconds - 1
    assert error == pytest.approx(TIME_ERRORS[row.name, row.machine], abs=0.02)
    assert row.source
    assert bool(row.why) == (abs(error) > EXPLAINED_ERROR)


@pytest.mark.parametrize("row", PUBLISHED_RATES, ids=lambda row: f"{row.network}-{row.machine}-{row.batch}")
def test_error_of_a_network(row: PublishedRate) -> None:
    config = replace(DEFAULT_CONV_CONFIG, dtype=row.dtype, weights_dtype=row.dtype)
    plan = plan_network(describe_network(row.network, row.batch, row.image), load_machine(row.machine), config).best
    assert plan.published == row
    assert plan.error is not None
    assert plan.error == pytest.approx(RATE_ERRORS[row.network.rpartition(":")[2], row.machine, row.batch], abs=0.01)
    assert row.source
    assert bool(row.why) == (abs(plan.error) > EXPLAINED_ERROR)


@pytest.mark.parametrize(
    ("batch", "image", "known"), [(16, (224, 224), True), (1, (224, 224), False), (16, (64, 64), False)]
)
def test_published_rates_require_equal_batch_and_image_size(batch: int, image: tuple[int, int], known: bool) -> None:
    assert (find_published_rate("resnet50", "wormhole-n150", batch, image) is not None) == known

"""Tests of EfficientNets: channel groups of every block, and scaled residual branches."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tessera.errors import TesseraError
from tessera.models import build, build_layers
from tessera.models.efficientnet import SCALES, _count_groups


@given(channels=st.integers(1, 4096), group_dim=st.integers(1, 64))
def test_groups_divide_the_channels_and_have_the_requested_size(channels: int, group_dim: int) -> None:
    groups = _count_groups(channels, group_dim)
    assert channels % groups == 0
    assert channels // groups >= min(channels, group_dim)
    if channels % max(1, channels // group_dim) == 0:  # the default rule, if it divides the channels
        assert groups == max(1, channels // group_dim)


@pytest.mark.parametrize("number", range(len(SCALES)))
def test_every_efficientnet_has_a_variant_of_group_dim_16(number: int) -> None:
    net = build_layers(f"efficientnet_b{number}", group_dim=16, expand_ratio=4, norm="group")
    spatial = [m for m in net.modules() if isinstance(m, torch.nn.Conv2d) and m.kernel_size != (1, 1)][1:]
    assert len(spatial) >= 16
    assert all(16 <= m.in_channels // m.groups < 32 for m in spatial)
    assert net(torch.empty(1, 3, 64, 64, device="meta")).shape == (1, 1000)


def test_a_group_without_channels_is_refused() -> None:
    with pytest.raises(TesseraError, match="group_dim must be positive"):
        build_layers("efficientnet_b0", group_dim=0)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_random_weights_of_residual_branches_are_scaled_down(norm: str) -> None:
    net = build("efficientnet_b0", norm=norm, seed=torch.seed() % 2**32)
    ends = {"features.2.1.block.3.1": 0.25, "features.2.0.block.3.1": 1.0, "features.2.1.block.0.1": 1.0}
    for name, scale in ends.items():  # the end of a branch, of a block without a shortcut, and within a branch
        weight = net.get_parameter(f"{name}.weight").detach()
        assert 0.8 * scale <= float(weight.min())
        assert float(weight.max()) <= 1.2 * scale

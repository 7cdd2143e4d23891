"""Tests of random networks on random meshes: output, gradients and statistics equal the unsplit network's."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from tests.spatial.comparison import check_agreement

torch.set_num_threads(1)
Draw = Callable[[st.SearchStrategy[Any]], Any]


class Residual(nn.Module):
    def __init__(self, body: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.body, self.shortcut, self.scale = body, shortcut, nn.Parameter(torch.randn(1))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.scale * self.body(x) + self.shortcut(x))


class Branches(nn.Module):
    def __init__(self, *branches: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


class Gate(nn.Module):
    """Squeeze and excitation: each channel is multiplied by a factor computed from the channel means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.squeeze, self.excite = nn.Conv2d(channels, 2, 1), nn.Linear(2, channels)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.excite(self.squeeze(x.mean((2, 3), keepdim=True)).relu().flatten(1)))
        return x * gate.view(x.size(0), -1, 1, 1)


class Shuffle(nn.Module):
    """Channel shuffle: splits the channels and concatenates them in another order."""

    def forward(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=1)
        return torch.cat((torch.tanh(second), first, x[:, :1]), 1)


class Hourglass(nn.Module):
    """A stage of a U-net: downsamples, then upsamples to the size of the skip connection."""

    def __init__(self, channels: int, down: nn.Module, up: str) -> None:
        super().__init__()
        self.down, self.up = down, up
        self.merge = nn.Conv2d(2 * channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        corners = False if self.up == "bilinear" else None
        back = F.interpolate(F.silu(self.down(x)), size=x.shape[2:], mode=self.up, align_corners=corners)
        return self.merge(torch.cat([x, back], 1))


def draw_convolution(draw: Draw, channels: int, outputs: int, *, keep_size: bool = False) -> nn.Module:
    groups = draw(st.sampled_from([g for g in (1, 2, 3) if channels % g == 0 and outputs % g == 0]))
    dilation = draw(st.integers(1, 2))
    if keep_size:
        kernel = draw(st.integers(1, 4))
        return nn.Conv2d(channels, outputs, kernel, padding="same", dilation=dilation, groups=groups)
    kernel = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    stride = draw(st.tuples(st.integers(1, 2), st.integers(1, 3)))
    padding = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    mode = draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"]))
    bias = draw(st.booleans())
    return nn.Conv2d(channels, outputs, kernel, stride, padding, dilation, groups, bias, mode)


def draw_norm(draw: Draw, channels: int) -> nn.Module:
    norms = [nn.BatchNorm2d(channels), nn.GroupNorm(1, channels), nn.InstanceNorm2d(channels, affine=True)]
    return draw(st.sampled_from(norms))


def draw_block(draw: Draw, channels: int) -> tuple[nn.Module, int]:
    """Draw a random part of a network; return it and its number of output channels."""
    outputs = draw(st.integers(1, 4))
    match draw(st.integers(0, 9)):
        case 0 | 1:
            return draw_convolution(draw, channels, outputs), outputs
        case 2:
            return nn.ConvTranspose2d(channels, outputs, draw(st.integers(2, 3)), draw(st.integers(1, 2))), outputs
        case 3:
            pools = [nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, ceil_mode=True), nn.AvgPool2d(3, 1, 1), nn.AvgPool2d(2)]
            return draw(st.sampled_from(pools)), channels
        case 4:
            return nn.Sequential(draw_norm(draw, channels), nn.ReLU(inplace=True)), channels
        case 5:
            body = nn.Sequential(draw_convolution(draw, channels, outputs, keep_size=True), draw_norm(draw, outputs))
            return Residual(body, nn.Conv2d(channels, outputs, 1)), outputs
        case 6:
            branches = [draw_convolution(draw, channels, outputs, keep_size=True), nn.Identity()]
            return Branches(*branches), channels + outputs
        case 7:
            return Gate(channels), channels
        case 8:
            if channels % 2:
                return nn.Upsample(scale_factor=2, mode="nearest"), channels
            return Shuffle(), channels + 1
        case _:
            up = draw(st.sampled_from(["nearest", "bilinear"]))
            return Hourglass(channels, nn.Conv2d(channels, channels, 3, 2, 1), up), channels


@st.composite
def networks(draw: Draw) -> nn.Module:
    channels, parts = 2, []
    for _ in range(draw(st.integers(2, 5))):
        part, channels = draw_block(draw, channels)
        parts.append(part)
    head = draw(st.sampled_from(["none", "pooled", "softmax"]))
    if head == "pooled":
        parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 3)]
    elif head == "softmax":
        parts.append(nn.Softmax(dim=1))
    return nn.Sequential(*parts).double()


def can_run_unsplit(network: nn.Module, image: Tensor) -> bool:
    """Return whether torch can run the network, and no normalisation has fewer than six values."""
    smallest = image.shape[0] * image.shape[2] * image.shape[3]

    def record_size(module: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal smallest
        pixels = output.shape[2] * output.shape[3]
        smallest = min(smallest, pixels if isinstance(module, nn.InstanceNorm2d) else pixels * output.shape[0])

    trial = deepcopy(network)
    for module in trial.modules():
        if isinstance(module, nn.BatchNorm2d | nn.GroupNorm | nn.InstanceNorm2d):
            module.register_forward_hook(record_size)
    try:
        output = trial(image)
    except (RuntimeError, ValueError):
        return False
    return smallest >= 6 and output.numel() < 20_000


@given(
    network=networks(),
    mesh=st.sampled_from(["1x2", "2x1", "2x2", "1x3", "3x2"]),
    samples=st.integers(1, 3),
    size=st.tuples(st.integers(7, 17), st.integers(7, 17)),
    channels_last=st.booleans(),
    training=st.booleans(),
    seed=st.integers(0, 2**30),
)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@pytest.mark.timeout(300)
def test_a_random_network_is_exact(
    network: nn.Module,
    mesh: str,
    samples: int,
    size: tuple[int, int],
    channels_last: bool,
    training: bool,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    for weight in network.parameters():
        nn.init.normal_(weight, 0.0, 0.5)
    image = torch.randn(samples, 2, *size, dtype=torch.float64)
    network.train(training)
    assume(can_run_unsplit(network, image))
    check_agreement(network, mesh, image, channels_last=channels_last)

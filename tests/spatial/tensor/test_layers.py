"""Tests of pointwise layers, padding and linear layers on split tensors: results equal torch's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from tests.spatial.tensor.agreement import MeshCounts, check_agreement, meshes, quick, run_on_ranks, seeds, split

POINTWISE = [
    nn.CELU(0.7),
    nn.ChannelShuffle(2),
    nn.ELU(),
    nn.GELU(),
    nn.GELU(approximate="tanh"),
    nn.GLU(dim=1),
    nn.Hardshrink(),
    nn.Hardsigmoid(),
    nn.Hardswish(),
    nn.Hardtanh(),
    nn.Identity(),
    nn.LeakyReLU(0.2),
    nn.LocalResponseNorm(3),
    nn.LogSigmoid(),
    nn.LogSoftmax(dim=1),
    nn.Mish(),
    nn.PReLU(4),
    nn.ReLU(),
    nn.ReLU6(),
    nn.SELU(),
    nn.Sigmoid(),
    nn.SiLU(),
    nn.Softmax(dim=-3),
    nn.Softmax2d(),
    nn.Softmin(dim=1),
    nn.Softplus(),
    nn.Softshrink(),
    nn.Softsign(),
    nn.Tanh(),
    nn.Tanhshrink(),
    nn.Threshold(0.1, 2.0),
]


@pytest.mark.parametrize("module", POINTWISE, ids=lambda module: type(module).__name__)
@pytest.mark.parametrize("kind", ["tiles", "samples", "channels", "whole"])
def test_pointwise_layers(module: nn.Module, kind: Any) -> None:
    check_agreement(module, (2, 4, 2, 5), (3, 2), 0, kind=kind, rounds=1)  # case in which some ranks have no pixels


PADDINGS: list[Any] = [
    nn.ZeroPad2d((1, 0, 2, 3)),
    nn.ZeroPad2d((-1, 0, 2, -1)),
    nn.ZeroPad2d(-1),
    nn.ConstantPad2d((0, 2, 1, 1), -1.5),
    nn.ReflectionPad2d((2, 1, 1, 2)),
    nn.ReplicationPad2d((3, 1, 0, 2)),
    nn.CircularPad2d((1, 3, 2, 1)),
]


@pytest.mark.parametrize("module", PADDINGS, ids=str)
@pytest.mark.parametrize("kind", ["tiles", "samples", "whole"])
@quick
@given(mesh=meshes, seed=seeds, height=st.integers(3, 7), width=st.integers(3, 7), last=st.booleans())
def test_padding(
    module: nn.Module, kind: Any, mesh: MeshCounts, seed: int, height: int, width: int, last: bool
) -> None:
    check_agreement(module, (2, 2, height, width), mesh, seed, kind=kind, channels_last=last, rounds=1)


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.ReflectionPad1d((2, 1)), (2, 2, 7)),
        (nn.ReplicationPad1d((2, 9)), (2, 2, 7)),
        (nn.CircularPad1d((2, 7)), (2, 2, 7)),
        (nn.ZeroPad3d((1, 0, 2, 1, 0, 3)), (2, 2, 3, 4, 5)),
        (nn.ReflectionPad3d((1, 0, 2, 1, 0, 2)), (2, 2, 3, 4, 5)),
        (nn.ReplicationPad3d((1, 0, 2, 1, 0, 3)), (2, 2, 3, 4, 5)),
        (nn.CircularPad3d((1, 0, 2, 1, 0, 3)), (2, 2, 3, 4, 5)),
    ],
    ids=str,
)
@pytest.mark.parametrize("mesh", [(2, 2), (3,)])
def test_padding_of_signals_and_volumes(module: Any, shape: tuple[int, ...], mesh: MeshCounts) -> None:
    check_agreement(module, shape, mesh, 1)


@pytest.mark.parametrize("kind", ["tiles", "samples", "channels", "whole"])
@pytest.mark.parametrize(
    "module",
    [
        nn.Flatten(),
        nn.Flatten(2),
        nn.Flatten(0),
        nn.PixelShuffle(2),
        nn.PixelUnshuffle(2),
        nn.Softmax(dim=-1),
        nn.Softmax(dim=2),
        nn.LogSoftmax(dim=-1),
        nn.GLU(dim=2),
        nn.Linear(6, 3),
        nn.Unflatten(1, (2, 2)),
        nn.Unfold(3, padding=1, stride=2),
        nn.LPPool2d(2, 2),
        nn.Sequential(nn.Flatten(), nn.Linear(96, 3)),
        nn.Sequential(nn.Unfold(2, stride=2), nn.Fold((4, 6), 2, stride=2)),
        nn.Sequential(nn.Unfold(3, padding=1), nn.Fold((4, 6), 3, padding=1)),
    ],
    ids=str,
)
def test_layers_that_mix_pixels(module: nn.Module, kind: Any) -> None:
    check_agreement(module, (2, 4, 4, 6), (1, 3), 2, kind=kind)
    check_agreement(module, (2, 4, 4, 6), (2, 2), 3, kind=kind)


@pytest.mark.parametrize("kind", ["samples", "channels", "whole"])
def test_linear_layers_of_vectors(kind: Any) -> None:
    check_agreement(nn.Linear(5, 3), (2, 5), (1, 3), 3, kind=kind)


@pytest.mark.parametrize("dims", [1, 2, 3])
@quick
@given(
    data=st.data(), mesh=meshes, seed=seeds, kind=st.sampled_from(["tiles", "tiles", "samples", "channels", "whole"])
)
def test_any_convolution(dims: int, data: Any, mesh: MeshCounts, seed: int, kind: Any) -> None:
    draw = data.draw
    kernel = [draw(st.integers(1, 4)) for _ in range(dims)]
    dilation = [draw(st.integers(1, 2)) for _ in range(dims)]
    padding = [draw(st.integers(0, 3)) for _ in range(dims)]
    mode = draw(st.sampled_from(["zeros", "zeros", "reflect", "replicate", "circular"]))
    least = [
        max(p + 1, (k - 1) * d + 1 - 2 * p) if mode in ("reflect", "circular") else max(1, (k - 1) * d + 1 - 2 * p)
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    ]
    sizes = [draw(st.integers(low, low + (7 if dims < 3 else 3))) for low in least]
    groups = draw(st.integers(1, 2))
    channels = groups * draw(st.integers(1, 2))
    module = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](
        channels,
        groups * draw(st.integers(1, 2)),
        kernel,  # type: ignore[arg-type]
        stride=[draw(st.integers(1, 3)) for _ in range(dims)],
        padding=padding,
        dilation=dilation,
        groups=groups,
        bias=draw(st.booleans()),
        padding_mode=mode,
    )
    shape = (draw(st.integers(1, 2)), channels, *sizes)
    check_agreement(module, shape, mesh, seed, kind=kind, channels_last=draw(st.booleans()))


class Blurred(nn.Conv2d):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return super().forward(image) / 2


class Rounded(nn.Conv2d):
    def _conv_forward(self, image: Any, weight: Any, bias: Any) -> Any:
        return super()._conv_forward(image, weight + weight.detach().round(), bias)


class Named(nn.Conv2d):
    def extra_repr(self) -> str:
        return "named"


@pytest.mark.parametrize("kind", [Blurred, Rounded, Named])
def test_subclasses_of_layers(kind: Any) -> None:
    check_agreement(kind(2, 3, 3, padding=1), (1, 2, 6, 6), (2, 2), 4)


def test_a_reparametrised_layer() -> None:
    check_agreement(weight_norm(nn.Conv2d(2, 3, 3, padding=1)), (1, 2, 6, 6), (2, 2), 6)


def test_an_image_without_gradient() -> None:
    check_agreement(nn.Conv2d(2, 3, 3, padding=1), (1, 2, 6, 6), (2, 2), 6, of_image=False)


@pytest.mark.parametrize(
    ("module", "message"),
    [(nn.Conv2d(1, 1, 7), "Kernel size"), (nn.Conv2d(1, 1, 3, padding=4, padding_mode="reflect"), "Padding size")],
)
def test_errors_of_torch_are_raised(module: nn.Module, message: str) -> None:
    """Check that arguments that torch refuses are refused with torch's own message."""
    with pytest.raises(RuntimeError, match=message):
        module(torch.zeros(1, 1, 4, 4))
    with pytest.raises(RuntimeError, match=message):
        run_on_ranks((1, 2), lambda group: module(split(torch.zeros(1, 1, 4, 4), group)))

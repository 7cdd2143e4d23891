"""Layers that need no exchange, the table of layers, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from tessera.errors import TesseraError
from tessera.geometry import Mesh
from tessera.spatial.layers import makes
from tests.spatial.layers.agreement import agrees, cut, meshes, on_ranks, quick, seeds

POINTWISE = [
    nn.CELU(0.7),
    nn.ChannelShuffle(2),
    nn.ELU(),
    nn.GELU(),
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
@pytest.mark.parametrize("kind", ["tiles", "samples"])
def test_every_pixel_alone(module: nn.Module, kind: Any) -> None:
    agrees(module, (2, 4, 2, 5), Mesh(3, 2), 0, kind=kind, rounds=1)  # with ranks that have nothing


PADDINGS: list[Any] = [
    nn.ZeroPad2d((1, 0, 2, 3)),
    nn.ConstantPad2d((0, 2, 1, 1), -1.5),
    nn.ReflectionPad2d((2, 1, 1, 2)),
    nn.ReplicationPad2d((3, 1, 0, 2)),
    nn.CircularPad2d((1, 3, 2, 1)),
]


@pytest.mark.parametrize("module", PADDINGS, ids=lambda module: type(module).__name__)
@pytest.mark.parametrize("kind", ["tiles", "samples", "whole"])
@quick
@given(mesh=meshes, seed=seeds, height=st.integers(3, 7), width=st.integers(3, 7), last=st.booleans())
def test_padding(module: nn.Module, kind: Any, mesh: Mesh, seed: int, height: int, width: int, last: bool) -> None:
    agrees(module, (2, 2, height, width), mesh, seed, kind=kind, channels_last=last, rounds=1)


@pytest.mark.parametrize("module", [nn.ReflectionPad1d((2, 1)), nn.ZeroPad3d((1, 0, 2, 1, 0, 3))])
def test_padding_of_signals_and_volumes(module: Any) -> None:
    shape = (2, 2, 7) if isinstance(module, nn.ReflectionPad1d) else (2, 2, 3, 4, 5)
    agrees(module, shape, Mesh(2, 2), 1)


@pytest.mark.parametrize("kind", ["samples", "whole"])
@pytest.mark.parametrize(
    "module", [nn.Flatten(), nn.PixelShuffle(2), nn.PixelUnshuffle(2), nn.AdaptiveMaxPool2d((2, 3))]
)
def test_whole_images(module: nn.Module, kind: Any) -> None:
    agrees(module, (2, 4, 4, 6), Mesh(1, 3), 2, kind=kind)


def test_softmax_over_the_columns_of_whole_images() -> None:
    agrees(nn.Softmax(dim=-1), (2, 3, 4, 5), Mesh(1, 3), 2, kind="samples")


@pytest.mark.parametrize("kind", ["samples", "whole"])
def test_linear(kind: Any) -> None:
    agrees(nn.Linear(5, 3), (2, 5), Mesh(1, 3), 3, kind=kind)


def test_dropout_of_tiles_draws_for_each_pixel() -> None:
    def run(layer: Any, own: Any, transport: Any) -> None:
        found = layer(torch.ones(1, 2, 64, 32))
        assert 0.4 < float((found == 0).float().mean()) < 0.6
        assert set(found.unique().tolist()) == {0.0, 2.0}
        own.eval()
        assert layer(torch.ones(1, 2, 64, 32)).all()

    on_ranks(nn.Dropout(0.5), (1, 64, 64), Mesh(1, 2), run)


@pytest.mark.parametrize(("module", "kind"), [(nn.Dropout2d(0.5), "tiles"), (nn.Dropout(0.5), "whole")])
def test_ranks_drop_the_same_where_they_have_to(module: nn.Module, kind: Any) -> None:
    def run(layer: Any, own: Any, transport: Any) -> torch.Tensor:
        tile = torch.ones(2, 32, *layer.placed.box(transport.rank).shape[1:], requires_grad=True)
        found = layer(tile)
        found.sum().backward()
        assert torch.equal(tile.grad, found)
        own.eval()
        assert layer(tile).all()
        return found.detach()

    left, right = on_ranks(module, (2, 4, 4), Mesh(1, 2), run, kind=kind)
    assert torch.equal(left, right)
    assert set(left.unique().tolist()) == {0.0, 2.0}


class Blurred(nn.Conv2d):
    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return super().forward(image) / 2


class Quantised(nn.Conv2d):
    def _conv_forward(self, image: Any, weight: Any, bias: Any) -> Any:
        return super()._conv_forward(image, weight.round(), bias)


class Named(nn.Conv2d):
    def extra_repr(self) -> str:
        return "named"


def test_a_module_that_computes_as_its_base_runs_as_that() -> None:
    agrees(Named(2, 3, 3, padding=1), (1, 2, 6, 6), Mesh(2, 2), 4)


def test_a_reparametrised_module_runs_with_its_weight() -> None:
    torch.manual_seed(6)
    module, image = weight_norm(nn.Conv2d(2, 3, 3, padding=1)).double(), torch.randn(1, 2, 6, 6).double()
    expected = module(image)

    def run(layer: Any, own: Any, transport: Any) -> None:
        box = layer.placed.box(transport.rank)
        torch.testing.assert_close(layer(cut(image, box)), cut(expected, box))

    on_ranks(module, (1, 6, 6), Mesh(2, 2), run)


@pytest.mark.parametrize(
    ("module", "said"),
    [
        (Blurred(1, 1, 3), "Blurred.*replace it"),
        (Quantised(1, 1, 3), "Quantised.*replace it"),
        (nn.LPPool2d(2, 2), "LPPool2d.*replace it"),
        (nn.Linear(4, 4), "whole images.*gather_at"),
        (nn.Flatten(), "AdaptiveAvgPool2d.*gather_at"),
        (nn.PixelShuffle(2), "gather_at"),
        (nn.Softmax(dim=-1), "dim=-1.*allowed: dim=1.*gather_at"),
        (nn.GLU(dim=2), "dim=2.*allowed: dim=1"),
        (nn.ZeroPad2d(-1), "0 or more"),
        (nn.Conv2d(1, 1, 7), "does not fit an image of 4"),
        (nn.Conv2d(1, 1, 3, padding=4, padding_mode="reflect"), "reflect padding of 4"),
    ],
)
def test_refusals_name_the_layer_and_what_to_do(module: nn.Module, said: str) -> None:
    with pytest.raises(TesseraError, match=f"layer part.layer.*{said}"):
        on_ranks(module, (1, 4, 4), Mesh(1, 2), lambda *_: None)


def test_a_linear_takes_flattened_images() -> None:
    with pytest.raises(TesseraError, match=r"nn.Flatten\(\) before"):
        on_ranks(nn.Linear(4, 4), (2, 4, 4), Mesh(1, 2), lambda *_: None, kind="samples")


def test_a_module_has_one_layer() -> None:
    with pytest.raises(ValueError, match="Conv2d has a layer already"):
        makes(nn.Conv2d)(lambda module, placed, settings: None)  # type: ignore[arg-type,return-value]

"""What cannot be cut says so, with the name of the layer and what to do."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tessera.errors import TesseraError
from tessera.spatial import ParallelModel, parallelize
from tessera.transport.in_process import run_ranks
from tests.spatial.against_uncut import ranks

torch.set_num_threads(1)
IMAGE = torch.randn(2, 3, 8, 8)


class Calls(nn.Module):
    """A convolution, and then something."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.conv, self.function, self.weight = nn.Conv2d(3, 4, 3, padding=1), function, nn.Parameter(torch.ones(8, 8))

    def forward(self, x: Tensor) -> Any:
        return self.function(self, self.conv(x))


class Both(nn.Module):
    """One weight on what is cut and on what is whole."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 1)

    def forward(self, x: Tensor) -> Any:
        return self.conv(self.conv(x).mean((2, 3), keepdim=True))


def run(parallel: ParallelModel) -> None:
    parallel(parallel.scatter(IMAGE))


def calls(function: Any) -> nn.Module:
    return Calls(lambda module, x: function(x))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (nn.Sequential(nn.Conv2d(3, 3, 1), nn.Linear(8, 2)), r"layer 1 \(Linear\): .*gather_at"),
        (nn.Sequential(nn.Conv2d(3, 3, 1), nn.Flatten(), nn.Linear(192, 2)), r"layer 1.*Flatten"),
        (
            nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LSTM(3, 2)),
            r"2 \(LSTM\) does not make one activation",
        ),
        (calls(lambda x: x.flatten(1)), "flatten needs whole images, and here they are cut.*gather_at"),
        (calls(lambda x: x.view(-1)), "view mixes samples"),
        (calls(torch.fft.fft2), "fft_fft2 is not known on images that are cut.*gather_at"),
        (calls(lambda x: x.sum(3)), "sum is not known"),
        (calls(lambda x: x[:, :, ::2]), "getitem takes pixels"),
        (calls(lambda x: torch.cat([x, x], 2)), "goes over dim 2"),
        (calls(lambda x: x.softmax(-1)), "goes over dim -1"),
        (calls(lambda x: x.mean()), "mean goes over samples too"),
        (calls(lambda x: x.mean(2)), r"mean over dims \[2\]"),
        (calls(lambda x: nn.functional.pad(x, (1, 1, 0, 0, 2, 2))), "pad pads pixels and channels at once"),
        (calls(lambda x: x.mean((2,), keepdim=True) * x), r"mean over dims \[2\]"),
        (Calls(lambda module, x: x * module.weight), "a weight that is not one number per channel"),
        (calls(lambda x: x.to(x.device)), "asks where its tensors are"),
        (calls(lambda x: x if x.sum() > 0 else -x), "torch.fx cannot trace Calls: .*control flow"),
        (Both(), "on activations that are cut and on ones that are whole.*'conv"),
        (nn.Sequential(nn.Conv2d(4, 3, 1)), "does not run on images of 2x3x8x8"),
    ],
)
def test_what_cannot_be_cut(model: nn.Module, said: str) -> None:
    with pytest.raises(TesseraError, match=said):
        ranks(model, "1x2", 8, run)


@pytest.mark.parametrize(
    ("mesh", "options", "said"),
    [
        ("two", {}, "a mesh is written ROWSxCOLS"),
        ("1x2", {"overlap": "sometimes"}, "unknown overlap: got 'sometimes'"),
        ("1x2", {"gather_at": "convv"}, "gather_at names no module: got 'convv'; did you mean conv"),
        ("1x2", {"image_size": 1}, "more parts than pixels"),
    ],
)
def test_options_that_cannot_be(mesh: str, options: dict[str, Any], said: str) -> None:
    def rank(transport: Any) -> None:
        parallelize(calls(torch.relu), mesh, transport=transport, **{"image_size": 8, **options})

    with pytest.raises(TesseraError, match=said):
        run_ranks(2, rank)


def test_a_mesh_of_other_than_the_ranks() -> None:
    def rank(transport: Any) -> None:
        parallelize(calls(torch.relu), "2x2", image_size=8, transport=transport)

    with pytest.raises(TesseraError, match="a mesh of 2x2 has 4 ranks: got '2 ranks'"):
        run_ranks(2, rank)


def test_ranks_that_are_not_connected() -> None:
    with pytest.raises(TesseraError, match=r"the ranks are not connected: .*init_process_group"):
        parallelize(calls(torch.relu), "1x2", image_size=8)


def test_a_module_that_is_never_called() -> None:
    model = calls(torch.relu)
    model.idle = nn.Conv2d(3, 3, 1)
    with pytest.raises(TesseraError, match="names a module that is not called: got 'idle'"):
        ranks(model, "1x2", 8, run, gather_at="idle")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (lambda parallel: parallel(IMAGE), r"this rank's tile has another size: got \(8, 8\); allowed: \(8, 4\)"),
        (lambda parallel: parallel(IMAGE[0]), "a tile has samples, channels and pixels"),
        (lambda parallel: parallel.scatter(IMAGE[:, :, 1:]), "an image has another size"),
        (lambda parallel: parallel.scatter(None), "no image to scatter"),
        (lambda parallel: parallel.gather(IMAGE), "there is no output yet"),
        (lambda parallel: parallel.gather((parallel(parallel.scatter(IMAGE)),) * 2), "not the output of the last"),
    ],
)
def test_calls_that_cannot_be(body: Any, said: str) -> None:
    with pytest.raises(TesseraError, match=said):
        ranks(calls(torch.relu), "1x2", 8, body)

"""Tests of errors: invalid meshes, options, images and models, and `strict`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tessera.errors import TesseraError
from tessera.spatial import ParallelModel, parallelize
from tessera.transport.in_process import run_ranks
from tests.spatial.comparison import check_close, run_on_ranks

torch.set_num_threads(1)
torch.manual_seed(0)
IMAGE = torch.randn(2, 3, 8, 8)


class Calls(nn.Module):
    """A network with a convolution followed by a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.conv, self.function = nn.Conv2d(3, 4, 3, padding=1), function

    def forward(self, x: Tensor) -> Any:
        return self.function(self.conv(x))


@pytest.mark.parametrize(
    ("mesh", "options", "message"),
    [
        ("two", {}, "not a mesh: got 'two'; allowed: parts per dim, for example 2, 2x2 or 2x1x2"),
        ("0x2", {}, "not a mesh: got '0x2'"),
        ("", {}, "not a mesh"),
        ("1x2", {"gather_at": "convv"}, "gather_at is not a module of the model: got 'convv'; did you mean conv"),
        ("1x2", {"image_size": 1}, "more parts than the image has pixels along a dim: got '1x1 pixels over 1x2 ranks'"),
        ("1x2", {"overlap": "all"}, "invalid overlap: got 'all'; allowed: none, split, recompute"),
        ("1x2", {"overlap": "split", "halo_depth": 2}, "overlap requires halo_depth=1"),
        ("1x2", {"halo_depth": 0}, "invalid halo_depth: got 0; allowed: auto, or 1 or more"),
        ("1x2", {"halo_depth": "deep"}, "invalid halo_depth: got 'deep'"),
        (
            "2x1",
            {"image_size": (1, 8)},
            "more parts than the image has pixels along a dim: got '1x8 pixels over 2x1 ranks'",
        ),
    ],
)
def test_invalid_options_are_refused(mesh: str, options: dict[str, Any], message: str) -> None:
    def run_rank(transport: Any) -> None:
        parallelize(Calls(torch.relu), mesh, transport=transport, **{"image_size": 8, **options})

    with pytest.raises(TesseraError, match=message):
        run_ranks(2, run_rank)


def test_a_mesh_with_another_number_of_ranks_is_refused() -> None:
    def rank(transport: Any) -> None:
        parallelize(Calls(torch.relu), "2x2", image_size=8, transport=transport)

    with pytest.raises(TesseraError, match="a mesh of 2x2 requires 4 ranks: got '2 ranks'"):
        run_ranks(2, rank)


def test_unconnected_ranks_are_refused() -> None:
    with pytest.raises(TesseraError, match=r"the ranks are not connected: .*init_process_group"):
        parallelize(Calls(torch.relu), "1x2", image_size=8)


def list_errors(model: nn.Module, call: Any, mesh: str = "1x2", **options: Any) -> list[str]:
    """Return the error of `call(parallel)` on every rank, and check that all ranks can continue."""
    expected = model(IMAGE).detach()

    def run(parallel: ParallelModel) -> tuple[str, Tensor]:
        with pytest.raises(TesseraError) as caught:
            call(parallel)
        return str(caught.value), parallel.gather(parallel(IMAGE)).detach()

    results = run_on_ranks(model, mesh, None, run, **options)
    for _, output in results:
        check_close(output, expected, "output", 1e-5)
    return [message for message, _ in results]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda parallel: parallel(), "no image among the arguments: pass a tensor with samples, channels and pixels"),
        (lambda parallel: parallel(IMAGE[0, 0]), "no image among the arguments"),
        (lambda parallel: parallel.scatter(None), "no image to scatter"),
        (
            lambda parallel: parallel(IMAGE[..., :1]),
            "more parts than the image has pixels along a dim: got '8x1 pixels over 1x2 ranks'",
        ),
        (lambda parallel: parallel(IMAGE + parallel.group.rank), "the images of the ranks differ"),
        (lambda parallel: parallel(IMAGE[:, :, parallel.group.rank :]), "the images of the ranks differ"),
        (lambda parallel: parallel.scatter(IMAGE.flip(parallel.group.rank)), "the images of the ranks differ"),
    ],
)
def test_invalid_calls_are_refused_on_all_ranks(call: Any, message: str) -> None:
    for error in list_errors(Calls(torch.relu), call):
        assert message in error


@pytest.mark.parametrize(
    "make",
    [
        lambda rank: nn.Conv2d(3, 4 + rank, 1),
        lambda rank: nn.Conv2d(3, 4, 1, bias=rank == 0),
        lambda rank: nn.Conv2d(3, 4, 1).to(torch.float64 if rank else torch.float32),
        lambda rank: nn.Sequential(*(nn.Conv2d(3, 3, 1) for _ in range(rank + 1))),
    ],
    ids=["shapes", "names", "dtypes", "layers"],
)
def test_different_models_are_refused(make: Any) -> None:
    def run_rank(transport: Any) -> str:
        with pytest.raises(TesseraError) as caught:
            parallelize(make(transport.rank), "1x2", transport=transport)
        return str(caught.value)

    for message in run_ranks(2, run_rank):
        assert message.startswith("the models of the ranks differ")


def test_gathering_at_a_module_that_is_not_called_has_no_effect() -> None:
    model = Calls(torch.relu)
    model.idle = nn.Conv2d(3, 3, 1)

    def run(parallel: ParallelModel) -> Tensor:
        return parallel.gather(parallel(IMAGE)).detach()

    for output in run_on_ranks(model, "1x2", 8, run, gather_at="idle"):
        check_close(output, model(IMAGE), "output", 1e-5)


def test_an_error_of_torch_is_raised() -> None:
    with pytest.raises(RuntimeError, match=r"expected input.* to have 4 channels, but got 3 channels"):
        run_on_ranks(nn.Sequential(nn.Conv2d(4, 3, 1)), "1x2", 8, lambda parallel: parallel(IMAGE))


@pytest.mark.parametrize(
    "function", [torch.linalg.svdvals, lambda x: x[x > 0], lambda x: torch.histc(x)], ids=["svd", "mask", "histogram"]
)
def test_strict_refuses_an_operation_without_a_rule(function: Any) -> None:
    model = Calls(function)

    def run(parallel: ParallelModel) -> str:
        with torch.no_grad(), pytest.raises(TesseraError) as caught:
            parallel(IMAGE)
        return str(caught.value)

    for message in run_on_ranks(model, "1x2", None, run, strict=True):
        assert message.startswith("aten.")
        assert "is not computed on tiles" in message
        assert "strict=False" in message


def test_strict_accepts_a_network_that_is_computed_on_tiles() -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )

    def run(parallel: ParallelModel) -> Tensor:
        return parallel.gather(parallel(IMAGE)).detach()

    for output in run_on_ranks(model, "1x2", None, run, strict=True):
        check_close(output, model(IMAGE), "output", 1e-5)

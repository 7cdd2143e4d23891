"""Tests of scattering an image from one rank: an error of that rank is raised on all ranks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tessera.errors import TesseraError
from tessera.spatial import ParallelModel
from tests.spatial.comparison import run_on_ranks

pytestmark = pytest.mark.timeout(30)


def list_errors(image: Tensor | None, root: int) -> list[str]:
    """Return the error message of `scatter` on every rank, and check that all ranks can continue."""
    whole = torch.randn(2, 3, 8, 8)

    def run(parallel: ParallelModel) -> str:
        is_root = parallel.group.rank == root
        with pytest.raises(TesseraError) as caught:
            parallel.scatter(image if is_root else None, root=root)
        tile = parallel.scatter(whole if parallel.group.rank == 1 else None, root=1)
        assert torch.equal(parallel.gather(parallel(tile)), whole)
        return str(caught.value)

    return run_on_ranks(nn.Sequential(nn.Identity()), "1x3", 8, run)


@pytest.mark.parametrize("root", [-1, 3])
def test_an_invalid_root_is_refused(root: int) -> None:
    assert list_errors(None, root) == [f"root is not a rank: got {root}; allowed: 0 to 2"] * 3


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (None, "root rank 1 passed no image"),
        (
            torch.randn(2, 3, 8, 2),
            "the mesh has more parts than the image has pixels along a dim: got '8x2 pixels over 1x3 ranks'",
        ),
        (torch.randn(3, 8), "not an image: got '2 dims'"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.int64), "an image must have a floating point dtype: got torch.int64"),
    ],
    ids=["none", "narrow", "no image", "integers"],
)
def test_an_invalid_image_is_an_error_on_all_ranks(image: Tensor | None, reason: str) -> None:
    first, own, last = list_errors(image, 1)
    assert own.startswith(reason)
    assert first == last == "rank 1 has no image that can be scattered: see its own error"

"""An image that one rank has: whatever is wrong with it, no rank waits for it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tessera.errors import TesseraError
from tessera.spatial import ParallelModel
from tests.spatial.against_uncut import ranks

pytestmark = pytest.mark.timeout(30)


def said(image: Tensor | None, root: int) -> list[str]:
    """What every rank raises, and that all of them can go on."""
    whole = torch.randn(2, 3, 8, 8)

    def body(parallel: ParallelModel) -> str:
        mine = parallel.settings.transport.rank == root
        with pytest.raises(TesseraError) as caught:
            parallel.scatter(image if mine else None, root=root)
        tile = parallel.scatter(whole if parallel.settings.transport.rank == 1 else None, root=1)
        assert torch.equal(parallel.gather(parallel(tile)), whole)
        return str(caught.value)

    return ranks(nn.Sequential(nn.Identity()), "1x3", 8, body)


@pytest.mark.parametrize("root", [-1, 3])
def test_a_rank_that_there_is_not(root: int) -> None:
    assert said(None, root) == [f"no rank has this number: got {root}; allowed: 0 to 2"] * 3


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (None, "rank 1 has the image, and gave none"),
        (torch.randn(2, 3, 8, 7), "an image has another size: got (8, 7)"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.int64), "an image is made of floating point numbers: got torch.int64"),
    ],
    ids=["none", "another size", "integers"],
)
def test_an_image_that_cannot_be_scattered(image: Tensor | None, reason: str) -> None:
    first, own, last = said(image, 1)
    assert own.startswith(reason)
    assert first == last == "rank 1 has no image that can be scattered: see what it says"

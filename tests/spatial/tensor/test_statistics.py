"""Statistics of a rank's values: blocks of any shape give the mean and the squared deviations of plain torch."""

from __future__ import annotations

import pytest
import torch

from tessera.spatial.tensor import statistics
from tessera.spatial.tensor.statistics import compute_own_statistics


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        ((2, 3, 8, 9), (0, 2, 3)),
        ((1, 4, 2, 7, 8), (2, 3, 4)),
        ((3, 2, 127), (0, 2)),  # a prime length cannot be divided into equal pieces
        ((5, 7), (0,)),
        ((2, 50, 2, 2), (0, 2, 3)),
    ],
)
def test_blocks_give_the_statistics_of_torch(
    shape: tuple[int, ...], dims: tuple[int, ...], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "BLOCK_ELEMENTS", 24)
    values = (torch.randn(shape, dtype=torch.float64) + 3).to(dtype)
    mean, squares = compute_own_statistics(values, dims)
    exact = values.double()
    tolerance = 1e-12 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(mean.double(), exact.mean(dims), rtol=tolerance, atol=tolerance)
    expected = (exact - exact.mean(dims, keepdim=True)).square().sum(dims)
    torch.testing.assert_close(squares.double(), expected, rtol=tolerance, atol=tolerance)
    assert mean.dtype == squares.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)

"""Buffers of every dtype: rank 0's on all ranks, and used as in the uncut network."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tessera.spatial import ParallelModel, parallelize
from tessera.transport.in_process import InProcessTransport, run_ranks
from tests.spatial.against_uncut import agree

torch.set_num_threads(1)


class Masked(nn.Module):
    """A convolution whose channels meet a buffer."""

    def __init__(self, buffer: Tensor, function: Any) -> None:
        super().__init__()
        self.conv, self.function = nn.Conv2d(3, 4, 3, padding=1), function
        self.register_buffer("buffer", buffer)

    def forward(self, x: Tensor) -> Any:
        return self.function(self.conv(x), self.buffer)


CHANNELS = torch.tensor([1, 0, 2, 1]).view(1, 4, 1, 1)


@pytest.mark.parametrize(
    ("buffer", "function"),
    [
        (CHANNELS.bool(), lambda x, mask: x * mask),
        (CHANNELS.bool(), lambda x, mask: torch.where(mask, x, 0.5)),
        (CHANNELS, lambda x, factor: x * factor),
        (CHANNELS.to(torch.uint8), lambda x, factor: x + factor),
        (torch.tensor(3), lambda x, factor: x * factor),
        (torch.tensor(True), lambda x, flag: x * flag),
    ],
    ids=["mask", "choice", "integers", "bytes", "one integer", "one truth value"],
)
def test_a_buffer_that_is_no_float(buffer: Tensor, function: Any) -> None:
    agree(Masked(buffer, function).double(), "2x2", torch.randn(2, 3, 7, 9, dtype=torch.float64))


def test_a_normalisation_that_counts_its_batches_on_its_way() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=None)).double().train()
    agree(model, "1x2", torch.randn(2, 3, 7, 9, dtype=torch.float64))


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.complex64],
)
def test_all_ranks_have_the_very_bits_of_rank_0(dtype: torch.dtype) -> None:
    """Not a number, and a zero with a sign, too."""
    values = torch.tensor([0.0, -0.0, 1.5, float("nan"), float("-inf")])
    given = (
        values.to(dtype) if dtype.is_floating_point or dtype.is_complex else torch.tensor([0, 1, 1, 7, 127]).to(dtype)
    )

    def rank(transport: InProcessTransport) -> Tensor:
        own = given.clone() if transport.rank == 0 else torch.ones_like(given)
        parallel: ParallelModel = parallelize(
            Masked(own, lambda x, buffer: x), "1x3", image_size=8, transport=transport
        )
        return parallel.get_buffer("model.buffer")

    for found in run_ranks(3, rank):
        assert found.dtype == dtype
        assert bits(found) == bits(given)


def bits(tensor: Tensor) -> list[int]:
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return plain.contiguous().view(torch.uint8).flatten().tolist()

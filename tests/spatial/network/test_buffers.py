"""Tests of buffers of every dtype: copied from rank 0 to all ranks, and used as in the unsplit network."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tessera.spatial import ParallelModel, parallelize
from tessera.spatial.tensor.weights import MESSAGE_BYTES
from tessera.transport.in_process import InProcessTransport, run_ranks
from tests.spatial.comparison import check_agreement

torch.set_num_threads(1)


class Masked(nn.Module):
    """A convolution whose output is combined with a buffer."""

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
    check_agreement(Masked(buffer, function).double(), "2x2", torch.randn(2, 3, 7, 9, dtype=torch.float64))


def test_a_batch_norm_that_counts_its_batches() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=None)).double().train()
    check_agreement(model, "1x2", torch.randn(2, 3, 7, 9, dtype=torch.float64))


@pytest.mark.parametrize(
    "dtype",
    [torch.bool, torch.uint8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float64, torch.complex64],
)
def test_all_ranks_have_the_bits_of_rank_0(dtype: torch.dtype) -> None:
    """Check that broadcast buffers are bitwise equal, including NaN and the sign of zero."""
    values = torch.tensor([0.0, -0.0, 1.5, float("nan"), float("-inf")])
    values_of_rank_0 = (
        values.to(dtype) if dtype.is_floating_point or dtype.is_complex else torch.tensor([0, 1, 1, 7, 127]).to(dtype)
    )

    def rank(transport: InProcessTransport) -> Tensor:
        own = values_of_rank_0.clone() if transport.rank == 0 else torch.ones_like(values_of_rank_0)
        parallel: ParallelModel = parallelize(
            Masked(own, lambda x, buffer: x), "1x3", image_size=8, transport=transport
        )
        return parallel.get_buffer("buffer")

    for buffer in run_ranks(3, rank):
        assert buffer.dtype == dtype
        assert list_bits(buffer) == list_bits(values_of_rank_0)


def list_bits(tensor: Tensor) -> list[int]:
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return plain.contiguous().view(torch.uint8).flatten().tolist()


def test_weights_are_sent_in_messages_of_limited_size() -> None:
    """Check that the broadcast needs no copy of all weights, and that all ranks get the weights of rank 0."""
    layers, bytes_per_layer = 6, 4 << 20

    def run(transport: InProcessTransport) -> tuple[list[Tensor], int]:
        torch.manual_seed(transport.rank)
        model = nn.Sequential(*(nn.Linear(1024, bytes_per_layer // 4096, bias=False) for _ in range(layers)))
        sizes, all_reduce = [0], transport.all_reduce

        def count(tensor: Tensor, *rest: Any, **named: Any) -> Any:
            sizes.append(tensor.nbytes)
            return all_reduce(tensor, *rest, **named)

        transport.all_reduce = count  # type: ignore[method-assign]
        parallelize(model, "1x2", transport=transport)
        return [weight.detach() for weight in model.parameters()], max(sizes)

    (first, largest), (second, _) = run_ranks(2, run)
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    assert bytes_per_layer <= largest <= MESSAGE_BYTES < layers * bytes_per_layer

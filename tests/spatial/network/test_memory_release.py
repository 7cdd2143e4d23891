"""Tests that a parallel network leaves nothing behind: its memory is released with its last reference."""

from __future__ import annotations

import gc
import weakref
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tessera.spatial import parallelize
from tessera.transport.in_process import InProcessTransport, run_ranks

torch.set_num_threads(1)


class Attention(nn.Module):
    """Attention over pixels."""

    def forward(self, x: Tensor) -> Tensor:
        pixels = x.flatten(2).transpose(1, 2)
        out = nn.functional.scaled_dot_product_attention(pixels, pixels, pixels)
        return out.transpose(1, 2).reshape(x.shape)


def make_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
        nn.MaxPool2d(3, 2, 1),
        Attention(),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.ConvTranspose2d(4, 4, 4, 2, 1),
        nn.AdaptiveAvgPool2d(3),
        nn.Flatten(),
        nn.Linear(36, 5),
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"halo_depth": 4}, {"halo_depth": "auto"}, {"overlap": "split"}, {"max_gather_bytes": 1}, {"gather_at": "7"}],
    ids=str,
)
def test_a_deleted_network_is_released_without_the_garbage_collector(options: dict[str, Any]) -> None:
    model, image = make_network(), torch.randn(2, 3, 20, 24)

    def run(transport: InProcessTransport) -> list[weakref.ref[Any]]:
        parallel = parallelize(deepcopy(model), "1x2", transport=transport, **options)
        for _ in range(2):
            parallel(image).square().sum().backward()
        transfers = [transfer for plans in parallel.group.plan_sets.values() for transfer in plans.transfers.values()]
        assert transfers
        return [weakref.ref(thing) for thing in (parallel, parallel.group, parallel.model, *transfers)]

    run_ranks(2, run)  # torch imports modules at first use, which leaves cycles behind
    gc.collect()
    gc.disable()
    try:
        kept = [type(thing) for rank in run_ranks(2, run) for ref in rank if (thing := ref()) is not None]
    finally:
        gc.enable()
    assert not kept


def test_an_output_keeps_what_it_needs_of_a_deleted_network() -> None:
    """Check that outputs can be differentiated and gathered after the parallel network was deleted."""
    model, image = make_network().double(), torch.randn(2, 3, 20, 24, dtype=torch.float64)
    unsplit = deepcopy(model)
    expected = unsplit(image)
    expected.square().sum().backward()

    def run(transport: InProcessTransport) -> tuple[Tensor, list[Tensor | None]]:
        own = deepcopy(model)
        parallel = parallelize(own, "1x2", transport=transport)
        output = parallel(image)
        gather = type(parallel).gather.__get__(parallel)
        whole = gather(output).detach()
        del parallel, gather
        loss = output.square().sum()
        del output
        loss.backward()
        return whole, [weight.grad for weight in own.parameters()]

    for whole, grads in run_ranks(2, run):
        torch.testing.assert_close(whole, expected.detach())
        for grad, weight in zip(grads, unsplit.parameters(), strict=True):
            torch.testing.assert_close(grad, weight.grad)

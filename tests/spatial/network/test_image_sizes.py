"""Tests of images of many sizes: results are exact, and plans, buffers and connections do not accumulate."""

from __future__ import annotations

import gc
from typing import Any

import torch
from torch import Tensor, nn

from tessera.spatial import ParallelModel
from tessera.spatial.tensor.layout import TensorLayout
from tessera.spatial.tensor.split_tensor import MAX_PLAN_SETS
from tessera.spatial.tensor.transfer import Transfer
from tests.spatial.comparison import check_close, run_on_ranks

torch.set_num_threads(1)


def make_image(height: int, width: int) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * height + width)
    return torch.randn(1, 2, height, width, dtype=torch.float64, generator=generator)


def make_network() -> nn.Module:
    torch.manual_seed(7)
    layers = [nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(3, 2, 5)]
    return nn.Sequential(*layers).double().eval()


def count_kept() -> dict[str, int]:
    gc.collect()
    objects = gc.get_objects()
    return {kind.__name__: sum(type(thing) is kind for thing in objects) for kind in (Transfer, TensorLayout)}


def test_a_stream_of_200_sizes_keeps_the_plans_of_the_last_ones() -> None:
    sizes = [(12 + number % 20, 13 + number // 20) for number in range(200)]
    warm_up = 2 * MAX_PLAN_SETS

    def run(parallel: ParallelModel) -> Any:
        kept = []
        for number, size in enumerate(sizes):
            with torch.no_grad():
                parallel.gather(parallel(make_image(*size)))
            if number in (warm_up, len(sizes) - 1):
                parallel.group.transport.barrier()
                kept.append(count_kept() if parallel.group.rank == 0 else {})
                parallel.group.transport.barrier()
        return kept

    early, late = run_on_ranks(make_network(), "1x2", None, run)[0]
    for kind, count in late.items():
        assert count <= 1.2 * early[kind] + 20, (
            f"{kind}: {early[kind]} after {warm_up} sizes, {count} after {len(sizes)}"
        )


def test_sizes_come_back_after_their_plans_were_dropped() -> None:
    sizes = [(12 + number % (MAX_PLAN_SETS + 3), 14) for number in range(2 * MAX_PLAN_SETS + 7)]
    model = make_network()
    expected = [model(make_image(*size)) for size in sizes]

    def run(parallel: ParallelModel) -> list[Tensor]:
        with torch.no_grad():
            return [parallel.gather(parallel(make_image(*size))) for size in sizes]

    for outputs in run_on_ranks(model, "2x2", None, run):
        for output, exact in zip(outputs, expected, strict=True):
            check_close(output, exact.detach(), "output")


def test_backward_after_the_plans_of_its_forward_were_dropped() -> None:
    sizes = [(12 + number, 14) for number in range(MAX_PLAN_SETS + 2)]
    model = make_network().train()
    unsplit = make_network().train()
    images = [make_image(*size).requires_grad_() for size in sizes]
    for output in [unsplit(image) for image in images]:
        output.square().sum().backward()

    def run(parallel: ParallelModel) -> Any:
        leaves = [make_image(*size).requires_grad_() for size in sizes]
        for output in [parallel(leaf) for leaf in leaves]:
            output.square().sum().backward()
        return [leaf.grad for leaf in leaves], [weight.grad for weight in parallel.parameters()]

    for image_grads, weight_grads in run_on_ranks(model, "1x2", None, run):
        for grad, image in zip(image_grads, images, strict=True):
            check_close(grad, image.grad, "gradient of the image")
        for grad, weight in zip(weight_grads, unsplit.parameters(), strict=True):
            check_close(grad, weight.grad, "gradient of a weight")

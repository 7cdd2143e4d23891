"""Tests of conversions between split tensors and DTensors on real ranks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Worker, Workers
from tessera.spatial import from_dtensor, parallelize, to_dtensor

pytestmark = [pytest.mark.timeout(300), pytest.mark.ranks]
SIZES = [(13, 18), (10, 9), (5, 5)]


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(LaunchConfig(spawn="torchrun", workers=4, time_limit=120)) as started:
        yield started


@cache
def open_mesh(counts: tuple[int, ...]) -> Any:
    """Return a mesh of all ranks; two meshes that are equal would share torch's caches, but not their groups."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh("cpu", counts, mesh_dim_names=("data", "space", "width")[: len(counts)])


def check(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def convert(worker: Worker, mesh: str, size: tuple[int, int]) -> list[str]:
    """Worker function: a network between DTensors; compare output and gradients with the unsplit network."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor

    worker.connect()
    counts = tuple(map(int, mesh.split("x")))
    torch.manual_seed(0)
    model = nn.Conv2d(2, 3, 3, padding=1).double()
    image = torch.randn(2, 2, *size, dtype=torch.float64)
    direction = torch.randn(2, 3, *size, dtype=torch.float64)
    leaf = image.clone().requires_grad_()
    expected = model(leaf)
    (expected.square() * direction).sum().backward()
    weight_grad = model.weight.grad.clone()
    both, flat = open_mesh((2, 2)), open_mesh((4,))
    parallel = parallelize(model, {"2x2": both, "4": flat}.get(mesh, mesh))
    sources: list[Any] = [
        (both, [Shard(2), Shard(3)]),
        (both, [Shard(3), Shard(2)]),
        (both, [Shard(3), Shard(3)]),
        (both, [Replicate(), Shard(2)]),
        (flat, [Shard(2)]),
        (flat, [Shard(0)]),
        (flat, [Replicate()]),
    ]
    seen = []
    for device_mesh, placements in sources:
        model.zero_grad()
        given = distribute_tensor(image, device_mesh, placements).requires_grad_()
        output = to_dtensor(parallel(from_dtensor(given, parallel)))
        check(output.full_tensor(), expected)
        seen.append(str(output.placements))
        weights = distribute_tensor(direction, output.device_mesh, output.placements)
        (output.square() * weights).sum().backward()
        assert tuple(given.grad.placements) == tuple(placements)
        check(given.grad.full_tensor(), leaf.grad)
        check(model.weight.grad, weight_grad)
        other = to_dtensor(parallel(from_dtensor(given, parallel)), device_mesh, placements)
        check(other.full_tensor(), expected)
    partial = distribute_tensor(image / 4, flat, [Replicate()]).to_local()
    summed = DTensor.from_local(partial, flat, [Partial()])
    check(parallel.gather(from_dtensor(summed, parallel)), image)
    assert len(set(seen)) == 1
    dims = len(counts)
    assert seen[0] == str(tuple(Shard(4 - dims + axis) for axis in range(dims)))
    return list(to_dtensor(parallel(image).sum()).placements)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mesh", ["2x2", "4", "1x4"])
def test_conversions_are_exact_and_differentiable(workers: Workers, mesh: str, size: tuple[int, int]) -> None:
    for placements in workers.run(f"{__name__}:convert", mesh, size):
        assert all(placement.is_replicate() for placement in placements)


def convert_in_a_replica(worker: Worker, dims: int) -> None:
    """Worker function: two replicas with meshes of two ranks each, of one dim or two."""
    worker.connect()
    mesh = open_mesh((2, 2) if dims == 1 else (2, 1, 2))
    mesh = mesh["space"] if dims == 1 else mesh["space", "width"]
    parallel = parallelize(nn.Conv2d(2, 3, 1).double(), mesh)
    image = torch.randn(1, 2, 3, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(worker.rank // 2))
    output = to_dtensor(parallel(image))
    assert output.device_mesh == mesh
    assert output.to_local().shape[3] == (4, 3)[worker.rank % 2]
    check(output.full_tensor(), parallel.model(image))
    check(parallel.gather(from_dtensor(output, parallel)), parallel.model(image))


@pytest.mark.parametrize("dims", [1, 2])
def test_a_mesh_of_some_ranks(workers: Workers, dims: int) -> None:
    workers.run(f"{__name__}:convert_in_a_replica", dims)


def convert_wrongly(worker: Worker) -> list[str]:
    from torch.distributed.tensor import Partial, Shard, distribute_tensor

    worker.connect()
    mesh = open_mesh((2, 2))
    parallel = parallelize(nn.Conv2d(2, 3, 1), mesh["space"])
    image = torch.ones(1, 2, 4, 4)
    output = parallel(image)
    world = open_mesh((4,))
    calls = [
        lambda: to_dtensor(image),
        lambda: to_dtensor(output, placements=[Partial()]),
        lambda: to_dtensor(output, placements=[Shard(4)]),
        lambda: to_dtensor(output, placements=[Shard(2), Shard(3)]),
        lambda: to_dtensor(output, world, [Shard(2)]),
        lambda: from_dtensor(image, parallel),
        lambda: from_dtensor(distribute_tensor(image, world, [Shard(2)]), parallel),
    ]
    messages = []
    for call in calls:
        with pytest.raises(TesseraError) as caught:
            call()
        messages.append(str(caught.value))
    return messages


def test_placements_that_cannot_be_expressed_are_refused(workers: Workers) -> None:
    for messages in workers.run(f"{__name__}:convert_wrongly"):
        for message, expected in zip(
            messages,
            [
                "not a split tensor: got 'Tensor'",
                "unsupported placement: got Partial(sum); allowed: Shard, Replicate",
                "Shard dim out of range: got Shard(dim=4); allowed: 0 to 3",
                "wrong number of placements",
                "the DeviceMesh has other ranks than the parallel network: got [0, 1, 2, 3]",
                "not a DTensor: got 'Tensor'",
                "the DeviceMesh has other ranks than the parallel network: got [0, 1, 2, 3]",
            ],
            strict=True,
        ):
            assert message.startswith(expected)

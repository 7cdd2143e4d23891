"""Tests of parallel networks on real ranks: random numbers, process groups, DDP around them, wrong use."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera.errors import TesseraError
from tessera.launch import LaunchConfig, Worker, Workers
from tessera.spatial import parallelize

pytestmark = [pytest.mark.timeout(300), pytest.mark.ranks]
SEED = 11


class RandomNetwork(nn.Module):
    """A network with dropout, drop path, noise and a branch on Python's and NumPy's random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.dropout, self.channels = nn.Dropout(0.3), nn.Dropout2d(0.4)
        self.steps = 0

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        x = self.channels(self.dropout(self.first(x)))
        x = x + torch.randn_like(x) * 0.1
        keep = torch.rand(x.shape[0], 1, 1, 1, dtype=x.dtype) > 0.2
        factor = random.random() + np.random.rand()
        return self.second(x * keep) * factor * self.steps


def make_network() -> nn.Module:
    torch.manual_seed(SEED)
    return RandomNetwork().double().train()


def seed_everything(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def make_image(seed: int = 3, samples: int = 2) -> Tensor:
    return torch.randn(samples, 3, 13, 18, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def train_random(worker: Worker, seeded_alike: bool) -> list[Tensor]:
    """Worker function: two steps; return outputs and the gradients of the weights."""
    worker.connect()
    model = parallelize(make_network(), f"1x{worker.size}")
    image = make_image()
    seed_everything(SEED if seeded_alike or worker.rank == 0 else 100 + worker.rank)
    results = []
    for _ in range(2):
        output = model(image)
        output.square().sum().backward()
        results.append(model.gather(output).detach())
    return results + [weight.grad for weight in model.parameters() if weight.grad is not None]


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(LaunchConfig(spawn="torchrun", workers=2, time_limit=120)) as started:
        yield started


@pytest.fixture(scope="module")
def four_workers() -> Iterator[Workers]:
    with Workers(LaunchConfig(spawn="torchrun", workers=4, time_limit=120)) as started:
        yield started


@pytest.mark.parametrize("seeded_alike", [True, False])
def test_random_numbers_equal_the_unsplit_network_for_the_seed_of_rank_0(workers: Workers, seeded_alike: bool) -> None:
    model, image = make_network(), make_image()
    seed_everything(SEED)
    expected = []
    for _ in range(2):
        output = model(image)
        output.square().sum().backward()
        expected.append(output.detach())
    expected += [weight.grad for weight in model.parameters() if weight.grad is not None]
    for results in workers.run(f"{__name__}:train_random", seeded_alike):
        for actual, wanted in zip(results, expected, strict=True):
            torch.testing.assert_close(actual, wanted, rtol=1e-10, atol=1e-10)


def pass_different_images(worker: Worker) -> str:
    worker.connect()
    model = parallelize(nn.Conv2d(3, 4, 3).double(), f"1x{worker.size}")
    try:
        model(make_image(seed=worker.rank))
    except TesseraError as error:
        return str(error)
    return "accepted"


def pass_different_models(worker: Worker) -> str:
    worker.connect()
    try:
        parallelize(nn.Conv2d(3, 4 + worker.rank, 3), f"1x{worker.size}")
    except TesseraError as error:
        return str(error)
    return "accepted"


def test_different_images_and_models_are_errors_on_every_rank(workers: Workers) -> None:
    for message in workers.run(f"{__name__}:pass_different_images"):
        assert message.startswith("the images of the ranks differ")
    for message in workers.run(f"{__name__}:pass_different_models"):
        assert message.startswith("the models of the ranks differ")


def make_small_network() -> nn.Module:
    torch.manual_seed(SEED)
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 5, 3)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(5, 3)).double()


def train_data_parallel(worker: Worker, way: str) -> dict[str, Tensor]:
    """Worker function: four ranks as two replicas of two spatial ranks; every replica has its own images."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.nn.parallel import DistributedDataParallel

    worker.connect()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "space"))
    replica, model = mesh["data"].get_local_rank(), make_small_network()
    if way == "mesh":
        parallel = parallelize(model, mesh["space"])
    else:
        groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
        parallel = parallelize(model, "1x2", process_group=groups[replica])
    wrapped = DistributedDataParallel(parallel, process_group=mesh["data"].get_group())
    images, labels = make_image(samples=4), torch.tensor([0, 1, 2, 1])
    part = slice(2 * replica, 2 * replica + 2)
    output = parallel.gather(wrapped(parallel.scatter(images[part])))
    F.cross_entropy(output, labels[part]).backward()
    return {name: weight.grad for name, weight in parallel.named_parameters() if weight.grad is not None}


@pytest.mark.parametrize("way", ["mesh", "group"])
def test_ddp_around_spatial_ranks_equals_the_unsplit_batch(four_workers: Workers, way: str) -> None:
    model, labels = make_small_network(), torch.tensor([0, 1, 2, 1])
    F.cross_entropy(model(make_image(samples=4)), labels).backward()
    expected = {name: weight.grad for name, weight in model.named_parameters()}
    for grads in four_workers.run(f"{__name__}:train_data_parallel", way):
        assert grads.keys() == expected.keys()
        for name, grad in grads.items():
            torch.testing.assert_close(grad, expected[name], rtol=1e-9, atol=1e-10)


def compute_volume(worker: Worker, mesh: str) -> Any:
    """Worker function: a small 3-D network on a mesh with up to three dims."""
    worker.connect()
    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Conv3d(1, 3, 3, padding=1), nn.ReLU(), nn.Conv3d(3, 2, 3, stride=2)).double()
    volume = torch.randn(1, 1, 9, 10, 11, dtype=torch.float64)
    parallel = parallelize(model, mesh)
    torch.testing.assert_close(parallel.gather(parallel(volume)), model(volume), rtol=1e-10, atol=1e-10)
    return tuple(parallel.scatter(volume).local.shape[2:])


@pytest.mark.parametrize(
    ("mesh", "parts"),
    [
        ("2x1x2", [(5, 10, 6), (5, 10, 5), (4, 10, 6), (4, 10, 5)]),
        ("4", [(9, 10, 3), (9, 10, 3), (9, 10, 3), (9, 10, 2)]),
    ],
)
def test_volumes_are_split_along_any_dims(four_workers: Workers, mesh: str, parts: Any) -> None:
    assert four_workers.run(f"{__name__}:compute_volume", mesh) == parts


def draw_in_replicas(worker: Worker) -> tuple[int, Tensor]:
    """Worker function: dropout in two replicas of two spatial ranks, seeded by replica."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.nn.parallel import DistributedDataParallel

    worker.connect()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "space"))
    replica = mesh["data"].get_local_rank()
    parallel = parallelize(nn.Sequential(nn.Conv2d(3, 4, 1), nn.Dropout(0.5)).double(), mesh["space"])
    model = DistributedDataParallel(parallel, process_group=mesh["data"].get_group())
    torch.manual_seed(100 * replica + mesh["space"].get_local_rank())  # the second rank takes the state of the first
    output = parallel.gather(model(make_image()))
    return replica, output.detach() == 0


def test_replicas_draw_different_random_numbers_and_ranks_of_an_image_the_same(four_workers: Workers) -> None:
    results = four_workers.run(f"{__name__}:draw_in_replicas")
    masks = dict(results)
    assert all(torch.equal(mask, masks[replica]) for replica, mask in results)
    assert not torch.equal(masks[0], masks[1])
    for replica, mask in masks.items():
        torch.manual_seed(100 * replica)
        assert torch.equal(mask, F.dropout(torch.ones(mask.shape, dtype=torch.float64), 0.5) == 0)


def make_deep_network() -> nn.Module:
    torch.manual_seed(SEED)
    block = [nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(inplace=True)]
    return nn.Sequential(*block, *block, nn.MaxPool2d(3, 2, 1), *block, nn.Conv2d(3, 2, 5, padding=2)).double()


def train_with_wide_halos(worker: Worker, depth: Any) -> list[Tensor]:
    """Worker function: two steps; return outputs, weight gradients and running statistics."""
    worker.connect()
    model = parallelize(make_deep_network(), "2x2" if worker.size == 4 else "1x2", halo_depth=depth)
    results = []
    for seed in range(2):
        output = model(make_image(seed))
        output.square().sum().backward()
        results.append(model.gather(output).detach())
    return [*results, *(weight.grad for weight in model.parameters() if weight.grad is not None), *model.buffers()]


@pytest.mark.parametrize("depth", [3, "auto"])
def test_wide_halos_on_real_ranks(four_workers: Workers, workers: Workers, depth: Any) -> None:
    model, expected = make_deep_network(), []
    for seed in range(2):
        output = model(make_image(seed))
        output.square().sum().backward()
        expected.append(output.detach())
    expected += [weight.grad for weight in model.parameters() if weight.grad is not None]
    expected += list(model.buffers())
    for started in (workers, four_workers):
        for results in started.run(f"{__name__}:train_with_wide_halos", depth):
            for actual, wanted in zip(results, expected, strict=True):
                torch.testing.assert_close(actual, wanted, rtol=1e-9, atol=1e-9)


def train_overlapped(worker: Worker, overlap: Any, over_gloo: bool) -> list[Tensor]:
    """Worker function: two accumulated steps; return the output and the gradients of the weights."""
    from tessera.transport.distributed import DistributedTransport

    worker.connect()
    transport = DistributedTransport() if over_gloo else None
    model = parallelize(make_stack(), f"1x{worker.size}", transport=transport, overlap=overlap)
    for seed in (3, 4):
        output = model(make_image(seed))
        output.square().sum().backward()
    return [model.gather(output).detach(), *(weight.grad for weight in model.parameters() if weight.grad is not None)]


def make_stack() -> nn.Module:
    torch.manual_seed(SEED)
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Tanh(), nn.Conv2d(4, 4, 5, stride=2, padding=2)]
    return nn.Sequential(*layers, nn.Tanh(), nn.Conv2d(4, 2, 3, padding=1)).double()


@pytest.mark.parametrize("over_gloo", [False, True])
@pytest.mark.parametrize("overlap", ["none", "split", "recompute"])
def test_overlap_and_buckets_on_real_ranks(workers: Workers, overlap: str, over_gloo: bool) -> None:
    model = make_stack()
    for seed in (3, 4):
        output = model(make_image(seed))
        output.square().sum().backward()
    expected = [output.detach(), *(weight.grad for weight in model.parameters())]
    for results in workers.run(f"{__name__}:train_overlapped", overlap, over_gloo):
        for actual, wanted in zip(results, expected, strict=True):
            torch.testing.assert_close(actual, wanted, rtol=1e-10, atol=1e-10)

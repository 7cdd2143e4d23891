"""Train a network on images that are cut over two ranks, beside the same training uncut: the losses are the same."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera.launch import LaunchConfig, Worker, Workers
from tessera.spatial import parallelize

STEPS = 5


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)]
    layers += [nn.Conv2d(16, 32, 5, stride=2, padding=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(32, 10))


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    drawn = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        yield torch.randn(4, 3, 50, 50, generator=drawn), torch.randint(10, (4,), generator=drawn)


def train_uncut() -> list[float]:
    model, losses = network(), []
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for image, label in batches():
        loss = F.cross_entropy(model(image), label)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def train_cut(worker: Worker) -> list[float]:
    worker.join()  # torch.distributed is initialised; under your own torchrun, call init_process_group("gloo")
    model, losses = parallelize(network(), "1x2", image_size=50), []
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for image, label in batches():
        output = model.gather(model(model.scatter(image)))  # the model computes on this rank's half of the image
        loss = F.cross_entropy(output, label)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    uncut = train_uncut()
    with Workers(LaunchConfig(spawn="torchrun", workers=2)) as workers:
        cut, _ = workers.run("spatial_training:train_cut")
    for step, (one, two) in enumerate(zip(uncut, cut, strict=True), start=1):
        print(f"step {step}: loss {one:.6f} uncut, {two:.6f} on two ranks")
    assert max(abs(one - two) for one, two in zip(uncut, cut, strict=True)) < 1e-4

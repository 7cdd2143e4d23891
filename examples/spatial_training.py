"""Train a network on images that are split over two ranks, and compare the losses with unsplit training."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera import parallelize
from tessera.launch import LaunchConfig, Worker, Workers

STEPS = 5


def build_network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1)]
    layers += [nn.Conv2d(16, 32, 5, stride=2, padding=2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*layers, nn.Linear(32, 10))


def iter_batches() -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        yield torch.randn(4, 3, 50, 50, generator=generator), torch.randint(10, (4,), generator=generator)


def train_unsplit() -> list[float]:
    model, losses = build_network(), []
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for image, label in iter_batches():
        loss = F.cross_entropy(model(image), label)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def train_split(worker: Worker) -> list[float]:
    worker.connect()  # torch.distributed is initialised; under your own torchrun, call init_process_group("gloo")
    model, losses = parallelize(build_network(), "1x2", image_size=50), []
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for image, label in iter_batches():
        output = model.gather(model(model.scatter(image)))  # the model computes on this rank's half of the image
        loss = F.cross_entropy(output, label)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    unsplit = train_unsplit()
    with Workers(LaunchConfig(spawn="torchrun", workers=2)) as workers:
        split, _ = workers.run("spatial_training:train_split")
    for step, (expected, loss) in enumerate(zip(unsplit, split, strict=True), start=1):
        print(f"step {step}: loss {expected:.6f} unsplit, {loss:.6f} on two ranks")
    assert max(abs(expected - loss) for expected, loss in zip(unsplit, split, strict=True)) < 1e-4

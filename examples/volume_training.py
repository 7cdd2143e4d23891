"""Train a 3-D U-Net on volumes with data and spatial parallelism, and compare the losses with unsplit training.

Four ranks are two replicas of two ranks. Each replica has its own half of the batch, and its two ranks have one half of
each volume.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from tessera import parallelize
from tessera.launch import LaunchConfig, Worker, Workers

STEPS, SAMPLES = 4, 4


class Block(nn.Sequential):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.Conv3d(inputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs), nn.LeakyReLU(0.1))


class VolumeUNet(nn.Module):
    def __init__(self, channels: int = 4) -> None:
        super().__init__()
        self.down, self.bottom, self.up = (
            Block(1, channels),
            Block(channels, 2 * channels),
            Block(3 * channels, channels),
        )
        self.out = nn.Conv3d(channels, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.down(x)
        coarse = self.bottom(F.max_pool3d(fine, 2))
        coarse = F.interpolate(coarse, scale_factor=2)
        return self.out(self.up(torch.cat([fine, coarse], 1)))


def build_network() -> nn.Module:
    torch.manual_seed(0)
    return VolumeUNet()


def iter_batches() -> Iterator[tuple[Tensor, Tensor]]:
    """Yield volumes, and the voxels that are brighter than average as labels."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        volumes = torch.randn(SAMPLES, 1, 12, 16, 20, generator=generator)
        yield volumes, (volumes[:, 0] > 0).long()


def train_unsplit() -> list[float]:
    model, losses = build_network(), []
    optimiser = torch.optim.SGD(model.parameters(), lr=0.2)
    for volumes, labels in iter_batches():
        optimiser.zero_grad()
        loss = F.cross_entropy(model(volumes), labels)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def train_split(worker: Worker) -> list[float]:
    worker.connect()  # torch.distributed is initialised; under your own torchrun, call init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "space"))
    spatial = parallelize(build_network(), mesh["space"])  # splits the last dim of the volumes over two ranks
    model = DistributedDataParallel(spatial, process_group=mesh["data"].get_group())
    optimiser, losses = torch.optim.SGD(model.parameters(), lr=0.2), []
    replica, half = mesh["data"].get_local_rank(), SAMPLES // 2
    for volumes, labels in iter_batches():
        own = slice(replica * half, (replica + 1) * half)
        optimiser.zero_grad()
        loss = F.cross_entropy(model(volumes[own]), labels[own])  # computed on split tensors
        loss.backward()  # sums gradients over the tiles, then averages them over the replicas
        optimiser.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    unsplit = train_unsplit()
    with Workers(LaunchConfig(spawn="torchrun", workers=4)) as workers:
        first, _, second, _ = workers.run("volume_training:train_split")
    split = [(one + other) / 2 for one, other in zip(first, second, strict=True)]  # each replica has half of the batch
    for step, (expected, loss) in enumerate(zip(unsplit, split, strict=True), start=1):
        print(f"step {step}: loss {expected:.6f} unsplit, {loss:.6f} on two replicas of two ranks")
    assert max(abs(expected - loss) for expected, loss in zip(unsplit, split, strict=True)) < 1e-4

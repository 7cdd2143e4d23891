"""An image that one process cannot decode in limited memory is decoded by two ranks with the same limit each."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tessera.launch import LaunchConfig, Worker, Workers
from tessera.spatial import parallelize
from tessera.transport.registry import open_transport

pytestmark = [pytest.mark.timeout(120), pytest.mark.ranks]
CHANNELS, LATENT_SIZE, LIMIT_BYTES = 24, 256, 300 << 20  # beyond the size at the start


def make_decoder() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(
        nn.Conv2d(4, CHANNELS, 3, padding=1),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(CHANNELS, 1, 3, padding=1),
    )


def read_bytes(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def decode(worker: Worker, limit: int) -> tuple[str, Tensor | None]:
    """Worker function: decode an image with limited address space; return the error, or the image."""
    torch.set_num_threads(1)
    decoder = make_decoder()
    network = parallelize(decoder, f"{worker.size}x1", transport=open_transport("auto", worker))
    latent = torch.randn(1, 4, LATENT_SIZE, LATENT_SIZE, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        network(latent[:, :, :32, :32])  # libraries, threads and shared memory exist before the limit is set
        part = network.scatter(latent)
        if limit:
            resource.setrlimit(resource.RLIMIT_AS, (read_bytes("VmSize:") + limit, resource.RLIM_INFINITY))
        try:
            output = network(part)
        except (RuntimeError, MemoryError) as error:
            return str(error), None
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        return "", network.gather(output)


def run_decoder(ranks: int, limit: int) -> tuple[str, Tensor | None]:
    with Workers(
        LaunchConfig(spawn="torchrun" if ranks > 1 else "processes", workers=ranks, time_limit=100)
    ) as workers:
        error, image = workers.run(f"{__name__}:decode", limit)[0]
        return error, image


def test_an_image_that_needs_more_memory_than_one_process_has_is_decoded_split() -> None:
    _, expected = run_decoder(1, 0)
    error, _ = run_decoder(1, LIMIT_BYTES)
    assert "allocate" in error or "memory" in error, error or "one process decoded the image with the limit"
    error, image = run_decoder(2, LIMIT_BYTES)
    assert not error
    assert image is not None
    assert expected is not None
    torch.testing.assert_close(image, expected)

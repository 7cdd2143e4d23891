"""Run a network with weights of four times the memory limit of this process, and check its output."""

import resource
import tempfile
import zlib
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera import PhasedModel
from tessera.phased import write_weights

WIDTH, BLOCKS, WEIGHTS_PER_MEMORY = 1024, 128, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.linear(x)) / BLOCKS


def get_weight(name: str) -> Tensor:
    """Return one weight by name: here random, seeded by the name; in your program, read from a file or a network."""
    shape = (WIDTH, WIDTH) if name.endswith("weight") else (WIDTH,)
    return torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode()))) / WIDTH**0.5


def limit_memory(nbytes: int) -> None:
    """Limit the address space of this process to its current size plus some bytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + nbytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    torch.set_num_threads(1)
    with torch.device("meta"):  # the network without its weights
        network = nn.Sequential(*(Block() for _ in range(BLOCKS))).eval()
    size = sum(weight.numel() * weight.element_size() for weight in network.parameters())
    x = torch.randn(32, WIDTH)

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "weights.safetensors"
        write_weights(file, network, get_weight)  # one tensor at a time
        limit_memory(size // WEIGHTS_PER_MEMORY)

        try:
            torch.empty(size, dtype=torch.uint8)
            print("all weights at once: they fit into memory")
        except RuntimeError:
            print(f"all weights at once: {size / 1e6:.0f} MB do not fit into {size / WEIGHTS_PER_MEMORY / 1e6:.0f} MB")

        with PhasedModel(network, path=file, budget="32MB", schedule="overlapped") as phased:
            output = phased(x)
            print(f"in {len(phased.phases)} phases: {phased.working_bytes / 1e6:.0f} MB of working memory")

    expected = x  # the same network in plain torch, one layer at a time
    for number in range(BLOCKS):
        layer = F.linear(expected, get_weight(f"{number}.linear.weight"), get_weight(f"{number}.linear.bias"))
        expected = expected + F.relu(layer) / BLOCKS
    assert torch.equal(output, expected)
    print(f"correct output, with weights of {WEIGHTS_PER_MEMORY} times the memory limit")

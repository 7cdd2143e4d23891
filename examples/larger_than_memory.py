"""Run a network whose weights are four times the memory that this process may take, and check what it gives."""

import resource
import tempfile
import zlib
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera.phased import PhasedModel, write_weights

WIDTH, BLOCKS, TIMES = 1024, 128, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + F.relu(self.linear(x)) / BLOCKS


def value(name: str) -> Tensor:
    """The values of one weight: here drawn by name, in your program read from wherever they are."""
    shape = (WIDTH, WIDTH) if name.endswith("weight") else (WIDTH,)
    return torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(name.encode()))) / WIDTH**0.5


def limit_memory(room: int) -> None:
    """Allow this process so many bytes more than it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + room
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    torch.set_num_threads(1)
    with torch.device("meta"):  # the network without its weights
        network = nn.Sequential(*(Block() for _ in range(BLOCKS))).eval()
    size = sum(weight.numel() * weight.element_size() for weight in network.parameters())
    x = torch.randn(32, WIDTH)

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "weights.safetensors"
        write_weights(file, network, value)  # one tensor at a time
        limit_memory(size // TIMES)

        try:
            torch.empty(size, dtype=torch.uint8)
            print("all weights at once: they fit")
        except RuntimeError:
            print(f"all weights at once: {size / 1e6:.0f} MB do not fit into {size / TIMES / 1e6:.0f} MB")

        with PhasedModel(network, path=file, budget="32MB", schedule="overlapped") as phased:
            output = phased(x)
            print(f"in {len(phased.phases)} phases: {phased.working_bytes / 1e6:.0f} MB of working memory")

    expected = x  # the same, one layer at a time by hand
    for number in range(BLOCKS):
        layer = F.linear(expected, value(f"{number}.linear.weight"), value(f"{number}.linear.bias"))
        expected = expected + F.relu(layer) / BLOCKS
    assert torch.equal(output, expected)
    print(f"right, with weights of {TIMES} times its memory")

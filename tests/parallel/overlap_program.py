"""Program of a rank: a network with each way of overlap, compared with the unsplit network."""

from __future__ import annotations

from copy import deepcopy

import torch
import torch.distributed as dist
from torch import nn

from tessera.spatial import parallelize
from tessera.spatial.tensor.split_tensor import Overlap
from tessera.transport.distributed import DistributedTransport

WAYS: tuple[Overlap, ...] = ("none", "split", "recompute")


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(2)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 5, padding=2)).double()
    image = torch.randn(2, 3, 21, 40, dtype=torch.float64)
    expected = deepcopy(model)
    output = expected(image)
    output.square().sum().backward()
    transport = DistributedTransport(dist.group.WORLD)  # these hosts are namespaces, which could share memory
    for overlap in WAYS:
        own = deepcopy(model)
        parallel = parallelize(own, "1x2", transport=transport, overlap=overlap)
        split = parallel(image)
        torch.testing.assert_close(parallel.gather(split), output, rtol=1e-10, atol=1e-10)
        split.square().sum().backward()
        for weight, whole in zip(own.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(weight.grad, whole.grad, rtol=1e-10, atol=1e-10)
        print(f"{overlap} exact", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

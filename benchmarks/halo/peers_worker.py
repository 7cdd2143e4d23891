"""Run one network split over the ranks of torchrun by Tessera, ShardTensor or DistConv; rank 0 prints a line of JSON.

The argument is a task in JSON: `peer`, `network`, `steps`. The output is compared with that of the unsplit network.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

Split = tuple[Any, Callable[[], Any], Callable[[Any], Tensor]]  # network, makes this rank's input, joins the output


def make_network(name: str) -> tuple[nn.Module, Tensor]:
    from tessera.models import build

    if name in ("resnet50", "unet"):
        return build(name).eval(), torch.randn(1, 3, 224, 224)
    image = torch.randn(1, 16, 256, 256)
    layers: dict[str, nn.Module] = {
        "convolution 3x3": nn.Conv2d(16, 16, 3, padding=1),
        "eight convolutions 3x3": nn.Sequential(
            *(layer for _ in range(8) for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()))
        ),
        "convolution 7x7, stride 2": nn.Conv2d(16, 16, 7, 2, 3),
        "convolution 3x3, dilation 2": nn.Conv2d(16, 16, 3, padding=2, dilation=2),
        "convolution 3x3, reflected border": nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect"),
        "transposed convolution 4x4": nn.ConvTranspose2d(16, 16, 4, 2, 1),
        "max pooling 3x3, stride 2": nn.MaxPool2d(3, 2, 1),
        "batch norm, training": nn.BatchNorm2d(16),
        "group norm": nn.GroupNorm(4, 16),
        "bilinear upsampling": nn.Upsample(scale_factor=2, mode="bilinear"),
    }
    return layers[name], image


NETWORKS = """
    convolution 3x3
    eight convolutions 3x3
    convolution 7x7, stride 2
    convolution 3x3, dilation 2
    convolution 3x3, reflected border
    transposed convolution 4x4
    max pooling 3x3, stride 2
    batch norm, training
    group norm
    bilinear upsampling
    resnet50
    unet
"""


def split_with_tessera(network: nn.Module, image: Tensor) -> Split:
    from tessera.spatial import parallelize

    parallel = parallelize(network, f"{dist.get_world_size()}x1")
    return parallel, lambda: parallel.scatter(image), parallel.gather


def split_with_shardtensor(network: nn.Module, image: Tensor) -> Split:
    """Split with PhysicsNeMo, prepared for the CPU.

    It registers its operators only where CUDA is available, its halo exchange selects a CUDA device, and its manager
    gives a CPU device to `init_process_group`, which takes accelerators only; the manager knows its ranks before that.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):  # the import of torchvision needs its compiled operators
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import physicsnemo.domain_parallel as domain
    from physicsnemo.distributed import DistributedManager
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_module

    with suppress(ValueError):
        DistributedManager.initialize()
    domain.register_custom_ops()
    torch.cuda.set_device = lambda device: None
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("domain",))
    tile = domain.scatter_tensor(
        image, 0, mesh, (Shard(2),), global_shape=image.shape, dtype=image.dtype, requires_grad=False
    )
    return distribute_module(network, mesh), lambda: tile, lambda output: output.full_tensor()


def split_with_distconv(network: nn.Module, image: Tensor) -> Split:
    from distconv import DCTensor, ParallelStrategy

    strategy = ParallelStrategy(num_shards=(dist.get_world_size(),), shard_dim=(2,), device_type="cpu")
    return network, lambda: DCTensor.distribute(image, strategy), lambda output: output.to_replicate()


SPLITS = {"tessera": split_with_tessera, "ShardTensor": split_with_shardtensor, "DistConv": split_with_distconv}


def run_task(task: dict[str, Any]) -> dict[str, Any]:
    torch.manual_seed(0)
    network, image = make_network(task["network"])
    with torch.no_grad():
        expected = network(image)
        split, make_input, join = SPLITS[task["peer"]](network, image)
        tile = make_input()
        output = join(split(tile))
        if output.shape != expected.shape:
            return {"wrong": f"shape {tuple(output.shape)} for {tuple(expected.shape)}"}
        error = ((output - expected).abs().max() / expected.abs().max()).item()
        seconds = []
        for _ in range(task["steps"]):
            dist.barrier()
            began = time.perf_counter()
            split(tile)
            seconds.append(time.perf_counter() - began)
    slowest = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    return {"error": error, "seconds": slowest.tolist()}


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        result = run_task(json.loads(sys.argv[1]))
    except Exception as error:
        result = {
            "refused": f"{type(error).__name__}: {str(error).strip().splitlines()[0][:160] if str(error) else ''}"
        }
    if dist.get_rank() == 0:
        print("result " + json.dumps(result), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Run one network, whole or split over the ranks of torchrun; rank 0 prints one line of JSON.

Runs in the environment that `zoo_run` prepares. The argument is a task in JSON: `work` ("time", "memory", "limit" or
"overhead") with `network`, `size` of the image, `train` and `steps`; for "time" a list `cases` of these; for "limit"
the bytes and the file of the output.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from tessera.models import build
from tessera.spatial import parallelize
from tessera.spatial.tensor.boundary import join_parts

IMAGE_MESHES, VOLUME_MESHES = {2: "2x1", 4: "2x2"}, {2: "2x1x1", 4: "2x2x1"}
WARM_UP_SIZE = 64
RANKS = int(os.environ.get("WORLD_SIZE", "1"))
Step = Callable[[], Any]


class Decoder(nn.Module):
    """The decoder of a VAE as a network."""

    def __init__(self, vae: nn.Module) -> None:
        super().__init__()
        self.vae = vae

    def forward(self, latent: Tensor) -> Any:
        return self.vae.decode(latent).sample


@cache
def define_torchvision_operators() -> torch.library.Library:
    """Define torchvision's compiled operators: its import needs them, and the CUDA build's cannot be loaded."""
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def make_network(name: str, size: int) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return a network with random weights and its arguments; the first is the image or its latent."""
    define_torchvision_operators()
    torch.manual_seed(0)
    if name == "ResNet-50":
        return build("resnet50"), (torch.randn(1, 3, size, size),)
    if name == "AutoencoderKL decoder":
        from diffusers import AutoencoderKL

        blocks: dict[str, Any] = {
            "down_block_types": ("DownEncoderBlock2D",) * 4,
            "up_block_types": ("UpDecoderBlock2D",) * 4,
            "block_out_channels": (128, 256, 512, 512),
        }
        vae = AutoencoderKL(layers_per_block=2, latent_channels=4, **blocks)
        del vae.encoder
        return Decoder(vae), (torch.randn(1, 4, size // 8, size // 8),)
    if name == "UNet2DModel":
        from diffusers import UNet2DModel

        plain, attention = ["DownBlock2D"] * 4, ["AttnDownBlock2D", "DownBlock2D"]
        network = UNet2DModel(
            sample_size=size,
            layers_per_block=2,
            block_out_channels=(128, 128, 256, 256, 512, 512),
            down_block_types=(*plain, *attention),
            up_block_types=("UpBlock2D", "AttnUpBlock2D", *["UpBlock2D"] * 4),
        )
        return network, (torch.randn(1, 3, size, size), torch.tensor(10))
    if name == "MONAI 3-D UNet":
        from monai.networks.nets import UNet

        return UNet(3, 1, 2, (16, 32, 64, 128, 256), (2, 2, 2, 2), num_res_units=2), (torch.randn(1, 1, *[size] * 3),)
    from ultralytics.nn.tasks import DetectionModel

    return DetectionModel(f"{name}.yaml", verbose=False), (torch.randn(1, 3, size, size),)


def make_step(task: dict[str, Any], network: nn.Module, args: tuple[Any, ...]) -> Step:
    """Return a callable that runs the network, whole or this rank's part, and returns its outputs."""
    run: Any = network.train(task["train"])
    image, *rest = args
    if RANKS > 1:
        run = parallelize(network, (VOLUME_MESHES if image.dim() == 5 else IMAGE_MESHES)[RANKS])
        image = run.scatter(image)

    def infer() -> Any:
        with torch.inference_mode():
            return run(image, *rest)

    def train() -> Any:
        run.zero_grad()
        output = run(image, *rest)
        output.square().mean().backward()
        return output

    return train if task["train"] else infer


def wait_for_ranks() -> None:
    if RANKS > 1:
        dist.barrier()


def take_max(values: list[float]) -> list[float]:
    """Return the largest values over the ranks."""
    tensor = torch.tensor(values, dtype=torch.float64)
    if RANKS > 1:
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor.tolist()  # type: ignore[no-any-return]


def time_steps(task: dict[str, Any]) -> dict[str, Any]:
    """Return for each case the seconds of its steps after a warm-up: those of the slowest rank.

    The warm-up is two steps; for a case of a single step, a step of a small image, which loads all libraries.
    """
    return {"seconds": [time_case(case) for case in task["cases"]]}


def time_case(case: dict[str, Any]) -> list[float]:
    warmup = 2
    if case["steps"] == 1:
        make_step(case, *make_network(case["network"], WARM_UP_SIZE))()
        warmup = 0
    step = make_step(case, *make_network(case["network"], case["size"]))
    seconds = []
    for _ in range(case["steps"] + warmup):
        wait_for_ranks()
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return take_max(seconds)[warmup:]


def read_peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def measure_memory(task: dict[str, Any]) -> dict[str, Any]:
    """Return the largest peak memory of a rank during a step, without the interpreter, torch and the packages."""
    network, args = make_network(task["network"], task["size"])
    weights = sum(tensor.nbytes for tensor in (*network.parameters(), *network.buffers()))
    Path("/proc/self/clear_refs").write_text("5")  # the peak becomes the memory of now
    before = read_peak_bytes()
    make_step(task, network, args)()
    return {"peak_bytes": int(take_max([read_peak_bytes() - before + weights])[0]), "weight_bytes": weights}


def run_in_limited_memory(task: dict[str, Any]) -> dict[str, Any]:
    """Run once with limited address space. Without a limit, write the output; with one, compare with that output."""
    network, args = make_network(task["network"], task["size"])
    file = Path(task["file"])
    wait_for_ranks()
    if task["limit_bytes"]:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + task["limit_bytes"]
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    began = time.perf_counter()
    try:
        whole = join_parts(make_step(task, network, args)())
    except (RuntimeError, MemoryError) as error:
        return {"failed": str(error).splitlines()[0][:120]}
    seconds = time.perf_counter() - began
    if not task["limit_bytes"]:
        torch.save(whole, file)
        return {"seconds": [seconds]}
    expected = torch.load(file)
    return {"seconds": [seconds], "error": ((whole - expected).abs().max() / expected.abs().max()).item()}


def measure_overhead(task: dict[str, Any]) -> dict[str, Any]:
    """Return the median microseconds of each leaf module; one rank gets the part of the image that two ranks have."""
    network, (image,) = make_network(task["network"], task["size"])
    part = image if RANKS > 1 else image[:, :, : image.shape[2] // 2]
    times: dict[str, list[float]] = defaultdict(list)
    kinds: dict[str, str] = {}
    for name, module in network.named_modules():
        if not list(module.children()):
            kernel = getattr(module, "kernel_size", None)
            kinds[name] = type(module).__name__ + (f" {kernel[0]}x{kernel[1]}" if isinstance(kernel, tuple) else "")
            _time_module(name, module, times)
    step = make_step(task, network, (part,))
    seconds = []
    for _ in range(task["steps"] + 3):
        wait_for_ranks()
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    medians = take_max([statistics.median(values) * 1e6 for values in times.values()])
    by_kind: dict[str, list[float]] = defaultdict(list)
    for name, value in zip(times, medians, strict=True):
        by_kind[kinds[name]].append(value)
    return {
        "modules": {kind: statistics.mean(values) for kind, values in by_kind.items()},
        "counts": {kind: len(values) for kind, values in by_kind.items()},
        "seconds": take_max(seconds)[3:],
    }


def _time_module(name: str, module: nn.Module, times: dict[str, list[float]]) -> None:
    began = 0.0

    def enter(*_: Any) -> None:
        nonlocal began
        began = time.perf_counter()

    def leave(*_: Any) -> None:
        times[name].append(time.perf_counter() - began)

    module.register_forward_pre_hook(enter)
    module.register_forward_hook(leave)


WORK = {"time": time_steps, "memory": measure_memory, "limit": run_in_limited_memory, "overhead": measure_overhead}


def main() -> None:
    warnings.filterwarnings("ignore")
    task = json.loads(sys.argv[1])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if RANKS > 1:
        dist.init_process_group("gloo")
    result = WORK[task["work"]](task)
    if int(os.environ.get("RANK", "0")) == 0:
        print("result " + json.dumps(result), flush=True)
    if RANKS > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

"""Tests of FSDP2 and distributed checkpoints with parallel networks on real ranks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera.launch import LaunchConfig, Worker, Workers
from tessera.spatial import parallelize

pytestmark = [pytest.mark.timeout(300), pytest.mark.ranks]
LABELS = torch.tensor([0, 1, 2, 1])
STEPS = 3
Tensors = dict[str, Tensor]


class Network(nn.Module):
    """A small network; the gradient of `scale`, which is used outside of a layer, is a split tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU())
        self.second = nn.Conv2d(4, 5, 3, stride=2)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 5).view(5, 1, 1))
        self.last = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.second(self.first(x)) * self.scale
        return self.last(F.adaptive_avg_pool2d(x, 1).flatten(1))


def make_network() -> nn.Module:
    torch.manual_seed(5)
    return Network().double()


def make_images() -> Tensor:
    return torch.randn(4, 3, 13, 18, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def make_optimiser(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def train_unsplit(accumulated: bool = False) -> tuple[Tensors, Tensors]:
    """Train on all images; return the last gradients and the weights."""
    model, grads = make_network(), {}
    optimiser = make_optimiser(model)
    for _ in range(STEPS):
        optimiser.zero_grad()
        for _ in range(1 + accumulated):
            F.cross_entropy(model(make_images()), LABELS).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        grads = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
        optimiser.step()
    return grads, {name: weight.detach() for name, weight in model.named_parameters()}


def shard(model: nn.Module, mesh: Any, **options: Any) -> None:
    from torch.distributed.fsdp import fully_shard

    for part in (model.first, model.last, model):
        fully_shard(part, mesh=mesh, **options)


def build_sharded(way: str, mesh: Any, **options: Any) -> tuple[Any, nn.Module]:
    """Return the parallel network, and the module that is called."""
    from torch.distributed.fsdp import fully_shard

    model = make_network()
    if way in ("before", "all ranks", "hybrid"):
        shard(model, {"before": mesh["data"], "all ranks": None, "hybrid": mesh}[way], **options)
    parallel = parallelize(model, mesh["space"], strict=True)  # FSDP gets plain gradients only
    if way == "after":
        shard(model, mesh["data"], **options)
    if way == "around":
        return parallel, fully_shard(parallel, mesh=mesh["data"], **options)
    return parallel, parallel


def train_sharded(worker: Worker, way: str, accumulated: bool = False) -> tuple[Tensors, Tensors]:
    """Worker function: four ranks as two replicas of two spatial ranks, with weights sharded over some of them."""
    from torch.distributed.device_mesh import init_device_mesh

    worker.connect()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "space"))
    parallel, called = build_sharded(way, mesh)
    optimiser = make_optimiser(called)
    replica, grads = mesh["data"].get_local_rank(), {}
    part = slice(2 * replica, 2 * replica + 2)
    for _ in range(STEPS):
        optimiser.zero_grad()
        for number in range(1 + accumulated):
            if accumulated:
                parallel.model.set_requires_gradient_sync(number == 1)
            F.cross_entropy(parallel.gather(called(make_images()[part])), LABELS[part]).backward()
        nn.utils.clip_grad_norm_(called.parameters(), 0.5)
        grads = {name: weight.grad.full_tensor().clone() for name, weight in called.named_parameters()}
        optimiser.step()
    return grads, {name: weight.detach().full_tensor() for name, weight in called.named_parameters()}


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(LaunchConfig(spawn="torchrun", workers=4, time_limit=120)) as started:
        yield started


@pytest.mark.parametrize(
    ("way", "accumulated"),
    [("before", False), ("after", True), ("around", False), ("all ranks", False), ("hybrid", False)],
)
def test_fully_shard_equals_unsplit_training(workers: Workers, way: str, accumulated: bool) -> None:
    """Check weights sharded over the replicas, over all ranks, and over spatial ranks with copies in each replica."""
    expected = train_unsplit(accumulated)
    for results in workers.run(f"{__name__}:train_sharded", way, accumulated):
        for tensors, exact in zip(results, expected, strict=True):
            assert tensors.keys() == exact.keys()
            for name, tensor in tensors.items():
                torch.testing.assert_close(tensor, exact[name], rtol=1e-9, atol=1e-10, msg=f"{way}: {name}")


def train_in_mixed_precision(worker: Worker) -> tuple[float, str, str]:
    """Worker function: compute in bfloat16 with weights in float32."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy

    worker.connect()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "space"))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    parallel, _ = build_sharded("after", mesh, mp_policy=policy)
    parallel.float()
    output = parallel(make_images().float())
    F.cross_entropy(parallel.gather(output).float(), LABELS).backward()
    exact = make_network()
    F.cross_entropy(exact(make_images()), LABELS).backward()
    errors = [
        (weight.grad.full_tensor() - exact.get_parameter(name).grad).abs().max().item()
        for name, weight in parallel.named_parameters()
    ]
    return max(errors), str(output.dtype), str(parallel.get_parameter("scale").grad.dtype)


def test_mixed_precision_of_fully_shard(workers: Workers) -> None:
    for error, output, grad in workers.run(f"{__name__}:train_in_mixed_precision"):
        assert error < 0.05
        assert (output, grad) == ("torch.bfloat16", "torch.float32")


def save_and_load(worker: Worker, folder: str, way: str) -> tuple[Tensors, list[str]]:
    """Worker function: train, save, load into a new network and optimiser, train on; return the weights."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    from torch.distributed.device_mesh import init_device_mesh

    worker.connect()
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "space"))
    images = make_images()

    def build() -> tuple[Any, torch.optim.Optimizer]:
        if way == "sharded":
            parallel, _ = build_sharded("after", mesh)
        else:
            parallel = parallelize(make_network(), "2x2")
        return parallel, make_optimiser(parallel)

    def train(parallel: Any, optimiser: torch.optim.Optimizer) -> None:
        optimiser.zero_grad()
        F.cross_entropy(parallel.gather(parallel(images)), LABELS).backward()
        optimiser.step()

    def read(parallel: Any, optimiser: torch.optim.Optimizer) -> dict[str, Any]:
        if way == "plain":
            return {"model": parallel.state_dict(), "optimiser": optimiser.state_dict()}
        weights, states = get_state_dict(parallel, optimiser)
        return {"model": weights, "optimiser": states}

    first = build()
    train(*first)
    saved = read(*first)
    dcp.save(saved, checkpoint_id=folder)
    second = build()
    train(*second)  # other weights, and optimiser states to load into
    train(*second)
    loaded = read(*second)
    dcp.load(loaded, checkpoint_id=folder)
    if way == "plain":
        second[0].load_state_dict(loaded["model"])
        second[1].load_state_dict(loaded["optimiser"])
    else:
        set_state_dict(*second, model_state_dict=loaded["model"], optim_state_dict=loaded["optimiser"])
    train(*second)
    weights = {name: getattr(w, "full_tensor", lambda w=w: w)() for name, w in second[0].state_dict().items()}
    return {name: weight.detach() for name, weight in weights.items()}, list(saved["model"])


@pytest.mark.parametrize("way", ["plain", "functions", "sharded"])
def test_distributed_checkpoints(workers: Workers, tmp_path: Path, way: str) -> None:
    model = make_network()
    optimiser = make_optimiser(model)
    for _ in range(2):
        optimiser.zero_grad()
        F.cross_entropy(model(make_images()), LABELS).backward()
        optimiser.step()
    expected = model.state_dict()
    for weights, names in workers.run(f"{__name__}:save_and_load", str(tmp_path / "saved"), way):
        assert names == list(expected)
        for name, weight in weights.items():
            torch.testing.assert_close(weight, expected[name], rtol=1e-9, atol=1e-10, msg=name)

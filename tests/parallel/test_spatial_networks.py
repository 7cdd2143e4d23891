"""ResNets on real ranks give what they give uncut: output, gradient of the image and of every weight, statistics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tessera.launch import LaunchConfig, Worker, Workers
from tessera.models import build
from tessera.spatial import parallelize
from tessera.transport.choose import open_transport

pytestmark = [pytest.mark.timeout(300), pytest.mark.ranks]
DTYPES = {"float32": torch.float32, "float64": torch.float64}
LIMITS = {"float32": 1e-4, "float64": 1e-10}
MESHES = {2: "1x2", 4: "2x2"}
SAMPLES = 2
OTHERS = [("torchrun", 4), ("mpiexec", 2)]
Tensors = dict[str, Tensor]


def image_of(size: int, dtype: torch.dtype) -> Tensor:
    drawn = torch.randn(SAMPLES, 3, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(size))
    return drawn.to(dtype).requires_grad_()


def tensors_of(model: nn.Module, image: Tensor, output: Tensor) -> Tensors:
    """Everything that has to agree, after a backward pass along a fixed direction."""
    direction = torch.randn(output.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    (output * direction.to(output.dtype)).sum().backward()
    assert image.grad is not None
    found = {"output": output.detach(), "gradient of the image": image.grad}
    found |= {
        f"gradient of {name}": weight.grad for name, weight in model.named_parameters() if weight.grad is not None
    }
    return found | {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}


def errors(found: Tensors, truth: Tensors) -> dict[str, float]:
    """How far each tensor is off, relative to its largest entry."""
    assert found.keys() == truth.keys()
    off = {name: (found[name].double() - truth[name]).abs().max() for name in truth}
    return {name: float(off[name] / truth[name].abs().max()) for name in truth}


def cut(worker: Worker, name: str, size: int, dtype: str, truth: str, options: dict[str, Any]) -> dict[str, float]:
    """Worker function: the network on ranks, and how far it is from the truth."""
    transport, (weights, expected) = open_transport("auto", worker), torch.load(truth)
    model, image = build(name).to(DTYPES[dtype]).train(), image_of(size, DTYPES[dtype])
    model.load_state_dict(weights)
    parallel = parallelize(model, MESHES[worker.size], image_size=size, transport=transport, **options)
    output = parallel.gather(parallel(parallel.scatter(image)))
    found = errors(tensors_of(model, image, output), expected)
    transport.close()
    return found


def uncut(model: nn.Module, size: int, dtype: torch.dtype) -> Tensors:
    model, image = deepcopy(model).to(dtype), image_of(size, dtype)
    return tensors_of(model, image, model(image))


def keep_clear_of_kinks(model: nn.Module, image: Tensor) -> None:
    """Shift the biases until no ReLU of this image has an input near zero, channel by channel.

    There, two gradients are right, and rounding decides between them: nothing to hold a float32 network to.
    """
    last: list[nn.Module] = []

    def remember(norm: nn.Module, inputs: Any, output: Any) -> None:
        last[:] = [norm]

    def shift(relu: nn.Module, inputs: tuple[Tensor]) -> Tensor:
        values = inputs[0].transpose(0, 1).flatten(1).sort(1).values
        gaps, middles = values.diff(), (values[:, 1:] + values[:, :-1]) / 2
        widest = gaps.where(middles.abs() < 0.3, -1.0).argmax(1, keepdim=True)
        by = -middles.gather(1, widest).squeeze(1)
        by = by.where(by.abs() < 0.3, 0.0)
        last[0].bias += by
        return inputs[0] + by.view(1, -1, 1, 1)

    trial = deepcopy(model)
    for module in trial.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.register_forward_hook(remember)
        elif isinstance(module, nn.ReLU):
            module.register_forward_pre_hook(shift)
    with torch.no_grad():
        trial(image)
    model.load_state_dict(dict(trial.named_parameters()), strict=False)


@pytest.fixture(scope="module")
def truths(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], tuple[Path, dict[str, float]]]:
    """Weights and what the uncut network makes of them in float64, on file, and how far its own float32 is off."""
    folder, known = tmp_path_factory.mktemp("truth"), {}

    def find(name: str, size: int) -> tuple[Path, dict[str, float]]:
        if (name, size) not in known:
            model = build(name, seed=3).double().train()
            keep_clear_of_kinks(model, image_of(size, torch.float64))
            truth, path = uncut(model, size, torch.float64), folder / f"{name}-{size}"
            torch.save((model.state_dict(), truth), path)
            known[name, size] = path, errors(uncut(model, size, torch.float32), truth)
        return known[name, size]

    return find


@pytest.fixture(
    scope="module",
    params=[("torchrun", 2), ("mpiexec", 4), *(pytest.param(p, marks=pytest.mark.slow) for p in OTHERS)],
    ids=lambda param: "-".join(map(str, param)),
)
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    spawn, count = request.param
    with Workers(LaunchConfig(spawn=spawn, workers=count, time_limit=200)) as found:
        yield found


def check(workers: Workers, truths: Any, name: str, size: int, dtype: str, **options: Any) -> None:
    """Within the limit on every rank; where torch's own float32 is not, at most twice as far off as that."""
    path, own = truths(name, size)
    for rank, found in enumerate(workers.run(f"{__name__}:cut", name, size, dtype, str(path), options)):
        for what, off in found.items():
            limit = max(LIMITS[dtype], 2 * own[what] if dtype == "float32" else 0.0)
            assert off <= limit, f"rank {rank}: {what} is off by {off:.2g}, uncut float32 by {own[what]:.2g}"


@pytest.mark.parametrize("dtype", DTYPES)
def test_resnet18(workers: Workers, truths: Any, dtype: str) -> None:
    check(workers, truths, "resnet18", 96, dtype)  # 3 pixels a side are left at the end, of which ranks have 2 or 1


def test_resnet18_gathered_and_channels_last(workers: Workers, truths: Any) -> None:
    check(workers, truths, "resnet18", 96, "float64", gather_at="layer4", channels_last=True, overlap="split")


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gather_at", [None, "layer4"])
def test_resnet50(workers: Workers, truths: Any, dtype: str, gather_at: str | None) -> None:
    check(workers, truths, "resnet50", 160, dtype, gather_at=gather_at)

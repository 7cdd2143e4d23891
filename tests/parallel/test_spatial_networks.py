"""Tests of ResNets on real ranks: output, gradients and running statistics equal the unsplit network's."""

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
from tessera.transport.registry import open_transport

pytestmark = [pytest.mark.timeout(300), pytest.mark.ranks]
DTYPES = {"float32": torch.float32, "float64": torch.float64}
LIMITS = {"float32": 1e-4, "float64": 1e-10}
MESHES = {2: "1x2", 4: "2x2"}
SAMPLES = 2
OTHERS = [("torchrun", 4), ("mpiexec", 2)]
Tensors = dict[str, Tensor]


def make_image(size: int, dtype: torch.dtype) -> Tensor:
    drawn = torch.randn(SAMPLES, 3, size, size, dtype=torch.float64, generator=torch.Generator().manual_seed(size))
    return drawn.to(dtype).requires_grad_()


def collect_tensors(model: nn.Module, image: Tensor, output: Tensor) -> Tensors:
    """Run backward with a fixed output gradient; return all tensors that must equal the unsplit network's."""
    direction = torch.randn(output.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    (output * direction.to(output.dtype)).sum().backward()
    assert image.grad is not None
    tensors = {"output": output.detach(), "gradient of the image": image.grad}
    tensors |= {
        f"gradient of {name}": weight.grad for name, weight in model.named_parameters() if weight.grad is not None
    }
    return tensors | {name: buffer for name, buffer in model.named_buffers() if buffer.is_floating_point()}


def compute_errors(tensors: Tensors, truth: Tensors) -> dict[str, float]:
    """Return the largest error of each tensor, relative to the largest value of the reference."""
    assert tensors.keys() == truth.keys()
    off = {name: (tensors[name].double() - truth[name]).abs().max() for name in truth}
    return {name: float(off[name] / truth[name].abs().max()) for name in truth}


def run_split(
    worker: Worker, name: str, size: int, dtype: str, truth: str, options: dict[str, Any]
) -> dict[str, float]:
    """Worker function: run the split network, and return the error of each tensor."""
    transport, (weights, expected) = open_transport("auto", worker), torch.load(truth)
    model, image = build(name).to(DTYPES[dtype]).train(), make_image(size, DTYPES[dtype])
    model.load_state_dict(weights)
    parallel = parallelize(model, MESHES[worker.size], image_size=size, transport=transport, **options)
    output = parallel.gather(parallel(parallel.scatter(image)))
    errors = compute_errors(collect_tensors(model, image, output), expected)
    transport.close()
    return errors


def run_unsplit(model: nn.Module, size: int, dtype: torch.dtype) -> Tensors:
    model, image = deepcopy(model).to(dtype), make_image(size, dtype)
    return collect_tensors(model, image, model(image))


def move_away_from_kinks(model: nn.Module, image: Tensor) -> None:
    """Shift the biases, channel by channel, until no ReLU has an input near zero for this image.

    ReLU is not differentiable at zero: rounding would decide between two gradients, so float32 gradients could not be
    compared.
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
def references(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, int], tuple[Path, dict[str, float]]]:
    """Return a function that computes the unsplit network's references for a model name and image size.

    It returns the path of a file with weights and float64 results, and the errors of the float32 results.
    """
    folder, known = tmp_path_factory.mktemp("truth"), {}

    def find(name: str, size: int) -> tuple[Path, dict[str, float]]:
        if (name, size) not in known:
            model = build(name, seed=3).double().train()
            move_away_from_kinks(model, make_image(size, torch.float64))
            truth, path = run_unsplit(model, size, torch.float64), folder / f"{name}-{size}"
            torch.save((model.state_dict(), truth), path)
            known[name, size] = path, compute_errors(run_unsplit(model, size, torch.float32), truth)
        return known[name, size]

    return find


@pytest.fixture(
    scope="module",
    params=[("torchrun", 2), ("mpiexec", 4), *(pytest.param(p, marks=pytest.mark.slow) for p in OTHERS)],
    ids=lambda param: "-".join(map(str, param)),
)
def workers(request: pytest.FixtureRequest) -> Iterator[Workers]:
    spawn, count = request.param
    with Workers(LaunchConfig(spawn=spawn, workers=count, time_limit=200)) as workers:
        yield workers


def check(workers: Workers, references: Any, name: str, size: int, dtype: str, **options: Any) -> None:
    """Check the errors of every rank. The limit is fixed or, if larger, twice the unsplit float32 network's error."""
    path, baseline = references(name, size)
    for rank, errors in enumerate(workers.run(f"{__name__}:run_split", name, size, dtype, str(path), options)):
        for tensor, error in errors.items():
            limit = max(LIMITS[dtype], 2 * baseline[tensor] if dtype == "float32" else 0.0)
            assert error <= limit, (
                f"rank {rank}: {tensor} has error {error:.2g}, unsplit float32 has {baseline[tensor]:.2g}"
            )


@pytest.mark.parametrize("dtype", DTYPES)
def test_split_resnet18_equals_unsplit(workers: Workers, references: Any, dtype: str) -> None:
    check(workers, references, "resnet18", 96, dtype)  # the last layers have 3x3 pixels: 2 or 1 per rank and dim


def test_split_resnet18_with_gathering_and_channels_last_equals_unsplit(workers: Workers, references: Any) -> None:
    check(workers, references, "resnet18", 96, "float64", gather_at="layer4", channels_last=True)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gather_at", [None, "layer4"])
def test_split_resnet50_equals_unsplit(workers: Workers, references: Any, dtype: str, gather_at: str | None) -> None:
    check(workers, references, "resnet50", 160, dtype, gather_at=gather_at)

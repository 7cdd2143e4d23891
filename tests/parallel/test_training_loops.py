"""Tests of ordinary training loops on two real ranks: every loop gives the same results as with the unsplit network."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_, clip_grad_value_, parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

from tessera.launch import LaunchConfig, Worker, Workers
from tessera.spatial import ParallelModel, parallelize

pytestmark = [pytest.mark.timeout(300), pytest.mark.ranks]
STEPS = 3
Wrap = Callable[[nn.Module], nn.Module]  # returns the network as it is, or split over the ranks
Results = dict[str, Any]
LOOPS: dict[str, Callable[[Wrap], Results]] = {}


def loop(function: Callable[[Wrap], Results]) -> Callable[[Wrap], Results]:
    LOOPS[function.__name__] = function
    return function


class Network(nn.Module):
    def __init__(self, norm: Callable[[int], nn.Module] = nn.BatchNorm2d) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, bias=False), norm(4), nn.ReLU())
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.SiLU(), nn.Dropout(0.3))
        self.head = nn.Conv2d(4, 2, 3, stride=2)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, 4).view(4, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x) * self.scale
        return self.head(self.body(x) + x)


def make_network(**options: Any) -> Any:
    torch.manual_seed(5)
    return Network(**options).double()


def make_images() -> list[Tensor]:
    generator = torch.Generator().manual_seed(3)
    return [torch.randn(2, 3, 9, 14, dtype=torch.float64, generator=generator) for _ in range(STEPS)]


def collect(model: nn.Module) -> Results:
    """Return copies of all weights, gradients and buffers."""
    results = {name: value.detach().clone() for name, value in model.state_dict().items()}
    grads = {f"{name}.grad": weight.grad for name, weight in model.named_parameters()}
    return results | {name: None if grad is None else grad.clone() for name, grad in grads.items()}


def train(model: nn.Module, optimiser: torch.optim.Optimizer, *, change: Any = None, between: Any = None) -> Results:
    """Train; call `change(step)` before every step, and `between()` after every backward pass."""
    torch.manual_seed(7)
    losses = []
    for step, image in enumerate(make_images()):
        if change is not None:
            change(step)
        optimiser.zero_grad()
        loss = model(image).square().mean()
        if loss.requires_grad:
            loss.backward()
        if between is not None:
            between()
        optimiser.step()
        losses.append(loss.item())
    return collect(model) | {"losses": losses}


@loop
def clip_norms(wrap: Wrap) -> Results:
    model = wrap(make_network())
    norms: list[float] = []
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    results = train(model, optimiser, between=lambda: norms.append(float(clip_grad_norm_(model.parameters(), 0.1))))
    return results | {"norms": norms}


@loop
def clip_values(wrap: Wrap) -> Results:
    model = wrap(make_network())
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    return train(model, optimiser, between=lambda: clip_grad_value_(model.parameters(), 0.01))


@loop
def accumulate_gradients(wrap: Wrap) -> Results:
    model = wrap(make_network())
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    torch.manual_seed(1)
    for _ in range(2):
        optimiser.zero_grad()
        for image in make_images():
            (model(image).square().mean() / STEPS).backward()
        optimiser.step()
    return collect(model)


@loop
def use_a_foreach_optimiser_and_a_schedule(wrap: Wrap) -> Results:
    model = wrap(make_network())
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01, foreach=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.1, total_steps=10)
    return train(model, optimiser, change=lambda step: step and schedule.step()) | {"rate": schedule.get_last_lr()}


@loop
def use_a_fused_optimiser(wrap: Wrap) -> Results:
    model = wrap(make_network())
    return train(model, torch.optim.AdamW(model.parameters(), lr=0.01, fused=True))


@loop
def scale_gradients(wrap: Wrap) -> Results:
    model = wrap(make_network())
    optimiser, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=8.0)
    torch.manual_seed(1)
    for step, image in enumerate(make_images()):
        optimiser.zero_grad()
        loss = model(image).square().mean() * (float("inf") if step == 1 else 1)  # the second step is skipped
        scaler.scale(loss).backward()
        scaler.unscale_(optimiser)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimiser)
        scaler.update()
    return collect(model) | {"scale of the loss": scaler.get_scale()}


@loop
def average_weights(wrap: Wrap) -> Results:
    model = wrap(make_network())
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.8), use_buffers=True
    )
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    results = train(model, optimiser, between=lambda: average.update_parameters(model))
    output = average.eval()(make_images()[0])
    return results | {f"average {name}": value for name, value in average.state_dict().items()} | {"output": output}


@loop
def call_with_other_weights(wrap: Wrap) -> Results:
    model = wrap(make_network())
    weights = {name: (weight.detach() * 2).requires_grad_() for name, weight in model.named_parameters()}
    torch.manual_seed(1)
    output = torch.func.functional_call(model, weights, (make_images()[0],))
    grads = torch.autograd.grad(output.square().sum(), list(weights.values()))
    own = model(make_images()[0]).square().sum()
    return {"output": output, "own": own} | dict(zip(weights, grads, strict=True))


@loop
def parametrize_weights(wrap: Wrap) -> Results:
    model = make_network()
    parametrizations.weight_norm(model.stem[0])
    parametrizations.spectral_norm(model.body[0])
    parametrizations.orthogonal(model.head)
    wrapped = wrap(model)
    return train(wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1))


@loop
def switch_modes(wrap: Wrap) -> Results:
    model = wrap(make_network())
    return train(model, torch.optim.SGD(model.parameters(), lr=0.1), change=lambda step: model.train(step != 1))


@loop
def freeze_and_thaw_a_backbone(wrap: Wrap) -> Results:
    inner = make_network()
    inner.stem.requires_grad_(False)
    model = wrap(inner)

    def change(step: int) -> None:
        inner.stem.requires_grad_(step == 2)
        inner.scale.requires_grad_(step != 1)

    return train(model, torch.optim.SGD(model.parameters(), lr=0.1), change=change)


@loop
def freeze_everything(wrap: Wrap) -> Results:
    model = wrap(make_network())
    model.requires_grad_(False)
    return train(model, torch.optim.SGD(model.parameters(), lr=0.1))


class LowRank(nn.Module):
    """A layer with an added product of two small matrices, as in LoRA."""

    def __init__(self, layer: nn.Conv2d) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Conv2d(layer.in_channels, 1, 3, padding=1, bias=False).double()
        self.up = nn.Conv2d(1, layer.out_channels, 1, bias=False).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + self.up(self.down(x))


class LowRankWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = (nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in ((1, 36), (2, 1)))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + (self.up @ self.down).view_as(weight)


@loop
def add_modules_after_the_first_forward(wrap: Wrap) -> Results:
    model = wrap(make_network())
    model(make_images()[0])
    torch.manual_seed(2)
    inner = model.model if isinstance(model, ParallelModel) else model
    inner.requires_grad_(False)
    inner.body[0] = LowRank(inner.body[0])
    parametrize.register_parametrization(inner.head, "weight", LowRankWeight())
    model.scale = nn.Parameter(torch.full((9, 14), 1.5, dtype=torch.float64))
    optimiser = torch.optim.SGD([weight for weight in model.parameters() if weight.requires_grad], lr=0.1)
    return train(model, optimiser)


@loop
def convert_dtypes(wrap: Wrap) -> Results:
    model = wrap(make_network())
    image, outputs = make_images()[0], {}
    model.eval()
    for number, dtype in enumerate((torch.float64, torch.bfloat16, torch.float32, torch.float64)):
        model.to(dtype)
        output = model(image.to(dtype))
        output.square().mean().backward()
        outputs[f"{number} {dtype}"] = output.detach().double().mul(100 if dtype == torch.float64 else 1).round()
        model.zero_grad()
    return outputs


class Recomputed(nn.Module):
    """A network with dropout, computed again in backward."""

    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.network, self.use_reentrant = make_network(norm=lambda channels: nn.GroupNorm(2, channels)), use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        x = self.network.stem(x) * self.network.scale
        for _ in range(2):
            x = x + checkpoint(self.network.body, x, use_reentrant=self.use_reentrant)
        return self.network.head(F.dropout(x, 0.2, self.training))


@loop
def recompute_dropout(wrap: Wrap) -> Results:
    results: Results = {}
    for use_reentrant in (True, False):
        model = wrap(Recomputed(use_reentrant))
        found = train(model, torch.optim.SGD(model.parameters(), lr=0.1))
        results |= {f"{use_reentrant} {name}": value for name, value in found.items()}
    return results


@loop
def recompute_the_whole_network(wrap: Wrap) -> Results:
    model = wrap(make_network(norm=lambda channels: nn.GroupNorm(2, channels)))
    image = make_images()[0].requires_grad_()
    torch.manual_seed(1)
    checkpoint(model, image, use_reentrant=False).square().sum().backward()
    return collect(model) | {"gradient of the image": image.grad}


@loop
def save_and_load_the_whole_network(wrap: Wrap) -> Results:
    model = wrap(make_network())
    train(model, torch.optim.SGD(model.parameters(), lr=0.1))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    return train(loaded, torch.optim.SGD(loaded.parameters(), lr=0.1)) | {"names": list(loaded.state_dict())}


@loop
def compile_parts_of_the_network(wrap: Wrap) -> Results:
    model = make_network()
    if wrap is not keep_whole:  # the unsplit network is not compiled: that takes long
        model.body.compile(backend="aot_eager")
        model.stem[1] = torch.compile(model.stem[1], backend="aot_eager", fullgraph=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wrapped = wrap(model)
        results = train(wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1))
    if wrap is not keep_whole:
        assert sum("torch.compile has no effect on stem.1" in str(warning.message) for warning in caught) == 1
        from torch._dynamo.utils import counters

        assert not counters["frames"]
    return {name.replace("_orig_mod.", ""): value for name, value in results.items()}


@loop
def compile_a_step_around_the_network(wrap: Wrap) -> Results:
    model = wrap(make_network())

    def compute_loss(image: Tensor) -> Tensor:
        return (model(image * 2 + 1).square() * 3).mean() + image.mean()

    step = torch.compile(compute_loss, backend="aot_eager") if wrap is not keep_whole else compute_loss
    compiled = torch.compile(model, backend="aot_eager") if wrap is not keep_whole else model
    torch.manual_seed(1)
    losses = []
    for image in make_images():
        loss = step(image) + compiled(image).abs().sum()
        loss.backward()
        losses.append(loss.item())
    return collect(model) | {"losses": losses}


def keep_whole(model: nn.Module) -> nn.Module:
    return model


def compare_loops(worker: Worker, name: str) -> list[str]:
    """Worker function: run a loop with the unsplit and the split network; return the names of different results."""
    worker.connect()
    expected = LOOPS[name](keep_whole)
    actual = LOOPS[name](lambda model: parallelize(model, f"1x{worker.size}"))
    assert actual.keys() == expected.keys(), (actual.keys(), expected.keys())
    return [key for key, value in expected.items() if not is_close(actual[key], value)]


def is_close(actual: Any, expected: Any) -> bool:
    if isinstance(expected, Tensor) and isinstance(actual, Tensor):
        return bool(actual.dtype == expected.dtype and torch.allclose(actual, expected, rtol=1e-9, atol=1e-11))
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(map(is_close, actual, expected))
    return bool(actual == pytest.approx(expected, rel=1e-9) if isinstance(expected, float) else actual == expected)


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    with Workers(LaunchConfig(spawn="torchrun", workers=2, time_limit=120)) as started:
        yield started


@pytest.mark.parametrize("name", LOOPS)
def test_a_training_loop_equals_the_unsplit_network(workers: Workers, name: str) -> None:
    assert workers.run(f"{__name__}:compare_loops", name) == [[], []]

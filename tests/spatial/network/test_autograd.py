"""Tests of autograd on parallel networks: no_grad, checkpoints, double backward, accumulation, autocast."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tessera.spatial import ParallelModel
from tests.spatial.comparison import check_agreement, check_close, check_same_training, run_on_ranks

torch.set_num_threads(1)


def make_image(samples: int = 2, size: int = 9) -> Tensor:
    return torch.randn(samples, 3, size, size + 2, dtype=torch.float64)


def make_network() -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Tanh(), nn.Conv2d(4, 2, 3, 2)).double()


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant: bool) -> None:
        super().__init__()
        self.body, self.reentrant = make_network(), use_reentrant
        self.head = nn.Conv2d(2, 2, 1).double()

    def forward(self, x: Tensor) -> Tensor:
        return self.head(checkpoint(self.body, x, use_reentrant=self.reentrant, preserve_rng_state=False))


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpoint_inside_the_network(use_reentrant: bool) -> None:
    torch.manual_seed(0)
    check_agreement(Checkpointed(use_reentrant), "2x2", make_image())


def test_checkpoints_of_a_sequence() -> None:
    class Sequence(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = make_network()

        def forward(self, x: Tensor) -> Tensor:
            return checkpoint_sequential(self.body, 2, x, use_reentrant=False, preserve_rng_state=False)

    torch.manual_seed(1)
    check_agreement(Sequence(), "2x2", make_image())


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_a_checkpoint_around_the_network(use_reentrant: bool) -> None:
    torch.manual_seed(2)
    model, image = make_network(), make_image()
    unsplit, leaf = deepcopy(model), image.clone().requires_grad_()
    unsplit(leaf).square().sum().backward()

    def run(parallel: ParallelModel) -> Any:
        own = image.clone().requires_grad_()
        output = checkpoint(parallel, own, use_reentrant=use_reentrant, preserve_rng_state=False)
        output.square().sum().backward()
        return own.grad, parallel.model

    for grad, split in run_on_ranks(model, "2x2", None, run):
        check_close(grad, leaf.grad, "gradient of the image")
        check_same_training(split, unsplit)


def test_no_grad_and_detach_inside_forward() -> None:
    class Target(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.online, self.target = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                aim = F.normalize(self.target(x), dim=1)
                assert not aim.requires_grad
            y = self.online(x)
            with torch.enable_grad():
                return (y - aim).square() + y.detach() * y

    torch.manual_seed(3)
    check_agreement(Target().double(), "2x2", make_image())


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_without_gradients_around_the_network(mode: Any) -> None:
    torch.manual_seed(4)
    model, image = make_network(), make_image()
    expected = model(image)

    def run(parallel: ParallelModel) -> Any:
        with mode():
            first = parallel.gather(parallel(image)).clone()
        assert not first.requires_grad
        second = parallel(image)  # training after inference
        second.sum().backward()
        return first, parallel.gather(second).detach()

    for outputs in run_on_ranks(model, "2x2", None, run):
        for output in outputs:
            check_close(output, expected, "output")


def test_a_gradient_penalty() -> None:
    """Check double backward: the loss contains the norm of the gradient of the image."""
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(4, 2, 3), nn.Softplus()
    ).double()
    image = make_image()

    def compute_loss(network: nn.Module, leaf: Tensor) -> Tensor:
        output = network(leaf)
        (grad,) = torch.autograd.grad(output.sum(), leaf, create_graph=True)
        return (grad.flatten(1).norm(dim=1) - 1).square().mean() + output.mean()

    unsplit, leaf = deepcopy(model), image.clone().requires_grad_()
    loss = compute_loss(unsplit, leaf)
    loss.backward()

    def run(parallel: ParallelModel) -> Any:
        own = image.clone().requires_grad_()
        value = compute_loss(parallel, own)
        value.backward()
        return value.item(), own.grad, parallel.model

    for value, grad, split in run_on_ranks(model, "2x2", None, run):
        assert value == pytest.approx(loss.item(), rel=1e-10)
        check_close(grad, leaf.grad, "gradient of the image")
        check_same_training(split, unsplit)


@pytest.mark.parametrize(
    "layer",
    [
        nn.BatchNorm2d(4),
        nn.GroupNorm(2, 4),
        nn.InstanceNorm2d(4, affine=True),
        nn.MaxPool2d(3, 2, 1),
        nn.ConvTranspose2d(4, 3, 3, 2),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(4, 4, 3, padding=1, padding_mode="reflect"),
        nn.Softmax(dim=-1),
        nn.AdaptiveAvgPool2d(2),
        nn.PixelShuffle(2),
        nn.Sequential(nn.Flatten(2), nn.LayerNorm(99)),
    ],
    ids=str,
)
def test_double_backward_of_a_layer(layer: nn.Module) -> None:
    torch.manual_seed(6)
    model, image = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), deepcopy(layer)).double(), make_image()

    def differentiate(network: nn.Module) -> Tensor | None:
        leaf = image.clone().requires_grad_()
        output = network(leaf)
        weights = [weight for weight in network.parameters() if weight.requires_grad]
        grads = torch.autograd.grad(output.square().sum(), [leaf, *weights], create_graph=True)
        sum(grad.square().sum() for grad in grads).backward()
        return leaf.grad

    unsplit = deepcopy(model)
    expected = differentiate(unsplit)
    for grad, split in run_on_ranks(model, "2x2", None, lambda parallel: (differentiate(parallel), parallel.model)):
        check_close(grad, expected, "gradient of the image", 1e-9)
        check_same_training(split, unsplit, 1e-9)


def test_accumulated_gradients_and_clipping() -> None:
    torch.manual_seed(7)
    model, batches = make_network(), [make_image() for _ in range(4)]

    def train(network: nn.Module) -> list[float]:
        optimiser, norms = torch.optim.AdamW(network.parameters(), lr=0.01), []
        for step in range(2):
            optimiser.zero_grad(set_to_none=step == 0)
            for image in batches[2 * step : 2 * step + 2]:
                (network(image).square().mean() / 2).backward()
            norms.append(nn.utils.clip_grad_norm_(network.parameters(), 0.1).item())
            optimiser.step()
        return norms

    unsplit = deepcopy(model)
    expected = train(unsplit)
    for norms, split in run_on_ranks(model, "2x2", None, lambda parallel: (train(parallel), parallel.model)):
        assert norms == pytest.approx(expected, rel=1e-9)
        check_same_training(split, unsplit, 1e-9)
        assert all(type(weight.grad) is Tensor for weight in split.parameters())


def test_two_backwards_of_one_forward() -> None:
    torch.manual_seed(8)
    model, image = make_network(), make_image()
    unsplit = deepcopy(model)
    output = unsplit(image)
    output.sum().backward(retain_graph=True)
    output.square().sum().backward()

    def run(parallel: ParallelModel) -> nn.Module:
        output = parallel(image)
        output.sum().backward(retain_graph=True)
        output.square().sum().backward()
        return parallel.model

    for split in run_on_ranks(model, "2x2", None, run):
        check_same_training(split, unsplit)


def test_backward_from_a_plain_gradient() -> None:
    torch.manual_seed(9)
    model, image = make_network(), make_image()
    unsplit = deepcopy(model)
    output = unsplit(image)
    direction = torch.randn_like(output)
    output.backward(direction)

    def run(parallel: ParallelModel) -> nn.Module:
        parallel.gather(parallel(image)).backward(direction)
        return parallel.model

    for split in run_on_ranks(model, "2x2", None, run):
        check_same_training(split, unsplit)


def test_a_custom_function() -> None:
    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return x.clamp(-1, 1)

        @staticmethod
        def backward(ctx: Any, grad: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return grad * (x.abs() < 2)

    class Clipped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            return Clip.apply(self.conv(x) * 3)

    torch.manual_seed(10)
    check_agreement(Clipped().double(), "2x2", make_image())


@pytest.mark.parametrize("inside", [False, True])
def test_autocast_to_bfloat16(inside: bool) -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.Conv2d(8, 4, 3))
            self.head = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cpu", torch.bfloat16, enabled=inside or torch.is_autocast_enabled("cpu")):
                x = self.body(x)
                assert x.dtype == torch.bfloat16
                return self.head(x.mean((2, 3)))

    torch.manual_seed(11)
    model, image = Cast(), make_image(2, 16).float()

    def train(network: nn.Module) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=not inside):
            output = network(image)
        output.float().square().sum().backward()
        return output

    unsplit = deepcopy(model)
    expected = train(unsplit)
    unit = torch.finfo(torch.bfloat16).eps

    def run(parallel: ParallelModel) -> Any:
        return parallel.gather(train(parallel)).detach(), parallel.model

    for output, split in run_on_ranks(model, "2x2", None, run):
        assert output.dtype == expected.dtype == torch.bfloat16
        check_close(output, expected, "output", 4 * unit)
        for name, weight in split.named_parameters():
            exact = unsplit.get_parameter(name).grad
            assert exact is not None
            assert weight.grad.dtype == torch.float32
            error = float((weight.grad - exact).norm() / exact.norm())
            assert error < 8 * unit, f"{name}: relative error {error:.2g}"


def test_gradients_of_some_weights_only() -> None:
    torch.manual_seed(12)
    model, image = make_network(), make_image()
    names = ["0.bias", "3.weight"]
    expected = torch.autograd.grad(model(image).square().sum(), [model.get_parameter(name) for name in names])

    def run(parallel: ParallelModel) -> Any:
        weights = [parallel.get_parameter(name) for name in names]
        return [parallel.gather(grad) for grad in torch.autograd.grad(parallel(image).square().sum(), weights)]

    for grads in run_on_ranks(model, "2x2", None, run):
        for name, grad, exact in zip(names, grads, expected, strict=True):
            check_close(grad, exact, name)

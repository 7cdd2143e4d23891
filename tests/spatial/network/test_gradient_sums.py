"""Tests of sums of weight gradients: few messages, and the gradients of the unsplit network in every way to train."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tessera.spatial import ParallelModel
from tessera.spatial.tensor import gradient_buckets
from tests.spatial.comparison import check_close, check_same_training, run_on_ranks

torch.set_num_threads(1)


class Mixed(nn.Module):
    """Convolutions (one is used twice), norms, linear layers on pixels, a scale, and a layer that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.norm, self.channels = nn.BatchNorm2d(4), nn.LayerNorm(4)
        self.linear, self.transposed = nn.Linear(4, 6), nn.ConvTranspose2d(6, 2, 2, stride=2)
        self.scale, self.unused = nn.Parameter(torch.rand(6, 1, 1)), nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.body(self.body(self.stem(x)).tanh()))
        x = self.linear(self.channels(x.permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        return self.transposed((x * self.scale).tanh())


def make_images(count: int) -> list[Tensor]:
    return [torch.randn(2, 3, 8, 12, dtype=torch.float64) for _ in range(count)]


def count_messages(parallel: ParallelModel) -> list[int]:
    """Return a list to which every sum of weight gradients adds its number of values."""
    group, counts = parallel.group, list[int]()
    add = group.add_weights

    def count(values: Tensor) -> None:
        counts.append(values.numel())
        add(values)

    group.add_weights = count
    group.transport.all_reduce = count  # type: ignore[method-assign]
    return counts


def step_once(network: Any, images: list[Tensor]) -> None:
    network(images[0]).square().mean().backward()


def accumulate(network: Any, images: list[Tensor]) -> None:
    for image in images:
        network(image).square().mean().backward()


def run_forwards_before_backward(network: Any, images: list[Tensor]) -> None:
    sum(network(image).square().mean() for image in images).backward()  # type: ignore[union-attr]


def run_backwards_after_forwards(network: Any, images: list[Tensor]) -> None:
    for loss in [network(image).square().mean() for image in images]:
        loss.backward()


def penalise_gradients(network: Any, images: list[Tensor]) -> None:
    weights = [network.stem.weight, network.linear.weight]
    grads = torch.autograd.grad(network(images[0]).square().mean(), weights, create_graph=True)
    (network(images[1]).square().mean() + sum(grad.square().sum() for grad in grads)).backward()


def keep_zeroed_gradients(network: Any, images: list[Tensor]) -> None:
    accumulate(network, images[:1])
    network.zero_grad(set_to_none=False)
    accumulate(network, images[1:])


def use_channels_last(network: Any, images: list[Tensor]) -> None:
    (network.model if isinstance(network, ParallelModel) else network).to(memory_format=torch.channels_last)
    accumulate(network, images)


def choose_inputs(network: Any, images: list[Tensor]) -> None:
    network(images[0]).square().mean().backward(inputs=[network.stem.weight, network.scale])
    network(images[1]).square().mean().backward(inputs=[network.scale, network.linear.bias])


WAYS: list[Callable[[Any, list[Tensor]], None]] = [
    step_once,
    accumulate,
    run_forwards_before_backward,
    run_backwards_after_forwards,
    penalise_gradients,
    keep_zeroed_gradients,
    use_channels_last,
    choose_inputs,
]


@pytest.mark.parametrize("mesh", ["1x2", "2x2"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_gradients_equal_the_unsplit_network(way: Any, mesh: str) -> None:
    torch.manual_seed(3)
    model, images = Mixed().double(), make_images(3)
    unsplit = deepcopy(model)
    way(unsplit, images)

    def run(parallel: ParallelModel) -> nn.Module:
        way(parallel, images)
        return parallel.model

    for split in run_on_ranks(model, mesh, None, run):
        check_same_training(split, unsplit, 1e-9)
        assert all(type(weight.grad) in (Tensor, type(None)) for weight in split.parameters())


def test_one_message_sums_the_gradients_of_all_weights() -> None:
    """The only other sums of a pass are those of statistics; the sums of one bucket are one message."""
    model, images = nn.Sequential(*(nn.Conv2d(3, 3, 3, padding=1) for _ in range(5))).double(), make_images(2)

    def run(parallel: ParallelModel) -> list[int]:
        counts = count_messages(parallel)
        for loss in [parallel(image).square().sum() for image in images]:
            counts.clear()
            loss.backward()
        return counts

    for counts in run_on_ranks(model, "1x2", None, run):
        assert counts == [5 * (3 * 3 * 9 + 3)]


@pytest.mark.parametrize("accumulated", [False, True])
def test_linear_layers_shared_layers_and_scales_wait_for_the_bucket(accumulated: bool) -> None:
    torch.manual_seed(4)
    model, images = Mixed().double().eval(), make_images(2)

    def run(parallel: ParallelModel) -> tuple[list[int], int]:
        counts = count_messages(parallel)
        if accumulated:
            parallel(images[0]).square().sum().backward()
        loss = sum(parallel(image).square().sum() for image in images)
        counts.clear()
        loss.backward()  # type: ignore[union-attr]
        return counts, sum(weight.numel() for weight in parallel.parameters() if weight.grad is not None)

    for counts, values in run_on_ranks(model, "1x2", None, run):
        assert counts == [values]


def test_large_gradients_are_sent_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_buckets, "BUCKET_BYTES", 200 * 8)
    layers = [nn.Conv2d(3, 3, 3, padding=1, bias=False) for _ in range(6)]
    model, (image,) = nn.Sequential(*layers).double(), make_images(1)

    def run(parallel: ParallelModel) -> list[int]:
        counts = count_messages(parallel)
        loss = parallel(image).square().sum()
        counts.clear()
        loss.backward()
        return counts

    for counts in run_on_ranks(model, "1x2", None, run):
        assert counts == [3 * 81, 3 * 81]


def test_hooks_and_results_of_autograd_are_complete_gradients() -> None:
    torch.manual_seed(5)
    model, (image,) = Mixed().double(), make_images(1)

    def collect(network: Any) -> list[Tensor]:
        seen: list[Tensor] = list(torch.autograd.grad(network(image).square().sum(), [network.stem.weight]))
        network.stem.bias.register_hook(lambda grad: seen.append(grad.clone()) or 2 * grad)
        network.scale.register_post_accumulate_grad_hook(lambda weight: seen.append(weight.grad.clone()))
        network(image).square().sum().backward()
        seen.append(network.stem.bias.grad)
        return seen

    unsplit = deepcopy(model)
    expected = collect(unsplit)
    for seen, split in run_on_ranks(model, "2x2", None, lambda parallel: (collect(parallel), parallel.model)):
        assert all(type(value) is Tensor for value in seen)
        for value, other in zip(seen, expected, strict=True):
            check_close(value, other, "gradient")
        check_same_training(split, unsplit)


def test_a_gradient_that_is_read_during_the_pass_is_complete() -> None:
    """A hook of an activation reads the gradient of a later layer."""
    model, (image,) = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Conv2d(4, 2, 3)).double(), make_images(1)

    def collect(network: Any) -> list[Tensor]:
        seen: list[Tensor] = []

        def watch(module: nn.Module, args: Any, output: Tensor) -> None:
            output.register_hook(lambda grad: seen.append(network.get_parameter("2.weight").grad + 0))

        network.get_submodule("1").register_forward_hook(watch)
        network(image).square().sum().backward()
        return seen

    expected = collect(deepcopy(model))

    def run(parallel: ParallelModel) -> list[Tensor]:
        return [parallel.gather(grad) for grad in collect(parallel)]

    for seen in run_on_ranks(model, "1x2", None, run):
        assert len(seen) == len(expected) == 1
        check_close(seen[0], expected[0], "gradient")


def test_a_pass_after_a_pass_that_failed() -> None:
    torch.manual_seed(6)
    model, images = Mixed().double(), make_images(2)

    def run(network: Any) -> None:
        accumulate(network, images[:1])
        output = network(images[1])
        handle = network.norm.register_full_backward_pre_hook(lambda module, grad: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            network(images[1]).square().mean().backward()
        handle.remove()
        output.square().mean().backward()

    unsplit = deepcopy(model)
    run(unsplit)
    for split in run_on_ranks(model, "1x2", None, lambda parallel: (run(parallel), parallel.model)[1]):
        check_same_training(split, unsplit)
        assert all(type(weight.grad) in (Tensor, type(None)) for weight in split.parameters())

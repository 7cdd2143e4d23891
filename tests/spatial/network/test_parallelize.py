"""Tests of parallel networks: gathering, training, state dicts, training modes."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera.errors import TesseraError
from tessera.spatial import ParallelModel, parallelize
from tessera.transport.in_process import run_ranks
from tests.spatial.comparison import check_agreement, check_close, check_same_training, run_on_ranks

torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)) + self.shortcut(x))


class Small(nn.Module):
    """A small classifier with named modules that `gather_at` can refer to."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 5, 2, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.first, self.second = nn.Sequential(Block(4, 4), Block(4, 6, 2)), nn.Sequential(Block(6, 6), Block(6, 8))
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(self.second(self.first(self.stem(x)))).flatten(1))


def make_small_network() -> nn.Module:
    return Small().double().train()


def make_images(samples: int = 2, size: int = 23) -> Tensor:
    return torch.randn(samples, 3, size, size + 4, dtype=torch.float64)


@pytest.mark.parametrize("samples", [1, 3, 5])
@pytest.mark.parametrize("gather_at", ["stem", "stem.2", "first.1", "second", "pool", "head"])
def test_gathering_at_a_module(gather_at: str, samples: int) -> None:
    check_agreement(make_small_network(), "2x2", make_images(samples, 31), gather_at=gather_at)


def test_a_gathered_module_that_writes_its_input_is_refused() -> None:
    class Reused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.block = nn.Conv2d(3, 4, 3, padding=1), nn.Sequential(nn.ReLU(inplace=True))

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x)
            return self.block(x) + x

    check_agreement(Reused().double(), "1x2", make_images())
    with pytest.raises(TesseraError, match=r"gather_at writes its input in place: got 'block'"):
        check_agreement(Reused().double(), "1x2", make_images(), gather_at="block")


def test_closing_releases_buffers_and_the_network_runs_again() -> None:
    image = make_images()

    def run(parallel: ParallelModel) -> tuple[Tensor, Tensor, int]:
        transport = parallel.group.transport
        before = parallel.gather(parallel(image))
        freed: list[Tensor] = []
        transport.free = freed.append  # type: ignore[method-assign]
        parallel.close()
        return before, parallel.gather(parallel(image)), len(freed)

    for before, after, freed in run_on_ranks(make_small_network().eval(), "1x2", image.shape[2:], run):
        assert torch.equal(before, after)
        assert freed > 0


def test_a_skip_connection_into_the_gathered_part() -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
            self.last = nn.Conv2d(8, 2, 3)

        def forward(self, x: Tensor) -> Tensor:
            early = self.before(x)
            return self.last(torch.cat([self.after(early * 2), early], 1))

    check_agreement(Skip().double(), "1x3", make_images(2), gather_at="after")


def test_training_equals_the_unsplit_network() -> None:
    torch.manual_seed(7)
    model, steps = make_small_network(), [(make_images(4), torch.randint(5, (4,))) for _ in range(4)]

    def train(network: nn.Module, output_of: Any) -> list[float]:
        optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
        losses = []
        for image, label in steps:
            optimiser.zero_grad()
            loss = F.cross_entropy(output_of(image), label)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        return losses

    unsplit = deepcopy(model)
    expected = train(unsplit, unsplit)

    def run(parallel: ParallelModel) -> tuple[list[float], nn.Module]:
        return train(parallel, lambda image: parallel.gather(parallel(parallel.scatter(image)))), parallel.model

    for losses, split in run_on_ranks(model, "2x2", (23, 27), run, gather_at="second"):
        assert losses == pytest.approx(expected, rel=1e-10)
        check_same_training(split, unsplit, 1e-9)


def test_gradients_of_several_batches_add_up() -> None:
    model, batches = make_small_network(), [make_images() for _ in range(3)]
    unsplit = deepcopy(model)
    for image in batches:
        unsplit(image).square().sum().backward()

    def run(parallel: ParallelModel) -> nn.Module:
        for image in batches:
            parallel.gather(parallel(parallel.scatter(image))).square().sum().backward()
        return parallel.model

    for split in run_on_ranks(model, "1x2", (23, 27), run):
        check_same_training(split, unsplit)


def test_a_loss_computed_from_the_split_output() -> None:
    model = nn.Sequential(Block(3, 4), nn.Conv2d(4, 2, 3)).double()
    unsplit, image = deepcopy(model), make_images()
    unsplit(image).square().sum().backward()

    def run(parallel: ParallelModel) -> nn.Module:
        parallel(parallel.scatter(image)).square().sum().backward()
        return parallel.model

    for split in run_on_ranks(model, "2x2", (23, 27), run):
        check_same_training(split, unsplit)


def test_frozen_weights_and_inference() -> None:
    model, image = make_small_network(), make_images()
    for weight in model.get_submodule("first").parameters():
        weight.requires_grad_(False)
    check_agreement(model, "1x2", image)
    model.requires_grad_(False)
    check_agreement(model, "1x2", image)

    def run(parallel: ParallelModel) -> Tensor:
        parallel.eval()
        with torch.no_grad():
            output = parallel.gather(parallel(parallel.scatter(image)))
        assert not output.requires_grad
        return output

    expected = deepcopy(model).eval()(image)
    for output in run_on_ranks(model, "2x1", (23, 27), run):
        check_close(output, expected, "output")


def test_an_unused_weight_has_no_gradient() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.used, self.idle = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1), nn.Conv2d(4, 2, 1)

        def forward(self, x: Tensor) -> dict[str, Any]:
            x = self.body(x)
            return {"used": self.used(x), "others": [self.idle(x), x.mean((2, 3))]}

    model, image = Heads().double(), make_images()
    unsplit = deepcopy(model)
    expected = unsplit(image)
    expected["used"].sum().backward()

    def run(parallel: ParallelModel) -> tuple[Any, nn.Module]:
        outputs = parallel.gather(parallel(parallel.scatter(image)))
        outputs["used"].sum().backward()
        return outputs, parallel.model

    for outputs, split in run_on_ranks(model, "1x2", (23, 27), run):
        check_close(outputs["used"], expected["used"], "used")
        for part, whole in zip(outputs["others"], expected["others"], strict=True):
            check_close(part, whole, "others")
        assert split.get_parameter("idle.weight").grad is None
        check_same_training(split, unsplit)


def test_a_module_called_twice_and_a_tied_module() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.again, self.other = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(3))
            self.other.weight = self.first.weight
            self.register_buffer("scale", torch.randn(3, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            return self.other(self.again(F.relu(self.again(self.first(x))))) * self.scale.abs()

    check_agreement(Twice().double(), "2x2", make_images())


def test_a_network_that_differs_in_training_and_evaluation() -> None:
    class Modal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            return x * 2 if self.training else x

    model, image = Modal().double().train(), make_images()

    def run(parallel: ParallelModel) -> tuple[Tensor, Tensor]:
        trained = parallel.gather(parallel(parallel.scatter(image)))
        parallel.eval()
        return trained, parallel.gather(parallel(parallel.scatter(image)))

    expected = deepcopy(model).eval()(image)
    for trained, evaluated in run_on_ranks(model, "1x2", (23, 27), run):
        check_close(trained, 2 * expected, "output in training")
        check_close(evaluated, expected, "output in evaluation")


def test_state_dicts_equal_the_unsplit_network() -> None:
    model, reference = make_small_network(), make_small_network()
    weights = {name: tensor.clone() for name, tensor in reference.state_dict().items()}

    def run(parallel: ParallelModel) -> dict[str, Tensor]:
        assert list(parallel.state_dict()) == list(weights)
        assert [name for name, _ in parallel.named_parameters()] == [name for name, _ in reference.named_parameters()]
        assert [name for name, _ in parallel.named_buffers()] == [name for name, _ in reference.named_buffers()]
        parallel.load_state_dict(weights)
        parallel(parallel.scatter(image))
        return parallel.state_dict()

    image = make_images()
    reference(image)
    for saved in run_on_ranks(model, "2x1", (23, 27), run):
        fresh = make_small_network()
        fresh.load_state_dict(saved)
        check_same_training(fresh, reference)


def test_all_ranks_get_the_weights_of_rank_0() -> None:
    model = make_small_network()

    def rank(transport: Any) -> nn.Module:
        own = deepcopy(model) if transport.rank == 0 else make_small_network()
        return parallelize(own, "1x2", image_size=23, transport=transport).model

    for split in run_ranks(2, rank):
        check_same_training(split, model)


def test_an_image_scattered_from_one_rank() -> None:
    model, image = make_small_network(), make_images()
    unsplit, leaf = deepcopy(model), image.clone().requires_grad_()
    unsplit(leaf).square().sum().backward()

    def run(parallel: ParallelModel) -> tuple[Tensor | None, nn.Module]:
        has = parallel.group.rank == 1
        own = image.clone().requires_grad_() if has else None
        parallel.gather(parallel(parallel.scatter(own, root=1))).square().sum().backward()
        return own.grad if own is not None else None, parallel.model

    (_, first), (grad, second) = run_on_ranks(model, "1x2", (23, 27), run)
    check_close(grad, leaf.grad, "gradient of the image")
    check_same_training(first, unsplit)
    check_same_training(second, unsplit)


def test_gradients_as_float16_keep_three_digits() -> None:
    model, image = make_small_network(), make_images()
    unsplit = deepcopy(model)
    unsplit(image).square().mean().backward()

    def run(parallel: ParallelModel) -> nn.Module:
        parallel.gather(parallel(parallel.scatter(image))).square().mean().backward()
        return parallel.model

    exact = dict(unsplit.named_parameters())
    for split in run_on_ranks(model, "1x2", (23, 27), run, fp16_allreduce=True):
        for name, weight in split.named_parameters():
            expected, actual = exact[name].grad, weight.grad
            assert expected is not None
            assert actual is not None
            assert actual.dtype == torch.float64
            error = float((actual - expected).abs().max() / expected.abs().max())
            assert error < 3e-3, f"{name}: {error:.2g}"
        whole = split.get_parameter("head.weight").grad
        check_close(whole, exact["head.weight"].grad, "a gradient that is not summed")


def test_backward_after_another_forward() -> None:
    model, images = make_small_network(), [make_images() for _ in range(2)]
    unsplit = deepcopy(model)
    outputs = [unsplit(image) for image in images]
    for output in outputs:
        output.square().sum().backward()

    def run(parallel: ParallelModel) -> nn.Module:
        outputs = [parallel(image) for image in images]
        for output in outputs:
            output.square().sum().backward()
        return parallel.model

    for split in run_on_ranks(model, "1x2", (23, 27), run):
        check_same_training(split, unsplit)

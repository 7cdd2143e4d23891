"""What a cut network promises besides its numbers: gathering, training, state dicts, modes."""

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
from tests.spatial.against_uncut import agree, close, ranks, same_training

torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)) + self.shortcut(x))


class Small(nn.Module):
    """A classifier with names to gather at."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 5, 2, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.first, self.second = nn.Sequential(Block(4, 4), Block(4, 6, 2)), nn.Sequential(Block(6, 6), Block(6, 8))
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(self.second(self.first(self.stem(x)))).flatten(1))


def small() -> nn.Module:
    return Small().double().train()


def images(samples: int = 2, size: int = 23) -> Tensor:
    return torch.randn(samples, 3, size, size + 4, dtype=torch.float64)


@pytest.mark.parametrize("samples", [1, 3, 5])
@pytest.mark.parametrize("gather_at", ["stem", "stem.2", "first.1", "second", "pool", "head"])
def test_whole_images_from_a_module_on(gather_at: str, samples: int) -> None:
    agree(small(), "2x2", images(samples, 31), gather_at=gather_at)


def test_a_skip_connection_into_the_gathered_part() -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.before, self.after = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
            self.last = nn.Conv2d(8, 2, 3)

        def forward(self, x: Tensor) -> Tensor:
            early = self.before(x)
            return self.last(torch.cat([self.after(early * 2), early], 1))

    agree(Skip().double(), "1x3", images(2), gather_at="after")


def test_training_is_that_of_the_uncut_network() -> None:
    torch.manual_seed(7)
    model, steps = small(), [(images(4), torch.randint(5, (4,))) for _ in range(4)]

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

    uncut = deepcopy(model)
    expected = train(uncut, uncut)

    def body(parallel: ParallelModel) -> tuple[list[float], nn.Module]:
        return train(parallel, lambda image: parallel.gather(parallel(parallel.scatter(image)))), parallel.model

    for losses, cut in ranks(model, "2x2", (23, 27), body, gather_at="second"):
        assert losses == pytest.approx(expected, rel=1e-10)
        same_training(cut, uncut, 1e-9)


def test_gradients_of_several_batches_add_up() -> None:
    model, given = small(), [images() for _ in range(3)]
    uncut = deepcopy(model)
    for image in given:
        uncut(image).square().sum().backward()

    def body(parallel: ParallelModel) -> nn.Module:
        for image in given:
            parallel.gather(parallel(parallel.scatter(image))).square().sum().backward()
        return parallel.model

    for cut in ranks(model, "1x2", (23, 27), body):
        same_training(cut, uncut)


def test_a_loss_of_each_ranks_own_part() -> None:
    model = nn.Sequential(Block(3, 4), nn.Conv2d(4, 2, 3)).double()
    uncut, image = deepcopy(model), images()
    uncut(image).square().sum().backward()

    def body(parallel: ParallelModel) -> nn.Module:
        parallel(parallel.scatter(image)).square().sum().backward()
        return parallel.model

    for cut in ranks(model, "2x2", (23, 27), body):
        same_training(cut, uncut)


def test_frozen_weights_and_inference() -> None:
    model, image = small(), images()
    for weight in model.get_submodule("first").parameters():
        weight.requires_grad_(False)
    agree(model, "1x2", image)
    model.requires_grad_(False)
    agree(model, "1x2", image)

    def body(parallel: ParallelModel) -> Tensor:
        parallel.eval()
        with torch.no_grad():
            output = parallel.gather(parallel(parallel.scatter(image)))
        assert not output.requires_grad
        return output

    expected = deepcopy(model).eval()(image)
    for output in ranks(model, "2x1", (23, 27), body):
        close(output, expected, "output")


def test_a_weight_that_the_loss_does_not_reach_has_no_gradient() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.used, self.idle = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1), nn.Conv2d(4, 2, 1)

        def forward(self, x: Tensor) -> dict[str, Any]:
            x = self.body(x)
            return {"used": self.used(x), "others": [self.idle(x), x.mean((2, 3))]}

    model, image = Heads().double(), images()
    uncut = deepcopy(model)
    expected = uncut(image)
    expected["used"].sum().backward()

    def body(parallel: ParallelModel) -> tuple[Any, nn.Module]:
        found = parallel.gather(parallel(parallel.scatter(image)))
        found["used"].sum().backward()
        return found, parallel.model

    for found, cut in ranks(model, "1x2", (23, 27), body):
        close(found["used"], expected["used"], "used")
        for part, whole in zip(found["others"], expected["others"], strict=True):
            close(part, whole, "others")
        assert cut.get_parameter("idle.weight").grad is None
        same_training(cut, uncut)


def test_a_module_that_is_called_twice_and_one_that_is_tied() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.again, self.other = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(3))
            self.other.weight = self.first.weight
            self.register_buffer("scale", torch.randn(3, 1, 1))

        def forward(self, x: Tensor) -> Tensor:
            return self.other(self.again(F.relu(self.again(self.first(x))))) * self.scale.abs()

    agree(Twice().double(), "2x2", images())


def test_modes_of_training_are_traced_apart() -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 3, 3, padding=1)

        def forward(self, x: Tensor) -> Tensor:
            x = F.dropout(self.conv(x), 0.5, self.training)
            return x * 2 if self.training else x

    model, image = Noisy().double().train(), images()

    def body(parallel: ParallelModel) -> tuple[Tensor, Tensor]:
        noisy = parallel.gather(parallel(parallel.scatter(image)))
        parallel.eval()
        return noisy, parallel.gather(parallel(parallel.scatter(image)))

    quiet = deepcopy(model).eval()(image)
    for noisy, output in ranks(model, "1x2", (23, 27), body):
        close(output, quiet, "output")
        dropped = noisy == 0
        assert 0.3 < float(dropped.double().mean()) < 0.7
        close(noisy[~dropped], 4 * quiet[~dropped], "what was kept")


def test_state_dicts_are_those_of_the_uncut_network() -> None:
    model, other = small(), small()
    weights = {name: tensor.clone() for name, tensor in other.state_dict().items()}

    def body(parallel: ParallelModel) -> dict[str, Tensor]:
        assert list(parallel.state_dict()) == list(weights)
        assert [name for name, _ in parallel.named_parameters()] == [name for name, _ in other.named_parameters()]
        assert [name for name, _ in parallel.named_buffers()] == [name for name, _ in other.named_buffers()]
        parallel.load_state_dict(weights)
        parallel(parallel.scatter(image))
        return parallel.state_dict()

    image = images()
    other(image)
    for saved in ranks(model, "2x1", (23, 27), body):
        fresh = small()
        fresh.load_state_dict(saved)
        same_training(fresh, other)


def test_all_ranks_get_the_weights_of_rank_0() -> None:
    model = small()

    def rank(transport: Any) -> nn.Module:
        own = deepcopy(model) if transport.rank == 0 else small()
        return parallelize(own, "1x2", image_size=23, transport=transport).model

    for cut in run_ranks(2, rank):
        same_training(cut, model)


def test_an_image_that_one_rank_has() -> None:
    model, image = small(), images()
    uncut, given = deepcopy(model), image.clone().requires_grad_()
    uncut(given).square().sum().backward()

    def body(parallel: ParallelModel) -> tuple[Tensor | None, nn.Module]:
        has = parallel.settings.transport.rank == 1
        own = image.clone().requires_grad_() if has else None
        parallel.gather(parallel(parallel.scatter(own, root=1))).square().sum().backward()
        return own.grad if own is not None else None, parallel.model

    (_, first), (grad, second) = ranks(model, "1x2", (23, 27), body)
    close(grad, given.grad, "gradient of the image")
    same_training(first, uncut)
    same_training(second, uncut)


def test_gradients_as_float16_keep_three_digits() -> None:
    model, image = small(), images()
    uncut = deepcopy(model)
    uncut(image).square().mean().backward()

    def body(parallel: ParallelModel) -> nn.Module:
        parallel.gather(parallel(parallel.scatter(image))).square().mean().backward()
        return parallel.model

    exact = dict(uncut.named_parameters())
    for cut in ranks(model, "1x2", (23, 27), body, fp16_allreduce=True):
        for name, weight in cut.named_parameters():
            expected, found = exact[name].grad, weight.grad
            assert expected is not None
            assert found is not None
            assert found.dtype == torch.float64
            off = float((found - expected).abs().max() / expected.abs().max())
            assert off < 3e-3, f"{name}: {off:.2g}"
        whole = cut.get_parameter("head.weight").grad
        close(whole, exact["head.weight"].grad, "a gradient that is not summed")


def test_backward_after_another_forward_is_refused() -> None:
    image = images()

    def body(parallel: ParallelModel) -> None:
        first = parallel.gather(parallel(parallel.scatter(image)))
        parallel(parallel.scatter(image))
        first.sum().backward()

    with pytest.raises(TesseraError, match="run backward before the next forward"):
        ranks(small(), "1x2", (23, 27), body)

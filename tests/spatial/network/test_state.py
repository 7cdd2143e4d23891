"""Tests of state: submodules with two names, values kept on `self`, copies, state dicts, replaced modules."""

from __future__ import annotations

import io
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tessera.spatial import ParallelModel, parallelize
from tessera.transport.in_process import InProcessTransport, run_ranks
from tests.spatial.comparison import check_agreement, check_close, check_same_training, run_on_ranks

torch.set_num_threads(1)


def make_image(samples: int = 2, size: int = 9) -> Tensor:
    return torch.randn(samples, 3, size, size + 2, dtype=torch.float64)


def make_network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3)).double()


def test_a_submodule_under_two_names() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 3, 3, padding=1)
            self.second = self.first
            self.blocks = nn.ModuleList([self.first, nn.ReLU(), self.first])

        def forward(self, x: Tensor) -> Tensor:
            for block in self.blocks:
                x = block(x)
            return self.second(x) + self.first(x)

    torch.manual_seed(0)
    check_agreement(Shared().double(), "2x2", make_image())

    def run(parallel: ParallelModel) -> list[str]:
        return list(parallel.state_dict())

    for names in run_on_ranks(Shared(), "1x2", None, run):
        assert names == list(Shared().state_dict())


class Counting(nn.Module):
    """A network with a counter, a buffer that counts, and a list of results, all kept on `self`."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.calls, self.history = nn.Conv2d(3, 2, 3, padding=1), 0, []
        self.register_buffer("mean", torch.zeros(2))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        x = self.conv(x)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean((0, 2, 3)), alpha=0.1)
        self.history.append(x.detach().sum().item())
        return x * self.calls + self.mean.view(1, 2, 1, 1)


def test_a_counter_a_buffer_and_a_list_kept_by_the_network() -> None:
    torch.manual_seed(1)
    model, images = Counting().double(), [make_image() for _ in range(3)]
    unsplit = deepcopy(model)
    expected = [unsplit(image) for image in images]

    def run(parallel: ParallelModel) -> Any:
        return [parallel.gather(parallel(image)).detach() for image in images], parallel.model

    for outputs, split in run_on_ranks(model, "2x2", None, run):
        for output, exact in zip(outputs, expected, strict=True):
            check_close(output, exact, "output")
        assert split.calls == 3
        assert split.history == pytest.approx(unsplit.history)
        check_same_training(split, unsplit)
        assert type(split.mean) is Tensor


def test_a_buffer_replaced_in_forward() -> None:
    class Replacing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 2, 3, padding=1)
            self.register_buffer("mean", torch.zeros(2))

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean((0, 2, 3))
            return x - self.mean.view(1, 2, 1, 1)

    torch.manual_seed(2)
    model, images = Replacing().double(), [make_image() for _ in range(2)]
    unsplit = deepcopy(model)
    expected = [unsplit(image) for image in images]

    def run(parallel: ParallelModel) -> Any:
        outputs = [parallel.gather(parallel(image)).detach() for image in images]
        return outputs, parallel.gather(parallel.get_buffer("mean")), parallel.state_dict()

    for outputs, mean, saved in run_on_ranks(model, "1x2", None, run):
        for output, exact in zip(outputs, expected, strict=True):
            check_close(output, exact, "output")
        check_close(mean, unsplit.mean, "mean")
        stored = io.BytesIO()
        torch.save(saved, stored)
        stored.seek(0)
        check_close(torch.load(stored)["mean"], unsplit.mean, "saved mean")


def test_a_loss_term_kept_by_the_network() -> None:
    """Check a variational autoencoder that keeps its divergence on `self`; the loss uses it after forward."""

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode, self.decode = nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(2, 3, 3, padding=1)
            self.divergence: Any = None

        def forward(self, x: Tensor) -> Tensor:
            mean, log_variance = self.encode(x).chunk(2, 1)
            self.divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum((1, 2, 3)).mean()
            hidden = mean + 0.3 * torch.exp(0.5 * log_variance)
            return F.interpolate(self.decode(hidden), size=x.shape[2:])

    torch.manual_seed(3)
    model, image = Encoder().double(), make_image()
    unsplit = deepcopy(model)
    loss = F.mse_loss(unsplit(image), image) + 0.1 * unsplit.divergence
    loss.backward()

    def run(parallel: ParallelModel) -> Any:
        own = F.mse_loss(parallel(image), image) + 0.1 * parallel.model.divergence
        own.backward()
        return own.item(), parallel.model

    for value, split in run_on_ranks(model, "2x2", None, run):
        assert value == pytest.approx(loss.item(), rel=1e-12)
        check_same_training(split, unsplit)


def test_attributes_of_the_model_are_reached_through_the_parallel_model() -> None:
    def run(parallel: ParallelModel) -> bool:
        weight = parallel.get_parameter("0.weight")
        return weight is next(parallel.parameters()) and weight is parallel.model.get_parameter("0.weight")

    assert run_on_ranks(make_network(), "1x2", None, run) == [True] * 2


def test_a_deep_copy_trains_independently() -> None:
    torch.manual_seed(4)
    model, image = make_network(), make_image()
    unsplit, untouched = deepcopy(model), deepcopy(model)
    expected = unsplit(image)
    expected.square().sum().backward()

    def run(parallel: ParallelModel) -> Any:
        copy = deepcopy(parallel)
        output = copy(image)
        output.square().sum().backward()
        return copy.gather(output).detach(), copy.model, parallel.model

    for output, copied, original in run_on_ranks(model, "2x2", None, run):
        check_close(output, expected, "output")
        check_same_training(copied, unsplit)
        check_same_training(original, untouched)


def test_an_average_of_weights() -> None:
    """Check torch's model averaging, which copies the parallel model."""
    torch.manual_seed(5)
    model, image = make_network(), make_image()

    def train(network: nn.Module) -> nn.Module:
        average = torch.optim.swa_utils.AveragedModel(network)
        optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
        for _ in range(2):
            optimiser.zero_grad()
            network(image).square().mean().backward()
            optimiser.step()
            average.update_parameters(network)
        return average.module

    expected = dict(train(deepcopy(model)).named_parameters())
    for average in run_on_ranks(model, "1x2", None, train):
        for name, weight in average.named_parameters():
            check_close(weight, expected[name], name)


class Outer(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body, self.scale = body, nn.Parameter(torch.ones(2, 1, 1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) * self.scale


def test_state_dicts_of_a_bigger_module() -> None:
    torch.manual_seed(6)
    image, expected = make_image(), Outer(make_network())
    weights = {name: value.clone() for name, value in expected.state_dict().items()}
    absent = deepcopy(expected).load_state_dict({"scale": weights["scale"]}, strict=False).missing_keys
    output = expected(image).detach()
    models = [make_network() for _ in range(2)]

    def run(transport: InProcessTransport) -> Any:
        outer = Outer(parallelize(models[transport.rank], "1x2", transport=transport))
        assert list(outer.state_dict()) == list(weights)
        assert [name for name, _ in outer.named_parameters()] == [name for name, _ in expected.named_parameters()]
        assert [name for name, _ in outer.named_buffers()] == [name for name, _ in expected.named_buffers()]
        result = outer.load_state_dict(weights)
        assert not result.missing_keys
        assert not result.unexpected_keys
        missing = outer.load_state_dict({"scale": weights["scale"]}, strict=False).missing_keys
        assert missing == absent
        with pytest.raises(RuntimeError, match=r"Missing key.*body.0.weight"):
            outer.load_state_dict({"scale": weights["scale"]})
        with pytest.raises(RuntimeError, match=r"size mismatch for body\.0\.weight"):
            outer.load_state_dict({**weights, "body.0.weight": torch.zeros(1)})
        return outer.body.gather(outer(image)).detach(), outer.state_dict()

    for own, saved in run_ranks(2, run):
        check_close(own, output, "output")
        for name, value in expected.state_dict().items():
            check_close(saved[name], value, name)


def test_modes_dtypes_and_frozen_weights_of_a_bigger_module() -> None:
    models = [make_network() for _ in range(2)]

    def run(transport: InProcessTransport) -> None:
        outer = Outer(parallelize(models[transport.rank], "1x2", transport=transport))
        outer.eval()
        assert not any(module.training for module in models[transport.rank].modules())
        outer.train()
        assert all(module.training for module in models[transport.rank].modules())
        outer.requires_grad_(False)
        assert not any(weight.requires_grad for weight in models[transport.rank].parameters())
        outer.float()
        assert all(weight.dtype == torch.float32 for weight in models[transport.rank].parameters())
        outer.apply(lambda module: setattr(module, "visited", True))
        assert all(module.visited for module in models[transport.rank].children())

    run_ranks(2, run)


def test_branches_on_the_kind_and_shape_of_a_value() -> None:
    """Check that Python's tests take the branch of a plain tensor, in each of several calls."""

    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.skip = nn.Conv2d(3, 3, 3, padding=1), False

        def forward(self, x: Any) -> Tensor:
            if isinstance(x, dict):
                x = x["image"]
            y = self.conv(x)
            if isinstance(y, Tensor) and torch.is_tensor(y) and not isinstance(y, nn.Parameter):
                y = y * 2
            if hasattr(y, "dim") and y.dim() == 4 and y.shape[-1] > 8 and len(y) == 2:
                y = y + 1
            if torch.is_floating_point(y) and y.is_floating_point() and y.dtype == torch.float64:
                y = y.relu()
            if bool((y.mean() > 0).item()) and y.requires_grad:
                y = y - x.mean()
            if self.skip:  # another branch in every other call
                y = y + x
            self.skip = not self.skip
            return y

    torch.manual_seed(9)
    model, image = Branching().double(), make_image()
    check_agreement(model, "2x2", image)
    unsplit = deepcopy(model)
    expected = [unsplit({"image": image}) for _ in range(2)]

    def run(parallel: ParallelModel) -> list[Tensor]:
        return [parallel.gather(parallel({"image": image})).detach() for _ in range(2)]

    for outputs in run_on_ranks(model, "1x2", None, run):
        for output, exact in zip(outputs, expected, strict=True):
            check_close(output, exact, "output")


def test_a_module_replaced_after_the_first_forward() -> None:
    torch.manual_seed(7)
    model, image, new = make_network(), make_image(), nn.Conv2d(4, 5, 1).double()
    unsplit = deepcopy(model)
    unsplit(image)
    unsplit[3] = deepcopy(new)
    expected = unsplit(image)
    expected.square().sum().backward()

    def run(parallel: ParallelModel) -> Any:
        parallel(image)
        parallel.model[3] = deepcopy(new)
        output = parallel(image)
        output.square().sum().backward()
        return parallel.gather(output).detach(), parallel.model, list(parallel.state_dict())

    for output, split, names in run_on_ranks(model, "2x2", None, run):
        check_close(output, expected, "output")
        check_same_training(split, unsplit)
        assert names == list(unsplit.state_dict())


def test_a_weight_replaced_or_added_after_the_first_forward() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.scale = nn.Conv2d(3, 2, 3), None

        def forward(self, x: Tensor) -> Tensor:
            x = self.conv(x)
            return x if self.scale is None else x * self.scale

    def train(network: nn.Module, inner: nn.Module) -> nn.Module:
        network(image).square().sum().backward()
        inner.scale = nn.Parameter(torch.full((7, 9), 2.0, dtype=torch.float64))
        inner.conv.weight = nn.Parameter(inner.conv.weight.detach() * 2)
        network(image).square().sum().backward()
        return inner

    torch.manual_seed(8)
    model, image = Scaled().double(), make_image()
    unsplit = deepcopy(model)
    train(unsplit, unsplit)
    for split in run_on_ranks(model, "2x2", None, lambda parallel: train(parallel, parallel.model)):
        check_same_training(split, unsplit)


def test_a_lazy_network() -> None:
    torch.manual_seed(9)
    model, image = nn.Sequential(nn.LazyConv2d(4, 3), nn.LazyBatchNorm2d()).double(), make_image()
    model(image)
    check_agreement(model, "1x2", image)


def test_an_image_scattered_once_and_used_twice() -> None:
    torch.manual_seed(10)
    model, image = make_network(), make_image()
    expected = deepcopy(model).eval()(image)

    def run(parallel: ParallelModel) -> list[Tensor]:
        tiles = parallel.eval().scatter(image)
        assert parallel.scatter(tiles) is tiles
        assert tiles.shape == image.shape
        return [parallel.gather(parallel(tiles)).detach() for _ in range(2)]

    for outputs in run_on_ranks(model, "2x2", None, run):
        for output in outputs:
            check_close(output, expected, "output")


def test_keyword_arguments_and_other_tensors() -> None:
    """Check that the first image is split, and that other tensors are used as they are."""

    class Conditional(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.embed = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(5, 4)

        def forward(self, time: Tensor, *, image: Tensor, mask: Tensor | None = None, options: Any = ()) -> Tensor:
            x = self.conv(image) + self.embed(time)[:, :, None, None]
            return x if mask is None else x * mask + options["offset"]

    torch.manual_seed(11)
    model, image, time = Conditional().double(), make_image(), torch.randn(2, 5, dtype=torch.float64)
    arguments = {"image": image, "mask": torch.rand(9, 11, dtype=torch.float64), "options": {"offset": 2.0}}
    unsplit = deepcopy(model)
    expected = unsplit(time, **arguments)
    expected.square().sum().backward()

    def run(parallel: ParallelModel) -> Any:
        output = parallel(time, **arguments)
        output.square().sum().backward()
        return parallel.gather(output).detach(), parallel.model

    for output, split in run_on_ranks(model, "2x2", None, run):
        check_close(output, expected, "output")
        check_same_training(split, unsplit)


def test_two_images() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(6, 4, 3, padding=1)

        def forward(self, first: Tensor, second: Tensor) -> Tensor:
            return self.conv(torch.cat([first, second], 1))

    torch.manual_seed(12)
    model, images = Pair().double(), [make_image(), make_image()]
    expected = model(*images).detach()

    def run(parallel: ParallelModel) -> list[Tensor]:
        both = [parallel.scatter(image) for image in images]
        return [parallel.gather(output).detach() for output in (parallel(*images), parallel(*both))]

    for outputs in run_on_ranks(model, "1x3", None, run):
        for output in outputs:
            check_close(output, expected, "output")

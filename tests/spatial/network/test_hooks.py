"""Tests of hooks, instance methods and computed weights: they work as in the unsplit network."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm, weight_norm

from tessera.spatial import ParallelModel, parallelize
from tessera.transport.in_process import InProcessTransport, run_ranks
from tests.spatial.comparison import check_agreement, check_close, check_same_training, run_on_ranks

torch.set_num_threads(1)
torch.manual_seed(0)
IMAGE = torch.randn(2, 3, 8, 8, dtype=torch.float64)


class Net(nn.Module):
    """A network with a container, a layer with an exchange, a pointwise layer, and a layer after a global pool."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(self.stem(x)))


def check_built(make: Callable[[], nn.Module], mesh: str = "1x2") -> None:
    """Check agreement of a model that cannot be copied: it is built once per rank from the same seed."""

    def build() -> nn.Module:
        torch.manual_seed(3)
        return make().double()

    unsplit, leaf = build(), IMAGE.clone().requires_grad_()
    expected = unsplit(leaf)
    expected.square().sum().backward()
    models = [build() for _ in range(2)]

    def run(transport: InProcessTransport) -> Any:
        parallel = parallelize(models[transport.rank], mesh, transport=transport)
        own = IMAGE.clone().requires_grad_()
        output = parallel(own)
        output.square().sum().backward()
        return parallel.gather(output).detach(), own.grad, parallel.model

    for output, grad, split in run_ranks(2, run):
        check_close(output, expected, "output")
        check_close(grad, leaf.grad, "gradient of the image")
        check_same_training(split, unsplit)


@pytest.mark.parametrize("name", ["", "stem", "stem.0", "stem.1", "head"])
@pytest.mark.parametrize(
    "register",
    [
        lambda module: module.register_forward_hook(lambda module, inputs, output: 2 * output),
        lambda module: module.register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,)),
        lambda module: module.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 2,)),
        lambda module: module.register_full_backward_pre_hook(lambda module, grads: (grads[0] * 3,)),
    ],
    ids=["forward", "before forward", "backward", "before backward"],
)
def test_a_hook_runs_on_every_module(register: Any, name: str) -> None:
    def make() -> nn.Module:
        model = Net()
        register(model.get_submodule(name))
        return model

    check_built(make)


@pytest.mark.parametrize(
    "altered",
    [weight_norm, spectral_norm, lambda conv: prune.l1_unstructured(conv, "weight", 0.5)],
    ids=["weight_norm", "spectral_norm", "prune"],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_weights_computed_by_hooks(altered: Any) -> None:
    check_built(lambda: nn.Sequential(altered(nn.Conv2d(3, 4, 3)), nn.ReLU(), altered(nn.Conv2d(4, 2, 3))))


@pytest.mark.parametrize("method", ["forward", "_conv_forward"])
def test_an_instance_method_of_a_layer(method: str) -> None:
    def make() -> nn.Module:
        model = Net()
        original = getattr(model.stem[0], method)
        setattr(model.stem[0], method, lambda *inputs: original(*inputs).tanh())
        return model

    check_built(make)


def test_an_instance_forward_of_the_model() -> None:
    def make() -> nn.Module:
        model = Net()
        model.forward = lambda x: 2 * model.stem(x)  # type: ignore[method-assign]
        return model

    check_built(make, "2x1")


def test_an_instance_forward_of_a_container() -> None:
    def make() -> nn.Module:
        model = nn.Sequential(Net(), nn.ReLU())
        model[0].head = nn.Conv2d(3, 2, 3, padding=1)
        model[0].forward = MethodType(lambda self, x: 3 * self.head(x), model[0])
        return model

    check_built(make, "2x1")


def test_a_hook_registered_and_removed_later() -> None:
    model = Net().double()

    def run(parallel: ParallelModel) -> list[Tensor]:
        outputs = [parallel.gather(parallel(IMAGE))]
        handle = parallel.model.get_submodule("head").register_forward_hook(lambda module, inputs, output: 2 * output)
        outputs.append(parallel.gather(parallel(IMAGE)))
        handle.remove()
        return [*outputs, parallel.gather(parallel(IMAGE))]

    expected = model(IMAGE)
    for first, hooked, last in run_on_ranks(model, "1x2", 8, run):
        check_close(first, expected, "before")
        check_close(hooked, 2 * expected, "with the hook")
        check_close(last, expected, "after")


def test_features_kept_by_a_hook() -> None:
    """Check that a hook can keep activations, and that a loss of them reaches the weights."""
    model = Net().double()
    kept: list[Tensor] = []
    unsplit = Net().double()
    unsplit.load_state_dict(model.state_dict())
    unsplit.stem.register_forward_hook(lambda module, inputs, output: kept.append(output))
    (unsplit(IMAGE).sum() + kept[0].square().mean()).backward()

    def run(parallel: ParallelModel) -> nn.Module:
        own: list[Tensor] = []
        parallel.model.get_submodule("stem").register_forward_hook(lambda module, inputs, output: own.append(output))
        (parallel(IMAGE).sum() + own[0].square().mean()).backward()
        return parallel.model

    for split in run_on_ranks(model, "1x2", 8, run):
        check_same_training(split, unsplit)


def test_a_function_attribute() -> None:
    class Keeps(Net):
        def __init__(self) -> None:
            super().__init__()
            self.activation = torch.tanh

        def forward(self, x: Tensor) -> Tensor:
            return self.activation(super().forward(x))

    check_agreement(Keeps().double(), "1x2", IMAGE)


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


@pytest.mark.parametrize(
    "parametrized",
    [
        lambda conv: parametrize.register_parametrization(conv, "weight", Doubled()),
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        parametrizations.orthogonal,
    ],
    ids=["own", "weight_norm", "spectral_norm", "orthogonal"],
)
def test_parametrized_weights_equal_the_unsplit_network(parametrized: Any) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, stride=2)).double()
    parametrized(model[0])
    parametrized(model[2])
    check_agreement(model, "2x2", torch.randn(2, 3, 9, 11, dtype=torch.float64))


def test_hooks_of_weights_receive_the_unsplit_gradient() -> None:
    model = Net().double()
    model(IMAGE).square().sum().backward()
    expected = model.stem[0].weight.grad

    def run(parallel: ParallelModel) -> list[Tensor]:
        seen: list[Tensor] = []
        parallel.model.get_parameter("stem.0.weight").register_hook(seen.append)
        parallel.gather(parallel(parallel.scatter(IMAGE))).square().sum().backward()
        return seen

    for (seen,) in run_on_ranks(model, "1x2", 8, run):
        torch.testing.assert_close(seen, expected)

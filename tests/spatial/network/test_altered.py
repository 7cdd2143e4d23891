"""What was added to one module: hooks and methods are refused, with the layer's name; parametrizations are exact."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm, weight_norm

from tessera.errors import TesseraError
from tessera.spatial import ParallelModel, parallelize
from tessera.transport.in_process import InProcessTransport, run_ranks
from tests.spatial.against_uncut import agree, ranks

torch.set_num_threads(1)
IMAGE = torch.randn(2, 3, 8, 8)


class Net(nn.Module):
    """A container, a layer that exchanges, one that is called as it is, and one behind a global pool."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU())
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(self.stem(x)))


def doubled(module: nn.Module, given: Any, output: Tensor) -> Tensor:
    return 2 * output


def refused(make: Callable[[], nn.Module], said: str) -> None:
    """On every rank, before the model has run; it is made there, as not everything that is altered can be copied."""

    def rank(transport: InProcessTransport) -> nn.Module:
        model = make()
        with pytest.raises(TesseraError, match=said):
            parallelize(model, "1x2", image_size=8, transport=transport)
        return model

    for model in run_ranks(2, rank):
        assert not any(weight.is_meta for module in model.modules() for weight in tensors(module))


def tensors(module: nn.Module) -> list[Tensor]:
    """Those of a module itself, among them what a hook has left as a plain attribute."""
    entries = (*vars(module).values(), *module.parameters(), *module.buffers())
    return [entry for entry in entries if isinstance(entry, Tensor)]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", r"the model \(Net\)"),
        ("stem", r"layer stem \(Sequential\)"),
        ("stem.0", r"layer stem.0 \(Conv2d\)"),
        ("stem.1", r"layer stem.1 \(ReLU\)"),
        ("head", r"layer head \(Conv2d\)"),
    ],
)
@pytest.mark.parametrize(
    "register",
    [
        lambda module: module.register_forward_hook(doubled),
        lambda module: module.register_forward_pre_hook(lambda module, given: None),
        lambda module: module.register_full_backward_hook(lambda module, given, grads: None),
        lambda module: module.register_full_backward_pre_hook(lambda module, grads: None),
    ],
    ids=["forward", "before forward", "backward", "before backward"],
)
def test_a_hook_is_refused_wherever_it_is(register: Any, name: str, said: str) -> None:
    def make() -> nn.Module:
        model = Net()
        register(model.get_submodule(name))
        return model

    refused(make, f"{said} has hooks, which do not run on cut images: remove them")


@pytest.mark.parametrize(
    "altered",
    [weight_norm, spectral_norm, lambda conv: prune.l1_unstructured(conv, "weight", 0.5)],
    ids=["weight_norm", "spectral_norm", "prune"],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_weights_that_a_hook_makes_are_refused_and_left_as_they_are(altered: Any) -> None:
    refused(lambda: nn.Sequential(altered(nn.Conv2d(3, 4, 3))), r"layer 0 \(Conv2d\) has hooks.*parametrize")


@pytest.mark.parametrize("method", ["forward", "_conv_forward"])
def test_a_method_of_one_layer_is_refused(method: str) -> None:
    def make() -> nn.Module:
        model = Net()
        setattr(model.stem[0], method, lambda *given: torch.zeros(2, 4, 8, 8))
        return model

    refused(make, rf"layer stem.0 \(Conv2d\) has a method that is not its class's.*got '{method}'")


def test_a_forward_of_one_model_is_refused() -> None:
    def make() -> nn.Module:
        model = Net()
        model.forward = lambda x: 2 * x  # type: ignore[method-assign]
        return model

    refused(make, r"the model \(Net\) has a method that is not its class's.*got 'forward'")


def test_a_hook_that_comes_later_is_refused_too() -> None:
    def body(parallel: ParallelModel) -> str:
        tile = parallel.scatter(IMAGE)
        parallel(tile)
        handle = parallel.model.get_submodule("stem.0").register_forward_hook(doubled)
        with pytest.raises(TesseraError, match=r"layer stem.0 \(Conv2d\) has hooks"):
            parallel(tile)
        handle.remove()
        parallel(tile)
        return "asked"

    assert ranks(Net(), "1x2", 8, body) == ["asked"] * 2


def test_a_function_that_a_module_keeps_is_no_method() -> None:
    class Keeps(Net):
        def __init__(self) -> None:
            super().__init__()
            self.activation = torch.tanh

        def forward(self, x: Tensor) -> Tensor:
            return self.activation(super().forward(x))

    agree(Keeps().double(), "1x2", IMAGE.double())


def test_a_forward_of_one_container_is_read() -> None:
    model = nn.Sequential(Net(), nn.ReLU()).double()
    model[0].head = nn.Conv2d(3, 2, 3, padding=1).double()
    model[0].forward = MethodType(lambda self, x: 3 * self.head(x), model[0])

    def body(parallel: ParallelModel) -> Tensor:
        return parallel.gather(parallel(parallel.scatter(IMAGE.double()))).detach()

    for found in ranks(model, "2x1", 8, body):
        torch.testing.assert_close(found, model(IMAGE.double()))


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
def test_parametrized_weights_are_those_of_the_uncut_network(parametrized: Any) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 3, stride=2)).double()
    parametrized(model[0])
    parametrized(model[2])
    agree(model, "2x2", torch.randn(2, 3, 9, 11, dtype=torch.float64))


def test_hooks_of_weights_see_the_gradient_of_the_uncut_network() -> None:
    model, image = Net().double(), IMAGE.double()
    model(image).square().sum().backward()
    expected = model.stem[0].weight.grad

    def body(parallel: ParallelModel) -> list[Tensor]:
        seen: list[Tensor] = []
        parallel.model.get_parameter("stem.0.weight").register_hook(seen.append)
        parallel.gather(parallel(parallel.scatter(image))).square().sum().backward()
        return seen

    for (seen,) in ranks(model, "1x2", 8, body):
        torch.testing.assert_close(seen, expected)

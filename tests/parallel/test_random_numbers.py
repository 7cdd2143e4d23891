"""Tests of random numbers on real ranks: split networks draw the numbers of the unsplit one with rank 0's seed.

Ranks are seeded differently. In-process ranks cannot show this, because they share one generator.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from tessera.launch import LaunchConfig, Worker, Workers
from tessera.spatial import parallelize
from tessera.transport.registry import open_transport

pytestmark = [pytest.mark.timeout(200), pytest.mark.ranks]


class Noisy(nn.Module):
    """A convolution followed by a random function; `noise` and `draws` keep what was drawn."""

    def __init__(self, function: Callable[[Noisy, Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.function, self.noise, self.draws = function, torch.zeros(()), []

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.function(self, self.first(x)))


def keep_noise(net: Noisy, x: Tensor) -> Tensor:
    net.noise = torch.randn(x.shape[1:], dtype=x.dtype)
    return x + net.noise


def add_kept_noise(net: Noisy, x: Tensor) -> Tensor:
    """Draw noise in the first call only."""
    if net.noise.dim() == 0:
        net.noise = torch.randn_like(x)
    return x * net.noise.detach()


def drop_path(net: Noisy, x: Tensor) -> Tensor:
    keep = x.new_empty(x.shape[0], 1, 1, 1).bernoulli_(0.5)
    return x + keep * net.second(x)


def choose_path(net: Noisy, x: Tensor) -> Tensor:
    net.draws.append(random.random())
    return net.second(x) if net.draws[-1] < 0.5 else x * 2


def repeat(net: Noisy, x: Tensor) -> Tensor:
    for _ in range(int(np.random.randint(1, 4))):
        x = net.second(x)
    return x


def shuffle(net: Noisy, x: Tensor) -> Tensor:
    return x[:, torch.randperm(x.shape[1])]


def drop_inside_checkpoint(net: Noisy, x: Tensor) -> Tensor:
    result: Tensor = checkpoint(lambda y: F.dropout(net.second(y), 0.4), x, use_reentrant=False)
    return result


FUNCTIONS: dict[str, Callable[[Noisy, Tensor], Tensor]] = {
    "dropout": lambda net, x: F.dropout(x, 0.4),
    "dropout of channels": lambda net, x: F.dropout2d(x, 0.4),
    "alpha dropout": lambda net, x: F.alpha_dropout(x, 0.4, True),
    "random slopes": lambda net, x: F.rrelu(x, training=True),
    "uniform noise": lambda net, x: x + torch.rand_like(x),
    "noise of a shape": lambda net, x: x + torch.randn(x.shape, dtype=x.dtype),
    "noise in place": lambda net, x: x.clone().normal_() + x,
    "multinomial": lambda net, x: x * (1 + torch.multinomial(torch.ones(5), 1)),
    "Gumbel": lambda net, x: F.gumbel_softmax(x, dim=1),
    "kept noise": keep_noise,
    "noise kept from the first call": add_kept_noise,
    "stochastic depth": drop_path,
    "Python's random": choose_path,
    "NumPy's random": repeat,
    "permutation": shuffle,
    "dropout inside of a checkpoint": drop_inside_checkpoint,
}


def run_steps(name: str, seed: int, wrap: Callable[[nn.Module], Any]) -> list[Tensor]:
    """Run three steps with a seed; return outputs and gradients."""
    torch.manual_seed(0)
    network = Noisy(FUNCTIONS[name]).double()
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    model = wrap(network)
    gather = getattr(model, "gather", lambda output: output)
    tensors = []
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        image = torch.randn(2, 3, 9, 10, dtype=torch.float64, generator=generator).requires_grad_()
        output = gather(model(image))
        output.square().sum().backward()
        assert image.grad is not None
        tensors += [output.detach(), image.grad]
    return tensors + [weight.grad for weight in network.parameters() if weight.grad is not None]


def run_split(worker: Worker, names: list[str]) -> dict[str, list[Tensor]]:
    """Worker function: run networks on ranks with different seeds."""
    transport = open_transport("auto", worker)

    def wrap(network: nn.Module) -> Any:
        return parallelize(network, f"1x{worker.size}", transport=transport)

    results = {name: run_steps(name, 40 + worker.rank, wrap) for name in names}
    transport.close()
    return results


@pytest.fixture(scope="module")
def split_results() -> Iterator[list[dict[str, list[Tensor]]]]:
    with Workers(LaunchConfig(spawn="torchrun", workers=2, time_limit=150)) as workers:
        yield workers.run(f"{__name__}:run_split", list(FUNCTIONS))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_ranks_draw_the_numbers_of_the_unsplit_network(name: str, split_results: Any) -> None:
    expected = run_steps(name, 40, lambda network: network)
    for tensors in split_results:
        for actual, exact in zip(tensors[name], expected, strict=True):
            torch.testing.assert_close(actual, exact, rtol=1e-10, atol=1e-10)

"""Tests of in-place writes: the results are those of plain torch, and written weights and buffers are kept."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tessera.phased import PhasedModel
from tests.phased.random_networks import use_one_thread


class Skips(nn.Module):
    """A network with in-place operations on a tensor and on a number that are each bound to two variables."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = self.first(x)
        skip, part = y, y[:, :2]
        count = less = x.shape[0]
        y += self.second(x)
        y *= 2
        y -= 1
        y /= 3
        part **= 2
        part.T[0].data += 1
        less -= 1
        return y + skip, part * count, less


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": "sequential", "budget": 4096},
        {"schedule": "overlapped", "budget": 8192},
        {"schedule": "resident"},
        {"schedule": "data-parallel", "budget": 8192},
    ],
    ids=str,
)
def test_a_write_is_visible_under_every_name_of_a_value(options):
    model, batches = Skips(), [torch.randn(3, 4) for _ in range(2)]
    with use_one_thread(), torch.no_grad():
        expected = [model(x) for x in batches]
    with PhasedModel(model, threads=1, keep=False, **options) as phased:
        for outputs, expected_outputs in zip(phased.run(batches), expected, strict=True):
            assert torch.equal(outputs[0], expected_outputs[0])
            assert torch.equal(outputs[1], expected_outputs[1])
            assert outputs[2] == expected_outputs[2] == 2


def add_to_buffer(self, x):
    return self.layer(x) + self.count.add_(1)


def add_to_part(self, x):
    part = self.count.view(-1)[1:]
    part += 1
    return self.layer(x) + self.count


def clear_weight(self, x):
    return torch.nn.functional.relu(self.layer.weight, inplace=True).sum(0) + x


def apply_in_place_module(self, x):
    return self.layer(x) + self.gate(self.count)


def write_to_out(self, x):
    torch.add(x[0], 1, out=self.count)
    return self.layer(x)


def write_to_constant(self, x):
    total = torch.zeros(4)
    total += self.layer(x)[0]
    return total


WRITES = (add_to_buffer, add_to_part, clear_weight, apply_in_place_module, write_to_out, write_to_constant)


@pytest.mark.parametrize("forward", WRITES, ids=lambda forward: forward.__name__)
def test_writes_of_a_network_to_its_own_tensors_are_kept(forward):
    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.gate = nn.Linear(4, 4), nn.ReLU(inplace=True)
            self.more = nn.Linear(4, 4)
            self.register_buffer("count", torch.zeros(4))

        def forward(self, x):
            return forward(self, x) + self.more(x)

    model, x = Holds().eval(), torch.rand(3, 4)
    with PhasedModel(model, budget=4096 + 64, keep=False, threads=1) as phased, use_one_thread(), torch.no_grad():
        for _ in range(3):
            assert torch.equal(phased(x), model(x))
        for name, value in model.state_dict().items():
            assert torch.equal(phased.state_dict()[name], value)


def test_values_computed_from_a_weight_may_be_written_to():
    class Scales(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            scale = self.layer.weight * 2
            scale += 1
            return self.layer(x) @ scale.relu_()

    model, x = Scales(), torch.randn(3, 4)
    with PhasedModel(model, threads=1) as phased, use_one_thread(), torch.no_grad():
        assert torch.equal(phased(x), model(x))

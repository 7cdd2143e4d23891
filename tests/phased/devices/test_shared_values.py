"""Tests of the slots of shared values: slots of values that are needed at the same time never overlap."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from torch import nn

from tessera.errors import TesseraError
from tessera.phased.devices.shared_values import plan_shared_values
from tessera.phased.model import PhasedModel
from tests.phased.random_networks import KINDS, draw_networks, use_one_thread


@settings(max_examples=40, deadline=None)
@given(drawn=draw_networks([kind for kind in KINDS if kind != "grow"]))  # "grow" creates aliases, which are refused
def test_values_that_live_at_the_same_time_do_not_overlap(drawn):
    model, width = drawn
    with PhasedModel(model, budget="1MB", keep=False, activations="1GB") as phased:  # traced
        network, names = phased._engine.network, [phase.tensors for phase in phased.phases]
        layouts = phased._engine._schedule.setup.layouts
        given_values = network.bind_arguments((torch.randn(3, width),), {})
        table = plan_shared_values(network, layouts, names, given_values)
        boundaries = [part.boundary for part in network.parts]
    alive = set(given_values)
    for boundary in boundaries:
        alive |= set(boundary.outputs)
        spans = sorted((slot.at, slot.at + slot.nbytes) for name, slot in table.slots.items() if name in alive)
        assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(spans))
        assert all(stop <= table.nbytes for _, stop in spans)
        alive -= set(boundary.last_use)


class Aliases(nn.Module):
    """A network in which a value and a view of it cross a phase boundary, after which the view is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        y = self.first(x)
        part = y[:, :2]
        z = self.second(x)
        part.add_(1)
        return y + z


def test_values_in_the_same_memory_are_refused_by_processes_and_kept_by_threads():
    model = Aliases()
    x = torch.randn(3, 4)
    options = {"budget": "8KiB", "keep": False, "threads": 1, "activations": "1GB"}
    with PhasedModel(model, **options) as phased, use_one_thread(), torch.no_grad():
        assert torch.equal(phased(x), model(x))
        network, names = phased._engine.network, [phase.tensors for phase in phased.phases]
        with pytest.raises(TesseraError, match="first and getitem cross phases in the same memory"):
            plan_shared_values(network, phased._engine._schedule.setup.layouts, names, network.bind_arguments((x,), {}))

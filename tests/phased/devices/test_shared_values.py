"""Values of device processes never lie where another one that is still needed lies."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from torch import nn

from tessera.errors import TesseraError
from tessera.phased.devices.shared_values import table_of
from tessera.phased.model import PhasedModel
from tests.phased.drawn import KINDS, networks, one_thread


@settings(max_examples=40, deadline=None)
@given(drawn=networks([kind for kind in KINDS if kind != "grow"]))  # two names of one memory are refused
def test_places_of_values_that_live_at_the_same_time_are_apart(drawn):
    model, width = drawn
    budget = PhasedModel.least_budget(model, schedule="overlapped")
    with PhasedModel(model, budget=budget) as phased:
        network, names = phased._network, [phase.tensors for phase in phased.phases]
        layouts = phased._schedule.setup.layouts
        given_values = network.bind((torch.randn(3, width),), {})
        table = table_of(network, layouts, names, given_values)
        borders = [part.border for part in network.parts]
    alive = set(given_values)
    for border in borders:
        alive |= set(border.outputs)
        spans = sorted((place.at, place.at + place.nbytes) for name, place in table.places.items() if name in alive)
        assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(spans))
        assert all(stop <= table.nbytes for _, stop in spans)
        alive -= set(border.last_use)


class Aliases(nn.Module):
    """A view of a value that crosses phases beside it, and a write to the one that the other shows."""

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
    with PhasedModel(model, budget="8KiB", keep=False, threads=1) as phased, one_thread(), torch.no_grad():
        assert torch.equal(phased(x), model(x))
        network, names = phased._network, [phase.tensors for phase in phased.phases]
        with pytest.raises(TesseraError, match="first and getitem cross phases in the same memory"):
            table_of(network, phased._schedule.setup.layouts, names, network.bind((x,), {}))

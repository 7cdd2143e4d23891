"""Values of device processes never lie where another one that is still needed lies."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given, settings

from tessera.phased.devices.shared_values import table_of
from tessera.phased.model import PhasedModel
from tests.phased.drawn import networks


@settings(max_examples=40, deadline=None)
@given(drawn=networks())
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

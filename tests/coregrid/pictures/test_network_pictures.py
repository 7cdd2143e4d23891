"""Tests of the drawings of a network and of the core grid."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.networks.layers import describe_network
from tessera.coregrid.networks.plan import NetworkPlan, plan_network
from tessera.coregrid.pictures.core_grid import draw_core_grid
from tessera.coregrid.pictures.network_strip import draw_lifetimes, draw_network, list_waiting_tensors
from tessera.coregrid.planning.plan import plan_one
from tessera.machine import load_machine
from tests.coregrid.planning.shapes import square

N150 = load_machine("wormhole-n150")
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def plan() -> NetworkPlan:
    return plan_network(describe_network("resnet18", 2, 64), N150).best


def test_the_strip_names_every_layer(plan: NetworkPlan) -> None:
    drawn = ElementTree.fromstring(draw_network(plan))
    words = [element.text for element in drawn.iter(f"{SVG}text")]
    assert {step.name for step in plan.steps} <= set(words)


def test_waiting_tensors_are_the_inputs_of_shortcuts(plan: NetworkPlan) -> None:
    waiting = list_waiting_tensors(plan)
    layers = plan.network.layers
    names = [{layers[tensor].name for tensor in held} for held in waiting]
    steps = [step.name for step in plan.steps]
    assert names[steps.index("layer1.0.conv2")] == {"maxpool"}
    assert names[steps.index("layer1.0.add")] == set()
    for step, held in zip(plan.steps, waiting, strict=True):
        assert sum(held.values()) <= step.memory
    assert len(list(ElementTree.fromstring(draw_lifetimes(plan)).iter(f"{SVG}rect"))) > len(plan.steps)


@pytest.mark.parametrize("layout", list(ShardLayout))
def test_the_core_grid_has_every_core_and_every_exchange(layout: ShardLayout) -> None:
    conv_plan = plan_one(square(1, 28, 64, 64), N150, layout=layout)
    drawn = ElementTree.fromstring(draw_core_grid(conv_plan))
    assert len(list(drawn.iter(f"{SVG}rect"))) == N150.workers.size
    runs = conv_plan.halo_runs
    assert runs is not None
    arrows = [path for path in drawn.iter(f"{SVG}path") if path.get("marker-end")]
    assert len(arrows) == len(runs.remote) * conv_plan.sharding.columns

"""Operators counted together, and held against what the machine could do."""

from __future__ import annotations

import pytest

from tessera.inference.attribution.in_place import Call
from tessera.inference.attribution.measure import EIGHT_BITS, UNCALIBRATED, difference, without_roofline
from tessera.inference.attribution.nodes import Origin, attributed, origin_of, scope_of
from tessera.inference.attribution.shares import Attribution, Least, Operator, counted
from tessera.inference.engines.engine import Step


def operator(kind: str, seconds: float, flops: float | None = None, moved: float | None = None) -> Operator:
    return Operator(layer=f"of {kind}", kind=kind, seconds=seconds, flops=flops, moved=moved)


def test_the_roofline_is_the_longer_of_arithmetic_and_traffic():
    least = Least(flops=100.0, bandwidth=10.0)
    (busy,) = counted([operator("conv", 4.0, flops=200.0, moved=5.0)], "kind", least)
    (moving,) = counted([operator("relu", 4.0, flops=0.0, moved=20.0)], "kind", least)
    assert (busy.roofline, moving.roofline) == (0.5, 0.5)


def test_what_is_not_known_makes_nothing_look_slow():
    least = Least(flops=100.0, bandwidth=10.0)
    both = [operator("conv", 1.0, flops=100.0, moved=0.0), operator("conv", 9.0)]
    (share,) = counted(both, "kind", least)
    assert share.roofline == pytest.approx(1.0)
    assert share.flops == 100.0
    (unknown,) = counted([operator("Reorder", 1.0)], "kind", least)
    assert (unknown.roofline, unknown.flops, unknown.moved) == (None, None, None)


def test_work_whose_bytes_are_not_known_keeps_its_flops_and_has_no_roofline():
    (share,) = counted([operator("QLinearConv", 1.0, flops=100.0)] * 2, "kind", Least(flops=100.0, bandwidth=10.0))
    assert (share.flops, share.moved, share.roofline) == (200.0, None, None)


def test_a_roofline_that_is_missing_is_told_where_it_could_be_had():
    known, least = [operator("conv", 1.0, flops=1.0, moved=1.0)], Least(flops=100.0, bandwidth=10.0)
    assert without_roofline(known, least, "32.32") == ()
    assert without_roofline(known, None, "32.32") == (UNCALIBRATED,)
    assert without_roofline(known, least, "int8") == (EIGHT_BITS,)
    assert without_roofline([operator("Conv", 1.0)], None, "32.32") == ()


def test_the_sum_and_the_whole_differ_in_words():
    few = Attribution(operators=(operator("conv", 0.9),), whole=1.0, witness="")
    many = Attribution(operators=(operator("conv", 1.2),), whole=1.0, witness="")
    assert "operators 900 ms of 1.00 s for the whole batch: 10.0% lies between them" in difference(few)
    assert "costs 20.0% more" in difference(many)


def test_a_node_is_of_the_layer_that_its_name_begins_with():
    paths = ("network.layer1.0", "network.layer1.0.conv1", "network.layer1.0.conv10", "network.layer1.0.relu")
    places = {scope_of(path): [number] for number, path in enumerate(paths)}

    def layer(node: str) -> tuple[str, int] | None:
        found = origin_of(node, places)
        return found and (paths[places[found.scope][0]], found.turn)

    assert layer("/network/layer1/layer1.0/conv1/Conv_nchwc") == ("network.layer1.0.conv1", 0)
    assert layer("/network/layer1/layer1.0/conv10/Conv/WithoutBiases") == ("network.layer1.0.conv10", 0)
    assert layer("/network/layer1/layer1.0/relu_2/Relu") == ("network.layer1.0.relu", 2)
    assert layer("/network/layer1/layer1.0/Add") == ("network.layer1.0", 0)
    assert layer("ReorderInput") is None
    assert origin_of("/network/layer1/layer1.0/relu/Relu", places) == Origin(scope_of("network.layer1.0.relu"), 0)


def test_the_work_of_a_call_goes_to_the_node_that_does_it():
    calls = [
        Call("network.conv1", "convolution 3x3", 100.0, 10.0),
        Call("network.relu", "relu_", 0.0, 4.0),
        Call("network.conv2", "convolution 3x3", 200.0, 20.0),
        Call("network.down", "convolution 1x1", 50.0, 5.0),
        Call("network", "add", 0.0, 6.0),
        Call("network.relu", "relu_", 0.0, 4.0),
        Call("network.head", "addmm", 30.0, 3.0),
    ]
    steps = [
        Step(name="/network/relu/Relu_nchwc", kind="Conv", seconds=1.0),  # the first convolution with its activation
        Step(name="/network/down/Conv", kind="Conv", seconds=0.5),
        Step(name="/network/relu_1/Relu", kind="FusedConv", seconds=2.0),  # the second, with the sum
        Step(name="/network/Add", kind="Add", seconds=0.25),
        Step(name="ReorderOutput", kind="ReorderOutput", seconds=0.25),
        Step(name="output", kind="FullyConnected", seconds=0.1),
    ]
    found = attributed(steps, calls)
    assert [(one.layer, one.flops, one.moved) for one in found] == [
        ("network.conv1", 100, 10),
        ("network.down", 50, 5),
        ("network.conv2", 200, 20),
        ("network", 0, 6),
        ("ReorderOutput", None, None),
        ("network.head", 30, 3),
    ]


def test_a_layer_that_is_called_twice_has_the_work_of_each_call():
    calls = [Call("network.head", "convolution 3x3", 400.0, 40.0), Call("network.head", "convolution 3x3", 100.0, 10.0)]
    steps = [Step(name=f"/network/{name}/Conv", kind="Conv", seconds=1.0) for name in ("head", "head_1")]
    assert [one.flops for one in attributed(steps, calls)] == [400, 100]

"""Tests of grouping timed operators and of their comparison with the machine's roofline."""

from __future__ import annotations

import pytest

from tessera.inference.attribution.engine_nodes import NodeOrigin, attribute_nodes, find_origin, format_scope
from tessera.inference.attribution.measure import (
    INT8_NOTE,
    NO_ROOFLINE_NOTE,
    OperatorAttribution,
    Roofline,
    TimedOperator,
    explain_missing_roofline,
    format_difference,
    group_operators,
)
from tessera.inference.attribution.torch_hooks import HookedCall
from tessera.inference.engines.engine import OperatorTime


def make_operator(kind: str, seconds: float, flops: float | None = None, moved: float | None = None) -> TimedOperator:
    return TimedOperator(layer=f"of {kind}", kind=kind, seconds=seconds, flops=flops, moved=moved)


def test_the_roofline_time_is_the_maximum_of_compute_and_memory_time():
    least = Roofline(flops=100.0, bandwidth=10.0)
    (busy,) = group_operators([make_operator("conv", 4.0, flops=200.0, moved=5.0)], "kind", least)
    (moving,) = group_operators([make_operator("relu", 4.0, flops=0.0, moved=20.0)], "kind", least)
    assert (busy.roofline, moving.roofline) == (0.5, 0.5)


def test_operators_without_flops_are_excluded_from_the_roofline_share():
    least = Roofline(flops=100.0, bandwidth=10.0)
    both = [make_operator("conv", 1.0, flops=100.0, moved=0.0), make_operator("conv", 9.0)]
    (share,) = group_operators(both, "kind", least)
    assert share.roofline == pytest.approx(1.0)
    assert share.flops == 100.0
    (unknown,) = group_operators([make_operator("Reorder", 1.0)], "kind", least)
    assert (unknown.roofline, unknown.flops, unknown.moved) == (None, None, None)


def test_operators_without_bytes_have_flops_but_no_roofline():
    (share,) = group_operators(
        [make_operator("QLinearConv", 1.0, flops=100.0)] * 2, "kind", Roofline(flops=100.0, bandwidth=10.0)
    )
    assert (share.flops, share.moved, share.roofline) == (200.0, None, None)


def test_a_missing_roofline_is_explained_in_a_note():
    known, least = [make_operator("conv", 1.0, flops=1.0, moved=1.0)], Roofline(flops=100.0, bandwidth=10.0)
    assert explain_missing_roofline(known, least, "32.32") == ()
    assert explain_missing_roofline(known, None, "32.32") == (NO_ROOFLINE_NOTE,)
    assert explain_missing_roofline(known, least, "int8") == (INT8_NOTE,)
    assert explain_missing_roofline([make_operator("Conv", 1.0)], None, "32.32") == ()


def test_the_note_explains_the_difference_of_sum_and_whole():
    few = OperatorAttribution(operators=(make_operator("conv", 0.9),), whole=1.0)
    many = OperatorAttribution(operators=(make_operator("conv", 1.2),), whole=1.0)
    assert "operators 900 ms of 1.00 s for the whole batch: 10.0% is between operators" in format_difference(few)
    assert "exceeds the time between operators by 20.0%" in format_difference(many)


def test_a_node_belongs_to_the_layer_that_its_name_starts_with():
    paths = ("network.layer1.0", "network.layer1.0.conv1", "network.layer1.0.conv10", "network.layer1.0.relu")
    places = {format_scope(path): [number] for number, path in enumerate(paths)}

    def find_layer(node: str) -> tuple[str, int] | None:
        result = find_origin(node, places)
        return result and (paths[places[result.scope][0]], result.call_number)

    assert find_layer("/network/layer1/layer1.0/conv1/Conv_nchwc") == ("network.layer1.0.conv1", 0)
    assert find_layer("/network/layer1/layer1.0/conv10/Conv/WithoutBiases") == ("network.layer1.0.conv10", 0)
    assert find_layer("/network/layer1/layer1.0/relu_2/Relu") == ("network.layer1.0.relu", 2)
    assert find_layer("/network/layer1/layer1.0/Add") == ("network.layer1.0", 0)
    assert find_layer("ReorderInput") is None
    assert find_origin("/network/layer1/layer1.0/relu/Relu", places) == NodeOrigin(
        format_scope("network.layer1.0.relu"), 0
    )


def test_the_flops_of_a_call_are_attributed_to_the_node_that_computes_it():
    calls = [
        HookedCall("network.conv1", "convolution 3x3", 100.0, 10.0),
        HookedCall("network.relu", "relu_", 0.0, 4.0),
        HookedCall("network.conv2", "convolution 3x3", 200.0, 20.0),
        HookedCall("network.down", "convolution 1x1", 50.0, 5.0),
        HookedCall("network", "add", 0.0, 6.0),
        HookedCall("network.relu", "relu_", 0.0, 4.0),
        HookedCall("network.head", "addmm", 30.0, 3.0),
    ]
    steps = [
        OperatorTime(
            name="/network/relu/Relu_nchwc", kind="Conv", seconds=1.0
        ),  # the first convolution, fused with its activation
        OperatorTime(name="/network/down/Conv", kind="Conv", seconds=0.5),
        OperatorTime(name="/network/relu_1/Relu", kind="FusedConv", seconds=2.0),  # second conv, fused with the sum
        OperatorTime(name="/network/Add", kind="Add", seconds=0.25),
        OperatorTime(name="ReorderOutput", kind="ReorderOutput", seconds=0.25),
        OperatorTime(name="output", kind="FullyConnected", seconds=0.1),
    ]
    result = attribute_nodes(steps, calls)
    assert [(one.layer, one.flops, one.moved) for one in result] == [
        ("network.conv1", 100, 10),
        ("network.down", 50, 5),
        ("network.conv2", 200, 20),
        ("network", 0, 6),
        ("ReorderOutput", None, None),
        ("network.head", 30, 3),
    ]


def test_a_layer_called_twice_has_the_flops_of_each_call():
    calls = [
        HookedCall("network.head", "convolution 3x3", 400.0, 40.0),
        HookedCall("network.head", "convolution 3x3", 100.0, 10.0),
    ]
    steps = [OperatorTime(name=f"/network/{name}/Conv", kind="Conv", seconds=1.0) for name in ("head", "head_1")]
    assert [one.flops for one in attribute_nodes(steps, calls)] == [400, 100]

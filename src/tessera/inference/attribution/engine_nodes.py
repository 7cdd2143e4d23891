"""Replica side of `--by-operator`: time a network's operators, and match an engine's nodes with the network's calls.

An engine times the graph that it runs, in which operators are fused and reordered. The name of an exported node gives
its layer (`/layer1/layer1.0/conv1/Conv` belongs to `layer1.0.conv1`, `/layer1/layer1.0/relu_1/Relu` to the second call
of `layer1.0.relu`), and engines keep the name of one of the nodes that they fuse. A convolution with the name of the
activation after it is matched with the nearest earlier convolution that has no node of its own."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tessera.errors import Refused
from tessera.inference.attribution.measure import TimedOperator
from tessera.inference.attribution.torch_hooks import TIMED_PASSES, HookedCall, describe_operators, time_operators
from tessera.inference.engines import ENGINES, format_matching_engines
from tessera.inference.engines.engine import OperatorTime
from tessera.inference.replicas.replica_worker import get_network
from tessera.launch.worker import Worker

# Kinds of nodes that do most of the FLOPs, in the names of all engines.
HEAVY_NODE_KIND = re.compile("conv|gemm|matmul|fullyconnected", re.IGNORECASE)
REPEATED_CALL_NAME = re.compile(r"(.+)_(\d+)")  # name of the second or a later call of a layer

CallsByScope = Mapping[str, Sequence[int]]  # the indices of a layer's calls, by the scope of the layer


@dataclass(frozen=True, slots=True)
class NodeOrigin:
    """The origin of a node: the scope of its layer, and the number of the call of that layer (0: first)."""

    scope: str
    call_number: int


def format_scope(path: str) -> str:
    """Return the path of a layer in the notation of exported nodes: a numbered child repeats the name of its parent.

    >>> format_scope("network.layer1.0.downsample.0")
    '/network/layer1/layer1.0/downsample/downsample.0/'
    """
    parts: list[str] = []
    for part in path.split("."):
        parts.append(f"{parts[-1]}.{part}" if part.isdigit() and parts else part)
    return "".join(f"/{part}" for part in parts) + "/"


def find_origin(node: str, calls_by_scope: CallsByScope) -> NodeOrigin | None:
    """Return the layer whose scope is the longest prefix of the node's name, or None if no layer matches."""
    parts = node.strip("/").split("/")
    for end in range(len(parts), 0, -1):
        parents, last = "/".join(["", *parts[: end - 1]]), parts[end - 1]
        if f"{parents}/{last}/" in calls_by_scope:
            return NodeOrigin(f"{parents}/{last}/", 0)
        again = REPEATED_CALL_NAME.fullmatch(last)
        if again and f"{parents}/{again[1]}/" in calls_by_scope:
            return NodeOrigin(f"{parents}/{again[1]}/", int(again[2]))
    return None


def attribute_nodes(nodes: Sequence[OperatorTime], calls: Sequence[HookedCall]) -> list[TimedOperator]:
    """Return an engine's nodes as operators of the network's layers, with the FLOPs and bytes of the matching calls."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for number, call in enumerate(calls):
        numbers[format_scope(call.layer)].append(number)
    origins = [find_origin(node.name, numbers) for node in nodes]
    matches = _match_calls(nodes, origins, numbers, calls)
    return [
        TimedOperator(
            layer=calls[number].layer if number is not None else node.name,
            kind=node.kind,
            seconds=node.seconds,
            flops=calls[number].flops if number is not None else None,
            moved=calls[number].moved if number is not None else None,
        )
        for node, number in zip(nodes, matches, strict=True)
    ]


def _match_calls(
    nodes: Sequence[OperatorTime],
    origins: Sequence[NodeOrigin | None],
    calls_by_scope: CallsByScope,
    calls: Sequence[HookedCall],
) -> list[int | None]:
    """Return the index of the call that each node computes, or None if it is unknown."""
    heavy = [bool(HEAVY_NODE_KIND.search(node.kind)) for node in nodes]
    matches = [
        _match_own_call(origin, calls_by_scope, calls, heavy=is_heavy) if origin is not None else None
        for origin, is_heavy in zip(origins, heavy, strict=True)
    ]
    free = [number for number, call in enumerate(calls) if call.flops and number not in matches]
    for index, origin in enumerate(origins):  # a fused node: take the nearest earlier unmatched call
        if matches[index] is None and heavy[index] and origin is not None:
            before = [number for number in free if number < _get_call_index(origin, calls_by_scope)]
            if before:
                matches[index] = before[-1]
                free.remove(before[-1])
    nameless = [index for index, number in enumerate(matches) if number is None and heavy[index]]
    if len(nameless) == len(free):  # an engine may name the last node after the network's output
        for index, number in zip(nameless, free, strict=True):
            matches[index] = number
    return matches


def _match_own_call(
    origin: NodeOrigin, calls_by_scope: CallsByScope, calls: Sequence[HookedCall], *, heavy: bool
) -> int | None:
    """Return the index of the call of the node's layer, or None if it is ambiguous.

    A heavy node (convolution or matrix product) matches a call with FLOPs, any other node the only call of its layer.
    """
    layer_calls = calls_by_scope[origin.scope]
    if heavy:
        working = [number for number in layer_calls if calls[number].flops]
        return working[min(origin.call_number, len(working) - 1)] if working else None
    return layer_calls[0] if len(layer_calls) == 1 else None


def _get_call_index(origin: NodeOrigin, calls_by_scope: CallsByScope) -> int:
    """Return the index of the call of a node's layer among all calls of the network."""
    layer_calls = calls_by_scope[origin.scope]
    return layer_calls[min(origin.call_number, len(layer_calls) - 1)]


def time_by_operator(worker: Worker, name: str) -> tuple[list[TimedOperator], str]:
    """Return the operators of a forward pass with their times, and the name of the timing method."""
    network = get_network(name)
    opened, engine = network.opened, network.settings.engine
    entry = ENGINES[engine]
    if not entry.operator_times:
        alternatives = format_matching_engines(lambda entry: bool(entry.operator_times))
        raise Refused(f"{entry.title} does not report the time of each operator", do=f"use --engine {alternatives}")
    batch = network.feed.next_batch()
    if entry.operator_times == "hooks":
        from tessera.inference.engines.pytorch import place_module

        module = place_module(opened.deployment.module, opened.device, opened.session.layout)
        operators = time_operators(module, batch, device=opened.device)
        return operators, "hooks around every operator of torch, in place"
    nodes = opened.session.profile(batch, TIMED_PASSES)
    if opened.deployment.network.file is not None:  # an ONNX file has no torch layers
        return attribute_nodes(nodes, ()), f"{engine} itself"
    deployment, int8 = opened.deployment, network.settings.precision == "int8"
    module = deployment.float32_module if int8 else deployment.module
    calls = describe_operators(module, deployment.make_zeros(network.settings.batch_size))
    operators = attribute_nodes(nodes, calls)
    if int8:  # only the engine knows which tensors it stores in 8 bits
        operators = [replace(operator, moved=None) for operator in operators]
    return operators, f"{engine} itself"

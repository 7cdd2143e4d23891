"""Replica side of `--by-operator`: time the operators of a loaded network."""

from __future__ import annotations

from dataclasses import replace

import torch

from tessera.errors import Refused
from tessera.inference.attribution.engine_nodes import attribute_nodes
from tessera.inference.attribution.shares import TimedOperator
from tessera.inference.attribution.torch_hooks import TIMED_PASSES, describe_operators, time_operators
from tessera.inference.engines import ENGINES, format_matching_engines
from tessera.inference.replicas.replica_worker import ReadyNetwork, get_network
from tessera.launch.worker import Worker


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
        return time_operators(opened.deployment.module, batch), "hooks around every operator of torch, in place"
    nodes = opened.session.profile(batch, TIMED_PASSES)
    if opened.deployment.network.file is not None:  # an ONNX file has no torch layers
        return attribute_nodes(nodes, ()), f"{engine} itself"
    operators = attribute_nodes(nodes, describe_operators(_get_module(network), _make_image(network)))
    if network.settings.precision == "int8":  # only the engine knows which tensors it stores in 8 bits
        operators = [replace(operator, moved=None) for operator in operators]
    return operators, f"{engine} itself"


def _get_module(network: ReadyNetwork) -> torch.nn.Module:
    """Return the torch module whose calls correspond to the engine's nodes: for int8 the float32 module."""
    deployment = network.opened.deployment
    return deployment.float32_module if network.settings.precision == "int8" else deployment.module


def _make_image(network: ReadyNetwork) -> torch.Tensor:
    deployment = network.opened.deployment
    shape = deployment.compute_input_shape(network.settings.batch_size)
    return torch.zeros(shape, dtype=getattr(torch, deployment.pixels.dtype))

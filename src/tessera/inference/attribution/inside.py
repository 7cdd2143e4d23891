"""Inside a replica: the time of every operator of the network that is ready there."""

from __future__ import annotations

from dataclasses import replace

import torch

from tessera.errors import Refused
from tessera.inference.attribution.in_place import REPEATS, described, in_place
from tessera.inference.attribution.nodes import attributed
from tessera.inference.attribution.shares import Operator
from tessera.inference.replicas.inside import Ready, ready
from tessera.launch.worker import Worker

IN_PLACE = ("torch-eager", "torch-channels-last")


def by_operator(worker: Worker, name: str) -> tuple[list[Operator], str]:
    """Every operator of a pass with its time, and who took it: hooks around torch's operators, or the engine itself."""
    one = ready(name)
    opened, engine = one.opened, one.settings.engine
    if engine == "torch-compile":
        raise Refused("compiled kernels are of several layers at once", do="use --engine torch-channels-last")
    batch = one.feed.next()
    if engine in IN_PLACE:
        return in_place(opened.deployment.module, batch), "hooks around every operator of torch, in place"
    steps = opened.session.profile(batch, REPEATS)
    if opened.deployment.network.file is not None:  # a file has no layers of torch to be held against
        return attributed(steps, ()), f"{engine} itself"
    calls = described(_module(one), _image(one))
    operators = attributed(steps, calls)
    if one.settings.precision == "int8":  # which of its tensors the engine keeps in eight bits, only it knows
        operators = [replace(operator, moved=None) for operator in operators]
    return operators, f"{engine} itself"


def _module(one: Ready) -> torch.nn.Module:
    """The network in torch that makes the calls which an engine's steps are of; in int8 torch has none."""
    deployment = one.opened.deployment
    return deployment.wide if one.settings.precision == "int8" else deployment.module


def _image(one: Ready) -> torch.Tensor:
    deployment = one.opened.deployment
    return torch.zeros(deployment.input_shape(one.settings.batch_size), dtype=getattr(torch, deployment.pixels.element))

"""Inside a replica: the time of every operator of the network that is ready there."""

from __future__ import annotations

import torch

from tessera.errors import Refused
from tessera.inference.attribution.in_place import REPEATS, described, in_place
from tessera.inference.attribution.nodes import attributed
from tessera.inference.attribution.shares import Operator
from tessera.inference.replicas.inside import ready
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
    shape, element = opened.deployment.input_shape(one.settings.batch_size), opened.deployment.pixels.element
    image = torch.zeros(shape, dtype=getattr(torch, element))
    return attributed(steps, described(opened.deployment.module, image)), f"{engine} itself"

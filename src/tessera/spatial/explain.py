"""Explain how a network is computed on a split image: on tiles, with data moved, or whole on every rank."""

from __future__ import annotations

from math import prod

import torch

from tessera.errors import Refused, TesseraError
from tessera.measure.memory_limits import get_available_bytes
from tessera.models import build, build_layers
from tessera.spatial.parallel_model import check_image_size, parallelize
from tessera.spatial.scaling.dry_run import run_dry
from tessera.spatial.tensor.explanation import Explanation
from tessera.transport.in_process import InProcessTransport, run_ranks

MAX_RANKS = 64


def explain_network(
    model: str, image: tuple[int, ...], mesh: tuple[int, ...], *, batch: int = 1, channels: int = 3
) -> Explanation:
    """Run a network once, on shapes alone if possible, and return the explanation of one rank."""
    if prod(mesh) > MAX_RANKS:
        raise TesseraError("too many ranks for one process", got=prod(mesh), allowed=f"{MAX_RANKS} or fewer")
    check_image_size(image, mesh)
    try:
        run = run_dry(build_layers(model), image, mesh, batch=batch, channels=channels, training=False)
    except Refused as error:
        return _explain_with_values(model, (batch, channels, *image), mesh, error)
    return Explanation(run.log, mesh)


def _explain_with_values(model: str, shape: tuple[int, ...], mesh: tuple[int, ...], reason: Refused) -> Explanation:
    """Run a network that needs values on in-process ranks."""
    if prod(shape) * torch.float32.itemsize > get_available_bytes():
        raise reason
    network = build(model).eval()
    image = torch.zeros(shape)

    def run_rank(transport: InProcessTransport) -> Explanation:
        return parallelize(network, mesh, transport=transport, broadcast=False).explain(image)

    try:
        return run_ranks(prod(mesh), run_rank)[0]
    except (RuntimeError, ValueError, TypeError, IndexError):
        raise reason from None

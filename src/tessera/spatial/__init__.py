"""Convolutional networks on images that are cut over ranks: exact, with the borders exchanged as they are needed.

`from tessera.spatial import parallelize` is the way in, `halo_exchange` the one thing that all its layers share; torch
is imported when they are asked for.
"""

from __future__ import annotations

import typing
from importlib import import_module

HOMES = {
    "ParallelModel": "tessera.spatial.network.parallel_model",
    "parallelize": "tessera.spatial.network.parallel_model",
    "halo_exchange": "tessera.spatial.exchange",
}


def __getattr__(name: str) -> typing.Any:
    if name in HOMES:
        return getattr(import_module(HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

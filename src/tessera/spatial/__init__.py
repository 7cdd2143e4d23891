"""Convolutional networks on images that are split over ranks, with halo exchanges where layers need them.

`parallelize` splits the activations of a network; `to_dtensor` and `from_dtensor` convert its tensors; `halo_exchange`
is the differentiable exchange that halo benchmarks use. torch is imported on first use.
"""

from __future__ import annotations

import typing
from importlib import import_module

EXPORTS = {
    "ParallelModel": "tessera.spatial.parallel_model",
    "parallelize": "tessera.spatial.parallel_model",
    "from_dtensor": "tessera.spatial.tensor.dtensors",
    "to_dtensor": "tessera.spatial.tensor.dtensors",
    "halo_exchange": "tessera.spatial.exchange",
}


def __getattr__(name: str) -> typing.Any:
    if name in EXPORTS:
        return getattr(import_module(EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

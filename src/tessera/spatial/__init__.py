"""Convolutional networks on images that are cut over ranks: exact, with the borders exchanged as they are needed.

`from tessera.spatial import parallelize` is the way in; torch is imported when it is asked for.
"""

from __future__ import annotations

import typing


def __getattr__(name: str) -> typing.Any:
    if name in ("ParallelModel", "parallelize"):
        from tessera.spatial.network import parallel_model

        return getattr(parallel_model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

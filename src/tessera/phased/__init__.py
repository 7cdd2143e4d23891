"""Phased execution: weights that do not fit into memory are loaded into working memory phase by phase.

Start with `from tessera.phased import PhasedModel`. Torch is imported when a name is first used.
"""

from __future__ import annotations

import typing

_MODULES = {
    "Event": "tessera.phased.events",
    "MatrixChain": "tessera.phased.chain",
    "Phase": "tessera.phased.plan",
    "PhasedModel": "tessera.phased.model",
    "write_weights": "tessera.phased.weights",
}


def __getattr__(name: str) -> typing.Any:
    if name in _MODULES:
        import importlib

        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

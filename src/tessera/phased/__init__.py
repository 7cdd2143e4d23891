"""Networks whose weights do not fit: weights stay in streaming memory and come into working memory phase by phase.

`from tessera.phased import PhasedModel` is the way in; torch is imported when it is asked for.
"""

from __future__ import annotations

import typing

_MODULES = {
    "Event": "tessera.phased.events",
    "MatrixChain": "tessera.phased.chain",
    "Phase": "tessera.phased.phase",
    "PhasedModel": "tessera.phased.model",
    "WeightStream": "tessera.phased.memory.stream",
    "write_weights": "tessera.phased.writing",
}


def __getattr__(name: str) -> typing.Any:
    if name in _MODULES:
        import importlib

        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

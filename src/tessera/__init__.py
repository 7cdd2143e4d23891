"""Tessera measures, plans and runs convolutional networks that are split over many workers.

The public names are imported when they are first used, so that `import tessera` itself is fast and does not import
torch. Every name below is documented in docs/api.md; `help(tessera.run)` shows the details of one of them.

    time, interleave            time Python callables
    benchmark, cases, run       declare and run cases; every result is stored as a record
    compare, Store              compare two runs; read and write stored runs
    parallelize                 split a network's images over ranks
    PhasedModel                 run a network whose weights do not fit in memory
    plan_conv2d, coregrid       plan and execute convolutions on a grid of cores (drop-in for ttnn)
    infer                       throughput and latency of a whole network
    operators                   every operator of the catalogue as a class, for example tessera.operators.Add
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tessera import coregrid as coregrid
    from tessera import operators as operators
    from tessera.api.inference import infer as infer
    from tessera.api.running import RunResult as RunResult
    from tessera.api.running import cases as cases
    from tessera.api.running import compare as compare
    from tessera.api.running import run as run
    from tessera.api.timing import Timing as Timing
    from tessera.api.timing import interleave as interleave
    from tessera.api.timing import time as time
    from tessera.coregrid.search import plan_conv2d as plan_conv2d
    from tessera.errors import TesseraError as TesseraError
    from tessera.functions.benchmark import benchmark as benchmark
    from tessera.phased.model import PhasedModel as PhasedModel
    from tessera.results.record import Case as Case
    from tessera.results.record import Record as Record
    from tessera.results.store import Store as Store
    from tessera.spatial.parallel_model import parallelize as parallelize

__version__ = "0.1.0"

# Public name -> the module that defines it; a sub-package is its own module.
_MODULES = {
    "Case": "tessera.results.record",
    "PhasedModel": "tessera.phased.model",
    "Record": "tessera.results.record",
    "RunResult": "tessera.api.running",
    "Store": "tessera.results.store",
    "TesseraError": "tessera.errors",
    "Timing": "tessera.api.timing",
    "benchmark": "tessera.functions.benchmark",
    "cases": "tessera.api.running",
    "compare": "tessera.api.running",
    "coregrid": "tessera.coregrid",
    "infer": "tessera.api.inference",
    "interleave": "tessera.api.timing",
    "operators": "tessera.operators",
    "parallelize": "tessera.spatial.parallel_model",
    "plan_conv2d": "tessera.coregrid.search",
    "run": "tessera.api.running",
    "time": "tessera.api.timing",
}
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_MODULES[name])
    value = module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

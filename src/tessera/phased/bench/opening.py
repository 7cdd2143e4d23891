"""From a case to the model that runs it: its schedule, its devices, its store and its budget."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tessera.launch.worker import Worker
from tessera.measure.allocator import ALLOCATORS, current_allocator
from tessera.phased.bench.workload import Workload
from tessera.phased.cases import CHAIN
from tessera.phased.chain import MatrixChain
from tessera.phased.choices import HOLD_ALL
from tessera.phased.model import PhasedModel
from tessera.phased.store.weights_file import tensors_of
from tessera.results.record import Case

SHARE = 4  # the part of the weights that the usual budget has room for is one in so many


def open_model(worker: Worker, case: Case, workload: Workload, path: Path, **instead: Any) -> PhasedModel:
    """The model of a case, its weights in a file; `instead` replaces what the case says.

    Its devices are pinned, and have the allocator setting, as the worker that it is measured in.
    """
    params = case.params
    asked: dict[str, Any] = {
        "schedule": params["schedule"],
        "devices": params["devices"],
        "threads": params.get("threads", 1),
        "workers": params.get("workers", "threads"),
        "store": params.get("store", "disk"),
        "cold": params.get("cold", False),
        "pin": bool(worker.cpus) or worker.spawn == "inline",
        "budget": params.get("budget") or usual_budget(workload, params, path),
        "phases": workload.phases(),
        "activations": params.get("activations"),
        "keep": case.name != CHAIN,  # the chain is there to be streamed
    } | instead
    if asked["workers"] == "processes" and (here := current_allocator()) in ALLOCATORS:
        asked["allocator"] = here
    return PhasedModel(workload.skeleton(), path=path, input_shape=workload.input_shape, **asked)


def warm_up(case: Case) -> None:
    """Run a tiny chain in the same way: the memory that libraries take on first use is not the network's."""
    params = case.params
    how = {name: params[name] for name in ("schedule", "devices", "store") if name in params}
    shape = (1, 8, 8)
    with PhasedModel(MatrixChain(8, 2), input_shape=shape, **how) as tiny:
        tiny(torch.zeros(shape))


def usual_budget(workload: Workload, params: Mapping[str, Any], path: Path) -> int:
    """Room for a quarter of the weights in a file, and at least for what the schedule cannot do without."""
    skeleton = workload.skeleton()
    wanted = skeleton.state_dict()
    everything = sum(tensor.nbytes for name, tensor in tensors_of(path).items() if name in wanted)
    least = PhasedModel.least_budget(
        skeleton,
        schedule=params["schedule"],
        devices=params["devices"],
        workers=params.get("workers", "threads"),
        path=path,
    )
    return max(least, everything // SHARE)


def storage(params: Mapping[str, Any]) -> str:
    """Where the weights are when a pass begins."""
    if params["schedule"] in HOLD_ALL:
        return "in memory"
    words = {"host": "host memory", "mapped": "warm disk, mapped"}
    return words.get(str(params["store"]), "cold disk" if params.get("cold") else "warm disk")

"""Metrics, predictions and notes of a measured case."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tessera.machine.catalogue import load_host
from tessera.machine.cost import compute_time, transfer_time
from tessera.machine.machine import Machine
from tessera.measure.environment import compute_host_fingerprint
from tessera.phased.bench.workload import Workload
from tessera.phased.choices import STORES
from tessera.phased.model import PhasedModel
from tessera.phased.profile.pass_profile import PassProfile
from tessera.phased.traits import ScheduleTraits
from tessera.results.metrics import Metric, make_metrics
from tessera.results.record import Case

MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs", "devtmpfs", "hugetlbfs")


def build_metrics(
    profile: PassProfile, model: PhasedModel, workload: Workload, step_seconds: float
) -> dict[str, Metric]:
    """Return the metrics of a case: rates, ideal time, efficiency, bytes and memory."""
    loaded_bytes, flops = sum(phase.bytes for phase in profile.phases), sum(phase.flops for phase in profile.phases)
    load, compute = sum(phase.load for phase in profile.phases), sum(phase.compute for phase in profile.phases)
    values = {
        "items": workload.items_per_step / step_seconds,
        "phases": len(profile.phases),
        "compute": compute,
        "ideal": profile.ideal,
        "efficiency": profile.ideal / step_seconds,
        "working_memory": model.working_bytes,
        "weights": model.weight_bytes,
    }
    if flops:  # not known for a network with inputs of its own
        values |= {"gflops": flops / step_seconds / 1e9, "flops": flops}
    if loaded_bytes:
        values |= {"bytes": loaded_bytes, "load": load}
    if flops and loaded_bytes:
        values["flops_per_byte"] = flops / loaded_bytes
    if load:
        values["bandwidth"] = loaded_bytes / load / 1e9
    if profile.hidden is not None:
        values["hidden"] = profile.hidden
    return make_metrics(values)


def build_predictions(
    model: PhasedModel, workload: Workload, case: Case, environment: Mapping[str, Any]
) -> dict[str, Metric]:
    """Return predicted metrics; empty if this host is not calibrated for the store or the dtype."""
    host, params = load_host(compute_host_fingerprint(environment)), case.params
    if host is None or workload.input_shape is None:
        return {}
    work = [
        PhaseWork(
            bytes=0 if phase.resident else phase.bytes,
            flops=(phase.flops or 0) * workload.batches,
            read=phase.working_bytes * workload.batches,
        )
        for phase in model.phases
    ]
    prediction = predict_times(
        host,
        work,
        schedule=model.traits,
        dtype=str(workload.compute_dtype).removeprefix("torch."),
        link=STORES[str(params.get("store", "disk"))].get_link(cold=bool(params.get("cold"))),
        devices=model.devices,
        threads=int(params.get("threads", 1)),
        batches=workload.batches,
    )
    if prediction is None:
        return {}
    times = {"time": prediction.time, "compute": prediction.compute}
    if prediction.load:
        times["load"] = prediction.load
    return make_metrics(times)


def build_notes(model: PhasedModel, path: Path, case: Case, workload: Workload) -> list[str]:
    """Return the notes of a record: conditions that affect its metrics."""
    notes = []
    if workload.input_shape is None:
        notes.append("inputs: those of the model's function; --image-size and --batch-size have no effect")
    if model.converts_weights:
        notes.append(f"arithmetic: {model.arithmetic}")
    if model.encoding_errors:
        notes.append(model.describe_encoding_errors())
    resident = sum(phase.resident for phase in model.phases)
    if resident and not model.traits.holds_all_weights:
        notes.append(f"{resident} of {len(model.phases)} phases stay in memory, because they fit into the budget")
    store = STORES.get(str(case.params.get("store")))
    if store is not None and store.can_be_cold and is_in_memory(path):
        notes.append("the weights are on an in-memory file system, not on a disk: set TMPDIR to a directory on a disk")
    return notes


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseWork:
    """Work of one phase in a pass: bytes to load, FLOPs, and bytes of weights read from memory while computing."""

    bytes: float
    flops: float
    read: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedTimes:
    """Predicted seconds: loading all phases, computing all phases, and the whole pass."""

    load: float
    compute: float
    time: float


def predict_times(
    machine: Machine,
    work: Sequence[PhaseWork],
    *,
    schedule: ScheduleTraits,
    dtype: str,
    link: str | None,
    devices: int = 1,
    threads: int = 1,
    batches: int = 1,
) -> PredictedTimes | None:
    """Return the times predicted from the rates of a machine; None if it has no rate for the link or the dtype.

    A `link` of None means that no bytes are copied, as with mapped weights.
    """
    link = None if schedule.holds_all_weights else link
    if dtype not in machine.flops or (link is not None and link not in machine.links):
        return None
    computing = [
        compute_time(
            machine,
            phase.flops,
            phase.read if "global" in machine.links else 0.0,
            dtype,
            workers=schedule.count_computing_devices(devices, batches),
            threads=threads,
        )
        for phase in work
    ]
    loading = [
        transfer_time(phase.bytes, machine.get_link(link)) if link is not None and phase.bytes else 0.0
        for phase in work
    ]
    combine = max if schedule.overlaps_loads else operator.add
    time = sum(map(combine, loading, computing))
    return PredictedTimes(load=sum(loading), compute=sum(computing), time=time)


def get_file_system(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return the type of the file system that holds a file; empty if it is unknown."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    here, mount_point, file_system = path.resolve(), "", ""
    for words in (line.split() for line in lines):
        if len(words) < 3:
            continue
        place = words[1].encode().decode("unicode_escape")  # blanks in a path are written as \040
        if here.is_relative_to(place) and len(place) >= len(mount_point):
            mount_point, file_system = place, words[2]
    return file_system


def is_in_memory(path: Path) -> bool:
    """Return whether a file is on an in-memory file system (such as tmpfs), where reads are never cold."""
    return get_file_system(path) in MEMORY_FILE_SYSTEMS

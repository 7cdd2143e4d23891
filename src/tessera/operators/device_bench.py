"""Measure one operator on an accelerator: times by marks on the device, launch overhead, memory of its allocator."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tessera.device import ComputeDevice, open_device
from tessera.device.failures import explain_failures
from tessera.device.timer import AUTO, DeviceTimer, InFlight
from tessera.errors import Refused
from tessera.launch.worker import Worker
from tessera.measure.environment import describe_environment
from tessera.measure.sampler import sample
from tessera.measure.samples import Sampling
from tessera.operators.metrics import Metrics, compute_rates
from tessera.operators.preparation import PreparedPass, prepare_pass
from tessera.results.metrics import make_metrics, make_time_metrics
from tessera.results.record import Case, Record

LAUNCH_BOUND_NOTE = "launch-bound: the host takes as long to launch a call as the device to run it"


def open_case_device(case: Case) -> ComputeDevice:
    """Open the device of a case; raise `Refused` if it lacks the dtype of the case."""
    import torch

    device = open_device(str(case.params["device"]))
    if not device.supports_dtype(getattr(torch, str(case.params["dtype"]))):
        raise Refused(f"{device.name} does not support the dtype", got=case.params["dtype"])
    return device


def describe_case_device(case: Case) -> str:
    """Return name and model of the accelerator of a case; empty for the CPU (device hook)."""
    return open_device(str(case.params["device"])).describe().label if "device" in case.params else ""


def build_synchronous(case: Case, build: Callable[[Case], Callable[[], Any]]) -> Callable[[], Any]:
    """Build a callable of a case that returns when the device has completed its work."""
    with explain_failures(case.name, str(case.params["device"])):
        device = open_case_device(case)
        call = build(case)

    def run() -> Any:
        result = call()
        device.synchronize()
        return result

    return run


def run_on_device(worker: Worker, case: Case, sampling: Sampling) -> Record:
    """Measure time, launch overhead, memory and rates of one operator on an accelerator."""
    with explain_failures(case.name, str(case.params["device"])):
        device = open_case_device(case)
        prepared = prepare_pass(case)
        memory = measure_device_memory(prepared.call, device)
        before = _build_before_hook(prepared, case, device)
        in_flight: InFlight = case.params.get("in_flight", AUTO)
        timer = DeviceTimer(device, prepared.call, in_flight=in_flight, has_work_before=before is not None)
        samples = sample(prepared.call, sampling, sync=worker.sync, before=before, timer=timer)
        reading, description = device.read_driver(), device.describe()
    environment = describe_environment(device=description.label)
    times = make_time_metrics(samples)
    seconds, count = times["time"].value, len(samples.values)
    rates, predicted = compute_rates(
        prepared.flops, prepared.moved, seconds, dtype=prepared.dtype, environment=environment
    )
    launch = make_metrics({"launch_overhead": timer.compute_launch_seconds(count)})
    notes = [*prepared.notes, *([LAUNCH_BOUND_NOTE] if timer.is_launch_bound(seconds, count) else [])]
    if reading.throttled:
        notes.append(f"{device.name} was throttled: {', '.join(reading.throttled)}")
    return Record(
        case=case,
        version=prepared.version,
        launches=(samples,),
        metrics=times | launch | memory | rates,
        predicted=predicted,
        environment=environment,
        conditions=reading.to_conditions(),
        details={"device": asdict(description)} | ({"output": prepared.output} if prepared.output else {}),
        notes=tuple(notes),
    )


def measure_device_memory(call: Callable[[], Any], device: ComputeDevice) -> Metrics:
    """Measure the device memory that one call occupies at most, including its result.

    The memory of an earlier call may be freed only during this one: the threads of autograd keep their last tensors
    until their next work. The memory without the call is therefore read before it and, without the result, after it.
    """
    import torch
    from torch.utils import _pytree as pytree

    gc.collect()  # tensors in reference cycles would be freed at some moment of the measured call
    device.synchronize()
    before = device.read_memory()
    if before is None:
        return {}
    device.reset_peak_memory()
    result = call()
    device.synchronize()
    after = device.read_memory()
    assert after is not None
    tensors = [value for value in pytree.tree_leaves(result) if isinstance(value, torch.Tensor)]
    storages = {tensor.untyped_storage()._cdata: tensor.untyped_storage().nbytes() for tensor in tensors}
    base = min(before.current, after.current - sum(storages.values()))
    return make_metrics({"peak_allocated": after.peak - base})


def _build_before_hook(prepared: PreparedPass, case: Case, device: ComputeDevice) -> Callable[[], Any] | None:
    """Return the untimed work before each sample: restore overwritten inputs, flush the device's cache if cold."""
    flush = device.flush_cache if case.params.get("cache") == "cold" else None
    steps = [step for step in (prepared.before, flush) if step]
    return (lambda: [step() for step in steps]) if steps else None

"""ONNX Runtime with inputs and outputs bound to preallocated memory, on the CPU or with a provider of an accelerator.

On an accelerator the images are copied when the input is prepared, and the outputs are bound to host memory.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tessera.device import CPU, pick_device
from tessera.errors import Refused, TesseraError
from tessera.inference.data.images import Array, Layout
from tessera.inference.engines.engine import EngineRequest, OperatorTime, SequentialSession, Session
from tessera.inference.networks.loading import BATCH_DIM

# Telemetry would start a thread that reports over the network and does not survive a fork.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

LOG_FATAL_ONLY = 4  # less severe messages are also raised as exceptions
SESSION_ERRORS = (state.Fail, state.InvalidArgument, state.InvalidGraph, state.NotImplemented, state.RuntimeException)

# Execution providers by kind of device, in the order of preference; `cuda` is also torch's name of AMD's devices.
PROVIDERS = {
    "cuda": ("CUDAExecutionProvider", "ROCMExecutionProvider", "MIGraphXExecutionProvider"),
    "tensorrt": ("TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider"),
    "dml": ("DmlExecutionProvider",),
    "coreml": ("CoreMLExecutionProvider",),
}
PACKAGES = {"cuda": "onnxruntime-gpu", "tensorrt": "onnxruntime-gpu and TensorRT", "dml": "onnxruntime-directml"}
CPU_PROVIDER = "CPUExecutionProvider"
COPIED_INPUT = {"cuda": "cuda", "tensorrt": "cuda", "dml": "dml"}  # memory of the images; else the provider copies


def find_provider(device: str) -> str:
    """Return the execution provider of a device; raise an error if this build of ONNX Runtime does not have it."""
    kind, available = device.partition(":")[0], onnxruntime.get_available_providers()
    for provider in PROVIDERS[kind]:
        if provider in available:
            return provider
    package = PACKAGES.get(kind, "a build of onnxruntime with this provider")
    raise TesseraError(
        f"ONNX Runtime has no provider for --device {device}",
        got=", ".join(available),
        allowed=" or ".join(PROVIDERS[kind]),
        do=f"install {package}, or use another --engine",
    )


def check_device(device: str) -> None:
    """Raise an error if this build of ONNX Runtime does not have a provider for a device."""
    find_provider(device)


def choose_providers(request: EngineRequest) -> list[Any]:
    """Return the providers of a session: that of the device, then the CPU for nodes that it does not support."""
    if request.device_choice == CPU:
        return [CPU_PROVIDER]
    provider = find_provider(request.device_choice)
    options = {} if provider == "CoreMLExecutionProvider" else {"device_id": str(get_device_number(request))}
    return [(provider, options), CPU_PROVIDER]


def get_device_number(request: EngineRequest) -> int:
    """Return the number of the device of a replica; a kind without a number is device 0, or torch's device in turns."""
    kind, _, number = request.device_choice.partition(":")
    if number:
        return int(number)
    return int(pick_device("cuda", request.replica).partition(":")[2]) if kind in ("cuda", "tensorrt") else 0


def describe_provider(provider: str, device: str) -> str:
    """Return name and model of the device of a provider, as far as ONNX Runtime tells."""
    hardware = [
        f"{entry.device.vendor} {entry.device.device_id:#x}"
        for entry in getattr(onnxruntime, "get_ep_devices", list)()
        if entry.ep_name == provider
    ]
    return " ".join([device, provider, *dict.fromkeys(hardware)])


def build_session(request: EngineRequest) -> Session:
    """Build an ONNX Runtime session with all graph optimisations for one batch size."""
    deployment, artefacts = request.deployment, request.artefacts
    int8 = deployment.precision.weights == "int8"
    path = artefacts.export_int8(deployment, outputs=True) if int8 else artefacts.export_onnx(deployment)
    try:
        return OnnxSession(path, request, compute="int8" if int8 else "float32")
    except SESSION_ERRORS as error:
        name, precision = deployment.network.name, deployment.precision.name
        raise Refused(f"ONNX Runtime does not run {name} in {precision}: {_extract_reason(error)}") from None


class OnnxSession(SequentialSession):
    """A session of ONNX Runtime."""

    layout: Layout = "NCHW"

    def __init__(self, path: Path, request: EngineRequest, *, compute: str) -> None:
        self.compute, self._path, self._request = compute, path, request
        providers = choose_providers(request)
        self._session = onnxruntime.InferenceSession(str(path), build_session_options(request), providers=providers)
        self._memory, self._number = "cpu", 0
        if request.device_choice != CPU:
            provider, self._number = providers[0][0], get_device_number(request)
            kind = request.device_choice.partition(":")[0]
            if self._session.get_providers()[0] != provider:  # ONNX Runtime continues without a provider that fails
                raise Refused(f"ONNX Runtime could not start {provider} on {request.device_choice}")
            self._memory = COPIED_INPUT.get(kind, "cpu")
            self.device = describe_provider(provider, f"{kind}:{self._number}")
        (images,) = self._session.get_inputs()
        self._name = images.name
        self._binding = self._session.io_binding()
        deployment = request.deployment
        zeros = np.zeros(deployment.compute_input_shape(request.batch_size), deployment.pixels.dtype)
        self._bound: Any = self.prepare_input(zeros)
        self._binding.bind_ortvalue_input(self._name, self._bound)
        outputs = [output.name for output in self._session.get_outputs()]
        for name in outputs:
            self._binding.bind_output(name)
        self._session.run_with_iobinding(self._binding)  # the output shapes are known only after a run
        self._outputs = tuple(np.empty_like(value.numpy()) for value in self._binding.get_outputs())
        for name, array in zip(outputs, self._outputs, strict=True):
            self._binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))

    def prepare_input(self, batch: Array) -> Any:
        return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(batch), self._memory, self._number)

    def run(self, inputs: Any) -> tuple[Array, ...]:
        if inputs is not self._bound:
            self._binding.bind_ortvalue_input(self._name, inputs)
            self._bound = inputs
        self._session.run_with_iobinding(self._binding)
        return self._outputs

    def read_outputs(self, result: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(array.astype(np.float32, copy=False) for array in result)

    def profile(self, inputs: Any, repeats: int) -> list[OperatorTime]:
        # A second session, because profiling slows a session down.
        options = build_session_options(self._request)
        options.enable_profiling = True
        options.profile_file_prefix = str(self._request.artefacts.folder / "profile")
        session = onnxruntime.InferenceSession(str(self._path), options, providers=choose_providers(self._request))
        images = {self._name: inputs.numpy()}
        for _ in range(repeats + 1):  # the first run is a warm-up
            session.run(None, images)
        trace = Path(session.end_profiling())
        try:
            return read_trace(trace, repeats)
        finally:
            trace.unlink()

    def close(self) -> None:
        del self._binding, self._session


def build_unoptimised(path: Path) -> Callable[[Array], tuple[Array, ...]]:
    """Return a function that runs an ONNX file without graph optimisations: the reference for optimised sessions."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = LOG_FATAL_ONLY
    session = onnxruntime.InferenceSession(str(path), options, providers=[CPU_PROVIDER])
    name = session.get_inputs()[0].name
    return lambda batch: tuple(array.astype(np.float32, copy=False) for array in session.run(None, {name: batch}))


def build_session_options(request: EngineRequest) -> Any:
    """Return ONNX Runtime options that set the threads, fix the batch size, and log fatal errors only."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = request.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = LOG_FATAL_ONLY
    options.add_free_dimension_override_by_name(BATCH_DIM, request.batch_size)
    return options


def read_trace(trace: Path, repeats: int) -> list[OperatorTime]:
    """Return the operators of a trace in execution order, with their mean seconds over the last `repeats` runs."""
    durations: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in json.loads(trace.read_text()):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            node = event["name"].removesuffix("_kernel_time"), event["args"]["op_name"]
            durations[node].append(event["dur"] / 1e6)
    return [
        OperatorTime(name=name, kind=kind, seconds=sum(seconds[-repeats:]) / repeats)
        for (name, kind), seconds in durations.items()
    ]


def _extract_reason(error: Exception) -> str:
    """Return the text of an ONNX Runtime error on one line, without its error codes."""
    return " ".join(str(error).rpartition(" : ")[2].split())

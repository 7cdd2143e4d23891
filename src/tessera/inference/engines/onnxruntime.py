"""ONNX Runtime on the CPU, with inputs and outputs bound to preallocated memory."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tessera.errors import Refused
from tessera.inference.data.images import Array, Layout
from tessera.inference.engines.engine import EngineRequest, OperatorTime, SequentialSession, Session
from tessera.inference.networks.loading import BATCH_DIM

# Telemetry would start a thread that reports over the network and does not survive a fork.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

LOG_FATAL_ONLY = 4  # less severe messages are also raised as exceptions
SESSION_ERRORS = (state.Fail, state.InvalidArgument, state.InvalidGraph, state.NotImplemented, state.RuntimeException)


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
        self._session = onnxruntime.InferenceSession(
            str(path), build_session_options(request), providers=["CPUExecutionProvider"]
        )
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
        return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(batch))

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
        session = onnxruntime.InferenceSession(str(self._path), options, providers=["CPUExecutionProvider"])
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
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
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

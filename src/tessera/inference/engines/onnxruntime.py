"""ONNX Runtime on the CPU: inputs bound where they lie, outputs written where they are read."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tessera.errors import Refused
from tessera.inference.arrays import Array
from tessera.inference.engines.engine import Layout, OneAtATime, Request, Session, Step
from tessera.inference.networks.onnx_files import BATCH

# otherwise it would tell of its use over the network, from a thread that no fork keeps
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

FATAL = 4  # the severity that is logged: all below is raised as well
ERRORS = (state.Fail, state.InvalidArgument, state.InvalidGraph, state.NotImplemented, state.RuntimeException)


class OnnxRuntime:
    """ONNX Runtime with all optimisations of graphs, for batches of one size."""

    def preload(self) -> None:
        pass  # this module imports everything; sessions, which start threads, are made in the forked process

    def build(self, request: Request) -> Session:
        deployment, int8 = request.deployment, request.deployment.precision.weights == "int8"
        path = request.artefacts.quantised(deployment, outputs=True) if int8 else request.artefacts.onnx(deployment)
        try:
            return OnnxSession(path, request, compute="int8" if int8 else "float32")
        except ERRORS as error:
            name = deployment.network.name
            raise Refused(
                f"ONNX Runtime does not run {name} in {deployment.precision.name}: {_reason(error)}"
            ) from None


class OnnxSession(OneAtATime):
    """A network at work in ONNX Runtime."""

    layout: Layout = "NCHW"

    def __init__(self, path: Path, request: Request, *, compute: str) -> None:
        self.compute, self._path, self._request = compute, path, request
        self._session = onnxruntime.InferenceSession(
            str(path), session_options(request), providers=["CPUExecutionProvider"]
        )
        (images,) = self._session.get_inputs()
        self._name = images.name
        self._binding = self._session.io_binding()
        deployment = request.deployment
        zeros = np.zeros(deployment.input_shape(request.batch_size), deployment.pixels.element)
        self._bound: Any = self.input(zeros)
        self._binding.bind_ortvalue_input(self._name, self._bound)
        outputs = [output.name for output in self._session.get_outputs()]
        for name in outputs:
            self._binding.bind_output(name)
        self._session.run_with_iobinding(self._binding)  # only now is the shape of every output known
        self._outputs = tuple(np.empty_like(value.numpy()) for value in self._binding.get_outputs())
        for name, array in zip(outputs, self._outputs, strict=True):
            self._binding.bind_ortvalue_output(name, onnxruntime.OrtValue.ortvalue_from_numpy(array))

    def input(self, batch: Array) -> Any:
        return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(batch))

    def run(self, held: Any) -> tuple[Array, ...]:
        if held is not self._bound:
            self._binding.bind_ortvalue_input(self._name, held)
            self._bound = held
        self._session.run_with_iobinding(self._binding)
        return self._outputs

    def outputs(self, result: tuple[Array, ...]) -> tuple[Array, ...]:
        return tuple(array.astype(np.float32, copy=False) for array in result)

    def profile(self, held: Any, repeats: int) -> list[Step]:
        """A second session measures: one that measures is slower."""
        options = session_options(self._request)
        options.enable_profiling = True
        options.profile_file_prefix = str(self._request.artefacts.folder / "profile")
        session = onnxruntime.InferenceSession(str(self._path), options, providers=["CPUExecutionProvider"])
        images = {self._name: held.numpy()}
        for _ in range(repeats + 1):  # the first one warms up
            session.run(None, images)
        trace = Path(session.end_profiling())
        try:
            return steps_of_trace(trace, repeats)
        finally:
            trace.unlink()

    def close(self) -> None:
        del self._binding, self._session


def unoptimised(path: Path) -> Callable[[Array], tuple[Array, ...]]:
    """The network of a file just as it stands there: what optimised ones are held against."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = FATAL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda batch: tuple(array.astype(np.float32, copy=False) for array in session.run(None, {name: batch}))


def session_options(request: Request) -> Any:
    """Threads as asked for, the batch built in, nothing logged that is raised as well."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = request.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = FATAL
    options.add_free_dimension_override_by_name(BATCH, request.batch_size)
    return options


def steps_of_trace(trace: Path, repeats: int) -> list[Step]:
    """The operators of a trace in the order in which they ran, with their mean seconds over the last so many runs."""
    durations: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in json.loads(trace.read_text()):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            node = event["name"].removesuffix("_kernel_time"), event["args"]["op_name"]
            durations[node].append(event["dur"] / 1e6)
    return [
        Step(name=name, kind=kind, seconds=sum(seconds[-repeats:]) / repeats)
        for (name, kind), seconds in durations.items()
    ]


def _reason(error: Exception) -> str:
    """The words of an ONNX Runtime error without its codes, in one line."""
    return " ".join(str(error).rpartition(" : ")[2].split())

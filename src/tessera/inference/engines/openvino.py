"""OpenVINO on the CPU, with its threads and streams told, and left where the process is pinned."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tessera.errors import Refused
from tessera.inference.arrays import Array
from tessera.inference.engines.engine import Done, Layout, Request, Session, Step

# OpenVINO does without this package, which would tell of its import over the network, from a thread that no fork keeps
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

import openvino  # noqa: E402

HINTS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "f32"}  # int8 is in the file


class OpenVino:
    """OpenVINO for batches of one size."""

    def preload(self) -> None:
        pass  # this module imports everything; the core, which starts threads, is made in the forked process

    def build(self, request: Request) -> Session:
        deployment = request.deployment
        int8 = deployment.precision.weights == "int8"
        path = request.artefacts.quantised(deployment, outputs=False) if int8 else request.artefacts.onnx(deployment)
        try:
            return OpenVinoSession(path, request)
        except RuntimeError as error:
            name, precision = deployment.network.name, deployment.precision.name
            raise Refused(f"OpenVINO does not run {name} in {precision}: {_reason(error)}") from None


class OpenVinoSession:
    """A network at work in OpenVINO."""

    layout: Layout = "NCHW"

    def __init__(self, path: Path, request: Request) -> None:
        self._path, self._request = path, request
        self.compute = request.deployment.precision.compute
        compiled = compiled_model(path, request)
        found = str(compiled.get_property("INFERENCE_PRECISION_HINT").to_string())
        if found != HINTS[self.compute]:
            raise Refused(f"OpenVINO would compute in {found} on this processor", got=request.deployment.precision.name)
        self.depth = request.streams
        self._inference = compiled.create_infer_request()
        self._queue = _queue(compiled, self.depth) if self.depth > 1 else None
        self._bound: Any = None

    def input(self, batch: Array) -> Any:
        return openvino.Tensor(np.ascontiguousarray(batch), shared_memory=True)

    def run(self, held: Any) -> Any:
        if held is not self._bound:
            self._inference.set_input_tensor(held)
            self._bound = held  # a tensor that is set is not kept alive by that
        return self._inference.infer(share_outputs=True)

    def outputs(self, result: Any) -> tuple[Array, ...]:
        return tuple(array.astype(np.float32, copy=False) for array in result.values())

    def submit(self, held: Any, done: Done) -> None:
        if self._queue is None:
            self.run(held)
            done()
        else:
            self._queue.start_async({0: held}, userdata=(done, held), share_inputs=True)

    def drain(self) -> None:
        if self._queue is not None:
            self._queue.wait_all()

    def profile(self, held: Any, repeats: int) -> list[Step]:
        """A second model measures: one that measures is slower."""
        inference = compiled_model(self._path, self._request, PERF_COUNT=True).create_infer_request()
        inference.set_input_tensor(held)
        inference.infer()
        seconds: dict[tuple[str, str], float] = {}
        for _ in range(repeats):
            inference.infer()
            for one in inference.get_profiling_info():
                if one.status == openvino.ProfilingInfo.Status.EXECUTED:
                    node = one.node_name, one.node_type
                    seconds[node] = seconds.get(node, 0.0) + one.real_time.total_seconds()
        return [Step(name=name, kind=kind, seconds=sum_ / repeats) for (name, kind), sum_ in seconds.items()]

    def close(self) -> None:
        self.drain()
        self._queue = None
        del self._inference, self._bound


def compiled_model(path: Path, request: Request, **more: Any) -> Any:
    """The model of a file for batches of one size; its threads stay where the process is pinned."""
    model = core().read_model(str(path))
    model.reshape(list(request.deployment.input_shape(request.batch_size)))
    settings = {
        "PERFORMANCE_HINT": request.hint.upper(),
        "NUM_STREAMS": request.streams,
        "INFERENCE_NUM_THREADS": request.threads,
        "INFERENCE_PRECISION_HINT": HINTS[request.deployment.precision.compute],
        "ENABLE_CPU_PINNING": False,
    }
    return core().compile_model(model, "CPU", {**settings, **more})


@cache
def core() -> Any:
    """OpenVINO's plugins, which start threads: one set in a process, made in the process that uses it."""
    return openvino.Core()


def _queue(compiled: Any, streams: int) -> Any:
    """As many requests as there are streams, each of which tells when it is done."""
    queue = openvino.AsyncInferQueue(compiled, streams)
    queue.set_callback(lambda _, userdata: userdata[0]())
    return queue


def _reason(error: Exception) -> str:
    """The last words of an OpenVINO error, which say what is wrong; those before say where in its source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__

"""OpenVINO on the cores to which the process is pinned, with fixed threads and streams; or on a GPU or an NPU."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tessera.device import CPU
from tessera.errors import Refused, TesseraError
from tessera.inference.data.images import Array, Layout
from tessera.inference.engines.engine import DoneCallback, EngineRequest, OperatorTime, Session

# OpenVINO works without this package, which starts a thread that reports over the network and does not survive a fork.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

import openvino  # noqa: E402

# Values of INFERENCE_PRECISION_HINT by compute dtype; for int8 the exported file itself is quantised.
PRECISION_HINTS = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "int8": "f32"}


def check_device(device: str) -> None:
    """Raise an error if OpenVINO does not find a device such as `gpu:0` or `npu`."""
    find_device(device)


def find_device(choice: str) -> str:
    """Return OpenVINO's name of a device: GPU.0 or GPU for gpu:0; raise an error if it does not exist."""
    kind, _, number = choice.upper().partition(":")
    names = [f"{kind}.{number}"] if number else [kind, f"{kind}.0"]
    names += [kind] if number == "0" else []  # a single device has no number
    available = list(get_core().available_devices)
    for name in names:
        if name in available:
            return name
    raise TesseraError(
        f"OpenVINO finds no device for --device {choice}",
        got=", ".join(available),
        do="install the device's driver and OpenVINO's plugin, or use another --engine",
    )


def build_session(request: EngineRequest) -> Session:
    """Build an OpenVINO session for one batch size."""
    deployment, artefacts = request.deployment, request.artefacts
    int8 = deployment.precision.weights == "int8"
    path = artefacts.export_int8(deployment, outputs=False) if int8 else artefacts.export_onnx(deployment)
    try:
        return OpenVinoSession(path, request)
    except RuntimeError as error:
        name, precision = deployment.network.name, deployment.precision.name
        raise Refused(f"OpenVINO does not run {name} in {precision}: {_extract_reason(error)}") from None


class OpenVinoSession:
    """A session of OpenVINO."""

    layout: Layout = "NCHW"

    def __init__(self, path: Path, request: EngineRequest) -> None:
        self._path, self._request = path, request
        self.compute = request.deployment.precision.compute
        compiled = compile_network(path, request)
        self.device = ""
        if request.device_choice != CPU:
            name = find_device(request.device_choice)
            self.device = f"{request.device_choice} {get_core().get_property(name, 'FULL_DEVICE_NAME')}"
        chosen = str(compiled.get_property("INFERENCE_PRECISION_HINT").to_string())
        if chosen != PRECISION_HINTS[self.compute]:
            raise Refused(
                f"OpenVINO does not support this precision here: it would compute in {chosen}",
                got=request.deployment.precision.name,
                do="choose another --precision",
            )
        self.depth = request.streams
        self._inference = compiled.create_infer_request()
        self._queue = _create_queue(compiled, self.depth) if self.depth > 1 else None
        self._bound: Any = None

    def prepare_input(self, batch: Array) -> Any:
        return openvino.Tensor(np.ascontiguousarray(batch), shared_memory=True)

    def run(self, inputs: Any) -> Any:
        if inputs is not self._bound:
            self._inference.set_input_tensor(inputs)
            self._bound = inputs  # keeps the tensor alive: set_input_tensor does not
        return self._inference.infer(share_outputs=True)

    def read_outputs(self, result: Any) -> tuple[Array, ...]:
        return tuple(array.astype(np.float32, copy=False) for array in result.values())

    def submit(self, inputs: Any, done: DoneCallback) -> None:
        if self._queue is None:
            self.run(inputs)
            done()
        else:
            self._queue.start_async({0: inputs}, userdata=(done, inputs), share_inputs=True)

    def drain(self) -> None:
        if self._queue is not None:
            self._queue.wait_all()

    def profile(self, inputs: Any, repeats: int) -> list[OperatorTime]:
        # A second compiled model, because profiling slows a model down.
        inference = compile_network(self._path, self._request, PERF_COUNT=True).create_infer_request()
        inference.set_input_tensor(inputs)
        inference.infer()
        seconds: dict[tuple[str, str], float] = {}
        for _ in range(repeats):
            inference.infer()
            for node_info in inference.get_profiling_info():
                if node_info.status == openvino.ProfilingInfo.Status.EXECUTED:
                    node = node_info.node_name, node_info.node_type
                    seconds[node] = seconds.get(node, 0.0) + node_info.real_time.total_seconds()
        return [OperatorTime(name=name, kind=kind, seconds=total / repeats) for (name, kind), total in seconds.items()]

    def close(self) -> None:
        self.drain()
        self._queue = None
        del self._inference, self._bound


def compile_network(path: Path, request: EngineRequest, **more: Any) -> Any:
    """Compile an ONNX file for one batch size, with threads only on the cores to which the process is pinned."""
    model = get_core().read_model(str(path))
    model.reshape(list(request.deployment.compute_input_shape(request.batch_size)))
    settings: dict[str, Any] = {
        "PERFORMANCE_HINT": request.hint.upper(),
        "NUM_STREAMS": request.streams,
        "INFERENCE_NUM_THREADS": request.threads,
        "INFERENCE_PRECISION_HINT": PRECISION_HINTS[request.deployment.precision.compute],
        "ENABLE_CPU_PINNING": False,
    }
    if request.device_choice == CPU:
        return get_core().compile_model(model, "CPU", {**settings, **more})
    for name in ("INFERENCE_NUM_THREADS", "ENABLE_CPU_PINNING"):  # properties of the CPU only
        del settings[name]
    return get_core().compile_model(model, find_device(request.device_choice), {**settings, **more})


@cache
def get_core() -> Any:
    """Return the `openvino.Core` of this process, created on first use: it starts threads, which a fork would lose."""
    return openvino.Core()


def _create_queue(compiled: Any, streams: int) -> Any:
    """Create a queue with one inference request per stream that calls `done` after each batch."""
    queue = openvino.AsyncInferQueue(compiled, streams)
    queue.set_callback(lambda _, userdata: userdata[0]())
    return queue


def _extract_reason(error: Exception) -> str:
    """Return the last line of an OpenVINO error, which holds the message; the lines before it name source files."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__

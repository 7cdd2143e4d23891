"""OpenVINO: an operator as a model of one node or a few, compiled for the CPU. Forward only.

What is timed is inference on tensors that were set once and share memory with the arrays. The precision is asked for:
left alone, OpenVINO may compute float32 in bfloat16. It would compute float64 in float32 and is not asked to.
"""

from __future__ import annotations

import sys
from functools import cache

import numpy as np

from tessera.errors import Refused
from tessera.measure.environment import environment
from tessera.operators.arrays import Array
from tessera.operators.backends.backend import Prepared, Request
from tessera.operators.backends.inference_only import as_complex, refuse_what_needs_more, stored, widened_bits

# OpenVINO does without this package, which would tell of its import over the network, from a thread that no fork keeps
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

import openvino  # noqa: E402

from tessera.operators.backends.openvino_graph import FLOATS, Built, build, newest_operators  # noqa: E402


class OpenvinoBackend:
    """OpenVINO on the CPU, with as many threads as the worker has."""

    def preload(self) -> None:
        newest_operators()  # the core, which starts threads, is made in the forked process

    def prepare(self, request: Request, expression: str) -> Prepared:
        refuse_what_needs_more(request, "OpenVINO")
        if request.dtype not in FLOATS:
            raise Refused("OpenVINO would compute in float32", got=request.dtype, allowed=FLOATS)
        kinds = {name: one.kind for name, one in request.inputs.items()}
        arrays = {name: stored(array, kinds[name], request.dtype) for name, array in request.arrays.items()}
        try:
            built = build(expression, arrays, kinds, request.attributes, dtype=request.dtype)
            compiled = compiled_model(built.model, dtype=request.dtype, threads=int(environment()["threads"]))
        except RuntimeError as error:
            raise Refused(f"OpenVINO does not run this in {request.dtype}: {_reason(error)}") from None
        run = Run(compiled, built)
        run()
        return Prepared(call=run, outputs=run.outputs(), gradients={})


class Run:
    """A compiled model whose inputs are set for good; calling it infers."""

    def __init__(self, compiled: openvino.CompiledModel, built: Built) -> None:
        self.compiled, self._inference = compiled, compiled.create_infer_request()
        self.built = built  # a tensor that is set is not kept alive by that
        for number, tensor in enumerate(built.tensors.values()):
            self._inference.set_input_tensor(number, tensor)

    def __call__(self) -> None:
        self._inference.infer(share_outputs=True)

    def outputs(self) -> tuple[Array, ...]:
        """What the last run gave, in types that NumPy has."""
        found = []
        for number, pairs in enumerate(self.built.pairs):
            array = _array(self._inference.get_output_tensor(number))
            found.append(as_complex(array) if pairs else array)
        return tuple(found)


def compiled_model(model: openvino.Model, *, dtype: str, threads: int) -> openvino.CompiledModel:
    """The model ready to run for the shortest time of one inference; its threads stay where the worker is pinned."""
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": FLOATS[dtype],
        "ENABLE_CPU_PINNING": False,
    }
    return _core().compile_model(model, "CPU", settings)


@cache
def _core() -> openvino.Core:
    return openvino.Core()


def _array(tensor: openvino.Tensor) -> Array:
    """An output in a type that NumPy has."""
    if tensor.element_type == openvino.Type.bf16:
        return widened_bits(tensor.data.view(np.uint16))
    return np.array(tensor.data)


def _reason(error: Exception) -> str:
    """The last words of an OpenVINO error, which say what is wrong; those before say where in its source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__

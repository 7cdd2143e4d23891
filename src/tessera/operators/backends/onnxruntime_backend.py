"""ONNX Runtime: an operator as a graph of one node or a few. Forward only.

What is timed is a run on inputs that were bound once, into outputs that lie ready: no conversion, no allocation of
results. Weights are inputs of the graph like any other, so no kernel can repack them before the run; those of the fused
operators are fixed. Constant folding is off; every other optimisation of graphs is on. Where it has no kernel for
float16, ONNX Runtime adds casts to float32 of its own accord, and they are timed; without one for float64 or bfloat16
it refuses.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tessera.errors import Refused
from tessera.measure.environment import environment
from tessera.operators.arrays import Array
from tessera.operators.backends.backend import Prepared, Request
from tessera.operators.backends.inference_only import as_complex, refuse_what_needs_more, stored, widened_bits
from tessera.operators.backends.onnx_graph import Built, build

# otherwise it would tell of its use over the network, from a thread that no fork keeps
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

FATAL = 4  # the severity that is logged: all below is raised as well
OLDEST_OPSET = 18  # the first in which every reduction takes its axes as the tables give them
NOT_THERE = (state.NotImplemented, state.InvalidGraph, onnx.defs.SchemaError, onnx.checker.ValidationError)


class OnnxRuntimeBackend:
    """ONNX Runtime on the CPU, with as many threads as the worker has."""

    def preload(self) -> None:
        pass  # this module imports everything; sessions, which start threads, are made in the forked process

    def prepare(self, request: Request, expression: str) -> Prepared:
        refuse_what_needs_more(request, "ONNX Runtime")
        onnxruntime.set_seed(request.seed)
        kinds = {name: one.kind for name, one in request.inputs.items()}
        arrays = {name: stored(array, kinds[name], request.dtype) for name, array in request.arrays.items()}
        threads, refusal = int(environment()["threads"]), ""
        # kernels lag behind operators: a newer version that only says more about one may have no kernel yet
        for opset in range(newest_opset(), OLDEST_OPSET - 1, -1):
            try:
                built = build(expression, arrays, kinds, request.attributes, opset=opset, dtype=request.dtype)
                run = Run(open_session(built.model, threads=threads), built)
            except NOT_THERE as error:
                refusal = refusal or _reason(error)
                continue
            run()
            return Prepared(call=run, outputs=run.outputs(), gradients={})
        raise Refused(f"ONNX Runtime does not run this in {request.dtype}: {refusal}")


class Run:
    """A session whose inputs and outputs are bound for good; calling it runs the graph."""

    def __init__(self, session: Any, built: Built) -> None:
        graph = built.model.graph
        self.built, self._session, self._binding = built, session, session.io_binding()
        self._elements = {one.name: one.type.tensor_type.elem_type for one in (*graph.input, *graph.output)}
        self._arrays = dict(built.arrays)  # what is bound reads and writes their memory, which has to outlive it
        for name in built.arrays:
            self._binding.bind_ortvalue_input(name, self._shared(name))
        for value in built.outputs:
            self._binding.bind_output(value.name)
        session.run_with_iobinding(self._binding)  # only now is the shape of every output known
        for value, made in zip(built.outputs, self._binding.get_outputs(), strict=True):
            self._arrays[value.name] = np.empty(made.shape(), _storage(self._elements[value.name]))
            self._binding.bind_ortvalue_output(value.name, self._shared(value.name))

    def __call__(self) -> None:
        self._session.run_with_iobinding(self._binding)

    def outputs(self) -> tuple[Array, ...]:
        """What the last run gave, in types that NumPy has."""
        found = []
        for value in self.built.outputs:
            array = self._arrays[value.name]
            if self._elements[value.name] == TensorProto.BFLOAT16:
                array = widened_bits(array)
            found.append(as_complex(array) if value.pairs else array)
        return tuple(found)

    def _shared(self, name: str) -> Any:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(self._arrays[name], self._elements[name])


def open_session(model: onnx.ModelProto, *, threads: int, optimized: str = "") -> Any:
    """A session on the CPU whose waiting threads sleep; `optimized` is a file for the graph that it will run."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = FATAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if optimized:
        options.optimized_model_filepath = optimized
    return onnxruntime.InferenceSession(
        model.SerializeToString(),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["ConstantFolding"],
    )


@cache
def newest_opset() -> int:
    """The newest version of ONNX's operators that both `onnx` and this ONNX Runtime know."""
    newest: int = onnx.defs.onnx_opset_version()
    number = {"data": np.ones(1, np.float32)}
    for opset in range(newest, OLDEST_OPSET - 1, -1):
        probe = build("op.Abs(data)", number, {"data": "float"}, {}, opset=opset, dtype="float32")
        try:
            open_session(probe.model, threads=1)
        except (state.Fail, state.InvalidGraph):
            continue
        return opset
    raise Refused("this ONNX Runtime is too old", got=onnxruntime.__version__, do="pip install -U onnxruntime")


def _storage(element: int) -> np.dtype[Any]:
    return np.dtype(np.uint16) if element == TensorProto.BFLOAT16 else helper.tensor_dtype_to_np_dtype(element)


def _reason(error: Exception) -> str:
    """The words of an ONNX Runtime error without its codes, in one line.

    >>> _reason(Exception("[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : No implementation for Erf(13) node with name ''"))
    'No implementation for Erf(13)'
    """
    return " ".join(str(error).rpartition(" : ")[2].split()).removesuffix(" node with name ''")

"""Backend for ONNX Runtime: an operator is a graph of one or a few nodes. Forward pass only.

The timed call runs the graph on inputs and outputs that are bound once, so it converts no arrays and allocates no
outputs. Weights are graph inputs, so no kernel can repack them before the run; fused operators have constant weights.
Constant folding is off; every other graph optimisation is on. ONNX Runtime inserts casts to float32 where it has no
float16 kernel, and the casts are timed; without a float64 or bfloat16 kernel it raises an error.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from tessera.errors import Refused
from tessera.measure.environment import describe_environment
from tessera.operators.arrays import Array
from tessera.operators.backends.backend import OperatorRequest, PreparedOperator
from tessera.operators.backends.inference_only import pairs_to_complex, refuse_unsupported, widen_bfloat16
from tessera.operators.backends.onnx_graph import OnnxGraph, OnnxModel, build_model

# disable telemetry: it sends data over the network from a thread, which does not exist in a forked process
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as state

LOG_LEVEL_FATAL = 4  # log level: log fatal errors only, because other errors are also raised as exceptions
OLDEST_OPSET = 18  # first opset in which every reduction takes its axes as an input, as our expressions require
UNSUPPORTED_ERRORS = (state.NotImplemented, state.InvalidGraph, onnx.defs.SchemaError, onnx.checker.ValidationError)


class OnnxRuntimeBackend:
    """ONNX Runtime on the CPU, with as many threads as the worker has."""

    def preload(self) -> None:
        pass  # nothing more to import; sessions start threads, so they are created after the fork

    def prepare(self, request: OperatorRequest, expression: str) -> PreparedOperator:
        refuse_unsupported(request, "ONNX Runtime")
        onnxruntime.set_seed(request.seed)
        threads, refusal = int(describe_environment()["threads"]), ""
        # try older opsets too: the newest version of an operator may have no kernel yet
        for opset in range(find_newest_opset(), OLDEST_OPSET - 1, -1):
            try:
                model = build_model(request, expression, opset=opset)
                run = OnnxRuntimeCall(open_session(model.proto, threads=threads), model)
            except UNSUPPORTED_ERRORS as error:
                refusal = refusal or _extract_reason(error)
                continue
            run()
            return PreparedOperator(call=run, outputs=run.read_outputs(), gradients={})
        raise Refused(f"ONNX Runtime does not support {request.operator.name} in {request.dtype}: {refusal}")


class OnnxRuntimeCall:
    """A session with inputs and outputs bound once; calling it runs the graph."""

    def __init__(self, session: Any, model: OnnxModel) -> None:
        graph = model.proto.graph
        self.model, self._session, self._binding = model, session, session.io_binding()
        self._elements = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.output)}
        self._arrays = dict(model.arrays)  # keep the arrays alive: the binding uses their memory without a reference
        for name in model.arrays:
            self._binding.bind_ortvalue_input(name, self._make_ort_value(name))
        for value in model.outputs:
            self._binding.bind_output(value.name)
        session.run_with_iobinding(self._binding)  # run once, because output shapes are known only after a run
        for value, result in zip(model.outputs, self._binding.get_outputs(), strict=True):
            self._arrays[value.name] = np.empty(result.shape(), _get_storage_dtype(self._elements[value.name]))
            self._binding.bind_ortvalue_output(value.name, self._make_ort_value(value.name))

    def __call__(self) -> None:
        self._session.run_with_iobinding(self._binding)

    def read_outputs(self) -> tuple[Array, ...]:
        """Return the outputs of the last run as NumPy arrays; bfloat16 becomes float32."""
        outputs = []
        for value in self.model.outputs:
            array = self._arrays[value.name]
            if self._elements[value.name] == TensorProto.BFLOAT16:
                array = widen_bfloat16(array)
            outputs.append(pairs_to_complex(array) if value.pairs else array)
        return tuple(outputs)

    def _make_ort_value(self, name: str) -> Any:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(self._arrays[name], self._elements[name])


def open_session(model: onnx.ModelProto, *, threads: int, optimized: str = "") -> Any:
    """Open a CPU session whose idle threads sleep instead of spinning.

    If the path `optimized` is set, the session writes its optimised graph to that file.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = LOG_LEVEL_FATAL
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if optimized:
        options.optimized_model_filepath = optimized
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"], disabled_optimizers=["ConstantFolding"]
    )


@cache
def find_newest_opset() -> int:
    """Return the newest operator set that both `onnx` and this ONNX Runtime support."""
    newest: int = onnx.defs.onnx_opset_version()
    for opset in range(newest, OLDEST_OPSET - 1, -1):
        graph = OnnxGraph(opset=opset, dtype="float32")
        output = graph.add_node("Abs", graph.add_input("data", np.ones(1, np.float32), "float"))
        try:
            open_session(graph.build((output,)).proto, threads=1)
        except (state.Fail, state.InvalidGraph):
            continue
        return opset
    raise Refused("this ONNX Runtime is too old", got=onnxruntime.__version__, do="pip install -U onnxruntime")


def _get_storage_dtype(element: int) -> np.dtype[Any]:
    return np.dtype(np.uint16) if element == TensorProto.BFLOAT16 else helper.tensor_dtype_to_np_dtype(element)


def _extract_reason(error: Exception) -> str:
    """Return the message of an ONNX Runtime error in one line, without error codes.

    >>> message = "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : No implementation for Erf(13) node with name ''"
    >>> _extract_reason(Exception(message))
    'No implementation for Erf(13)'
    """
    return " ".join(str(error).rpartition(" : ")[2].split()).removesuffix(" node with name ''")

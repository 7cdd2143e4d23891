"""Backend for OpenVINO: an operator is a model of one or a few nodes, compiled for the CPU. Forward pass only.

OpenVINO converts the ONNX graph of an operator; operators in `NATIVE_EXPRESSIONS` are built from OpenVINO's own nodes.
The timed call runs inference on tensors that are set once and share the memory of the input arrays. The precision is
set explicitly, because by default OpenVINO may compute float32 in bfloat16. It computes float64 in float32, so float64
is refused.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx

from tessera.errors import Refused
from tessera.measure.environment import describe_environment
from tessera.operators.arrays import Array
from tessera.operators.backends.backend import OperatorRequest, PreparedOperator
from tessera.operators.backends.inference_only import pairs_to_complex, refuse_unsupported, store_array, widen_bfloat16
from tessera.operators.backends.onnx_graph import build_model
from tessera.operators.backends.openvino_expressions import NATIVE_EXPRESSIONS
from tessera.operators.expression import bind_expression

# disable telemetry: this package reports the import of OpenVINO over the network from a thread
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

import openvino  # noqa: E402

FLOAT_TYPES = {"float32": openvino.Type.f32, "float16": openvino.Type.f16, "bfloat16": openvino.Type.bf16}
MAX_OPSET = 40  # upper bound of the search: OpenVINO has no list of its opsets, each is a module


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenvinoModel:
    """A model, its input tensors in order, and the outputs that are (real, imaginary) pairs."""

    model: openvino.Model
    tensors: Mapping[str, openvino.Tensor]
    pairs: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenvinoPairs:
    """A result whose last dim holds real and imaginary parts: OpenVINO has no complex numbers."""

    output: Any


class OpenvinoBackend:
    """OpenVINO on the CPU, with as many threads as the worker has."""

    def preload(self) -> None:
        load_operators()  # do not create the OpenVINO core here: it starts threads, which do not survive a fork

    def prepare(self, request: OperatorRequest, expression: str) -> PreparedOperator:
        refuse_unsupported(request, "OpenVINO")
        if request.dtype not in FLOAT_TYPES:
            raise Refused("OpenVINO would compute this dtype in float32", got=request.dtype, allowed=FLOAT_TYPES)
        build = build_native_model if request.operator.name in NATIVE_EXPRESSIONS else convert_onnx_graph
        try:
            built = build(request, expression)
            compiled = compile_model(built.model, dtype=request.dtype, threads=int(describe_environment()["threads"]))
        except (RuntimeError, onnx.checker.ValidationError) as error:
            raise Refused(
                f"OpenVINO does not support {request.operator.name} in {request.dtype}: {_extract_reason(error)}"
            ) from None
        run = OpenvinoCall(compiled, built)
        run()
        return PreparedOperator(call=run, outputs=run.read_outputs(), gradients={})


class OpenvinoCall:
    """A compiled model with inputs set once; calling the object runs inference."""

    def __init__(self, compiled: openvino.CompiledModel, built: OpenvinoModel) -> None:
        self.compiled, self._inference = compiled, compiled.create_infer_request()
        self.built = built  # keep the input tensors alive: the inference request holds no reference
        for number, tensor in enumerate(built.tensors.values()):
            self._inference.set_input_tensor(number, tensor)

    def __call__(self) -> None:
        self._inference.infer(share_outputs=True)

    def read_outputs(self) -> tuple[Array, ...]:
        """Return the outputs of the last run as NumPy arrays; bfloat16 becomes float32."""
        outputs = []
        for number, pairs in enumerate(self.built.pairs):
            array = _to_array(self._inference.get_output_tensor(number))
            outputs.append(pairs_to_complex(array) if pairs else array)
        return tuple(outputs)


def convert_onnx_graph(request: OperatorRequest, expression: str) -> OpenvinoModel:
    """Convert the ONNX graph of an operator to OpenVINO. Recurrent weights are constants, as OpenVINO requires."""
    opset = onnx.defs.onnx_opset_version()
    source = build_model(request, expression, opset=opset, constant_weights=True)
    model = _get_core().read_model(source.proto.SerializeToString())
    return OpenvinoModel(
        model=model,
        tensors={
            port.any_name: _share_memory(source.arrays[port.any_name], port.element_type) for port in model.inputs
        },
        pairs=tuple(value.pairs for value in source.outputs),
    )


def build_native_model(request: OperatorRequest, expression: str) -> OpenvinoModel:
    """Build a model from OpenVINO's own nodes; every input is a model parameter with a fixed shape."""
    op = load_operators()
    real = FLOAT_TYPES[request.dtype]
    tensors = {}
    for name, one in request.inputs.items():
        array = store_array(request.arrays[name], one.kind, request.dtype)
        tensors[name] = _share_memory(array, real if one.kind == "float" else None)
    parameters = {
        name: op.parameter(list(tensor.shape), tensor.element_type, name=name) for name, tensor in tensors.items()
    }
    known = {"np": np, "op": op, "real": lambda number: op.constant(number, real), "complex_pairs": _mark_complex_pairs}
    results = list(_iter_outputs(bind_expression(expression, {**known, **parameters, **request.attributes})()))
    outputs = [op.result(result.output if isinstance(result, OpenvinoPairs) else result) for result in results]
    return OpenvinoModel(
        model=openvino.Model(outputs, list(parameters.values()), "operator"),
        tensors=tensors,
        pairs=tuple(isinstance(result, OpenvinoPairs) for result in results),
    )


def compile_model(model: openvino.Model, *, dtype: str, threads: int) -> openvino.CompiledModel:
    """Compile a model for the lowest latency; its threads run on the CPUs to which the worker process is pinned."""
    settings = {
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": FLOAT_TYPES[dtype],
        "ENABLE_CPU_PINNING": False,
    }
    return _get_core().compile_model(model, "CPU", settings)


@cache
def load_operators() -> SimpleNamespace:
    """Return OpenVINO's operators, each from the newest opset that contains it; new opsets hold few operators."""
    operators: dict[str, Any] = {}
    for version in range(1, MAX_OPSET):
        try:
            operators |= vars(importlib.import_module(f"openvino.opset{version}"))
        except ModuleNotFoundError:
            continue
    return SimpleNamespace(**{name: value for name, value in operators.items() if not name.startswith("_")})


@cache
def _get_core() -> openvino.Core:
    return openvino.Core()


def _mark_complex_pairs(node: Any) -> OpenvinoPairs:
    """Mark a result as (real, imaginary) pairs in its last dim. Expressions call this as `complex_pairs`."""
    return OpenvinoPairs(output=node.output(0))


def _iter_outputs(results: Any) -> Iterator[Any]:
    """Yield every output of a nested expression result; for a node, yield all outputs of the node."""
    if isinstance(results, list | tuple):
        for part in results:
            yield from _iter_outputs(part)
    elif isinstance(results, openvino.Node):
        yield from results.outputs()
    else:
        yield results


def _share_memory(array: Array, element: openvino.Type | None) -> openvino.Tensor:
    """Make an OpenVINO tensor that shares the memory of the array."""
    if element == openvino.Type.bf16:
        return openvino.Tensor(array, openvino.Shape(list(array.shape)), element)
    return openvino.Tensor(array, shared_memory=True)


def _to_array(tensor: openvino.Tensor) -> Array:
    """Copy an output to a NumPy array; bfloat16 becomes float32."""
    if tensor.element_type == openvino.Type.bf16:
        return widen_bfloat16(tensor.data.view(np.uint16))
    return np.array(tensor.data)


def _extract_reason(error: Exception) -> str:
    """Return the last line of an OpenVINO error, which states the cause; earlier lines name OpenVINO's source files."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__

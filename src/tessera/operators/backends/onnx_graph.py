"""Builder of the ONNX graph of an operator from its expression (Python source): `op.Add(lhs, rhs)` adds one node.

Every input of the operator is an input of the graph, weights included, so that no runtime can compute or repack
anything before the run. Only fused operators store their weights as constants, because runtimes fold batch norm only
into constant weights. Python numbers and lists become constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tessera.operators.arrays import Array
from tessera.operators.backends.backend import OperatorRequest
from tessera.operators.backends.inference_only import store_array
from tessera.operators.expression import bind_expression
from tessera.operators.inputs import round_to_dtype

FLOAT_TYPES = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxValue:
    """A value in the graph. `shape` is set for inputs; `pairs` is true for complex numbers as pairs of real numbers."""

    name: str
    shape: tuple[int, ...] | None = None
    pairs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxModel:
    """A checked ONNX model, its input arrays, and its outputs in the order in which the expression returns them."""

    proto: onnx.ModelProto
    arrays: Mapping[str, Array]
    outputs: tuple[OnnxValue, ...]


class OnnxGraph:
    """An ONNX graph to which an expression adds nodes.

    Floating-point constants have the case's `dtype`. `constant_weights` stores recurrent weights as constants, for
    runtimes that do not accept them as inputs.
    """

    def __init__(self, *, opset: int, dtype: str, constant_weights: bool = False) -> None:
        self._opset, self._dtype, self._constant_weights = opset, dtype, constant_weights
        self._inputs: dict[str, onnx.ValueInfoProto] = {}
        self._arrays: dict[str, Array] = {}
        self._constants: list[onnx.TensorProto] = []
        self._nodes: list[onnx.NodeProto] = []

    def list_variables(self) -> dict[str, Any]:
        """Return the variables that an expression may use besides its inputs and attributes."""
        return {
            "np": np,
            "op": OnnxNodes(self),
            "types": TensorProto,
            "element": FLOAT_TYPES[self._dtype],
            "filling": self.make_filling,
            "fixed": self.make_constant,
            "packed": self.pack_weights,
            "complex_pairs": mark_complex_pairs,
        }

    def add_input(self, name: str, array: Array, kind: str) -> OnnxValue:
        """Add an input to the graph, with the shape of `array`."""
        follows_dtype = kind in ("float", "complex")
        element = FLOAT_TYPES[self._dtype] if follows_dtype else helper.np_dtype_to_tensor_dtype(array.dtype)
        self._inputs[name] = helper.make_tensor_value_info(name, element, array.shape)
        self._arrays[name] = array
        return OnnxValue(name=name, shape=array.shape)

    def make_filling(self, number: float) -> onnx.TensorProto:
        """Make the fill value of a new tensor, in the case's dtype. Expressions call this as `filling`."""
        return self._make_float_tensor("filling", np.array([number]))

    def make_constant(self, value: OnnxValue) -> OnnxValue:
        """Turn an input into a constant, like the weights of an exported network. Expressions call this as `fixed`."""
        element = self._inputs.pop(value.name).type.tensor_type.elem_type
        array = self._arrays[value.name]
        self._constants.append(helper.make_tensor(value.name, element, array.shape, array.tobytes(), raw=True))
        return value

    def pack_weights(self, order: Sequence[int], *directions: Sequence[OnnxValue]) -> OnnxValue:
        """Pack recurrent weights of all directions into one input, in ONNX's gate order. `packed` in expressions."""
        rows = []
        for direction in directions:
            parts = [np.split(self._arrays[value.name], len(order)) for value in direction]
            rows.append(np.concatenate([gates[number] for gates in parts for number in order]))
            for value in direction:
                del self._inputs[value.name]
        name = "_".join(value.name for direction in directions for value in direction)
        packed = self.add_input(name, np.stack(rows), "float")
        return self.make_constant(packed) if self._constant_weights else packed

    def add_node(self, kind: str, *inputs: Any, outputs: int | None = None, **attributes: Any) -> Any:
        """Add a node of the ONNX operator `kind`; return its output, or a tuple if there are several.

        `outputs` is the number of outputs (default: the minimum that the ONNX schema allows).
        """
        count = max(1, onnx.defs.get_schema(kind, self._opset).min_output) if outputs is None else outputs
        results = tuple(OnnxValue(name=f"{kind}_{len(self._nodes)}_{number}") for number in range(count))
        names = [self._name_argument(argument) for argument in inputs]
        self._nodes.append(helper.make_node(kind, names, [result.name for result in results], **attributes))
        return results[0] if count == 1 else results

    def build(self, outputs: tuple[OnnxValue, ...]) -> OnnxModel:
        """Return the model with the given outputs, after shape inference and the ONNX checker."""
        graph = helper.make_graph(
            self._nodes,
            "operator",
            list(self._inputs.values()),
            [helper.make_empty_tensor_value_info(output.name) for output in outputs],
            initializer=self._constants,
        )
        opsets = [helper.make_opsetid("", self._opset)]
        version = helper.find_min_ir_version_for(opsets)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=version)
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        onnx.checker.check_model(model)
        return OnnxModel(proto=model, arrays={name: self._arrays[name] for name in self._inputs}, outputs=outputs)

    def _name_argument(self, argument: Any) -> str:
        """Return the name of a node's argument in the graph; the name of an omitted optional input is empty."""
        if isinstance(argument, OnnxValue):
            return argument.name
        return "" if argument is None else self._add_constant(np.asarray(argument))

    def _add_constant(self, array: Array) -> str:
        name = f"constant_{len(self._constants)}"
        is_float = array.dtype.kind == "f"
        self._constants.append(
            self._make_float_tensor(name, array) if is_float else numpy_helper.from_array(array, name)
        )
        return name

    def _make_float_tensor(self, name: str, array: Array) -> onnx.TensorProto:
        # raw bytes, because OpenVINO misreads a bfloat16 tensor that is made from a list of values
        bits = store_array(round_to_dtype(array, self._dtype), "float", self._dtype)
        return helper.make_tensor(name, FLOAT_TYPES[self._dtype], array.shape, bits.tobytes(), raw=True)


class OnnxNodes:
    """The object `op` in expressions: each ONNX operator type is a method that adds a node to the graph."""

    def __init__(self, graph: OnnxGraph) -> None:
        self._graph = graph

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        return partial(self._graph.add_node, kind)


def mark_complex_pairs(value: OnnxValue) -> OnnxValue:
    """Mark a value as (real, imaginary) pairs in its last dim. Expressions call this as `complex_pairs`."""
    return replace(value, pairs=True)


def build_model(request: OperatorRequest, expression: str, *, opset: int, constant_weights: bool = False) -> OnnxModel:
    """Build the ONNX model of an operator for the input arrays of a request."""
    graph = OnnxGraph(opset=opset, dtype=request.dtype, constant_weights=constant_weights)
    values = {
        name: graph.add_input(name, store_array(request.arrays[name], one.kind, request.dtype), one.kind)
        for name, one in request.inputs.items()
    }
    names = {**graph.list_variables(), **values, **request.attributes}
    return graph.build(tuple(_iter_values(bind_expression(expression, names)())))


def _iter_values(results: Any) -> Iterator[OnnxValue]:
    if isinstance(results, list | tuple):
        for part in results:
            yield from _iter_values(part)
    else:
        assert isinstance(results, OnnxValue)
        yield results

"""A small builder of ONNX graphs: in an expression, `op.Add(lhs, rhs)` adds one node.

Every input of the operator is an input of the graph, weights too, so that nothing can be computed or repacked before
the run. Only the fused operators fix their weights: a batch norm is folded into none but known ones. Plain numbers and
lists of Python become constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tessera.operators.arrays import Array
from tessera.operators.expression import bound

FLOATS = {
    "float32": TensorProto.FLOAT,
    "float64": TensorProto.DOUBLE,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """An edge of the graph. `shape` is known for inputs; `pairs` marks complex numbers, which ONNX keeps as pairs."""

    name: str
    shape: tuple[int, ...] | None = None
    pairs: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A checked model, the arrays of its inputs, and its outputs in the order of the expression."""

    model: onnx.ModelProto
    arrays: Mapping[str, Array]
    outputs: tuple[Value, ...]


class Graph:
    """Collects the nodes of one expression; constants that are not whole numbers have the case's `dtype`."""

    def __init__(self, *, opset: int, dtype: str) -> None:
        self._opset, self._float = opset, FLOATS[dtype]
        self._inputs: dict[str, onnx.ValueInfoProto] = {}
        self._arrays: dict[str, Array] = {}
        self._constants: list[onnx.TensorProto] = []
        self._nodes: list[onnx.NodeProto] = []

    def names(self) -> dict[str, Any]:
        """What an expression may use beside its inputs and attributes; `element` is the type of the case's dtype."""
        return {
            "np": np,
            "op": Nodes(self),
            "types": TensorProto,
            "element": self._float,
            "filling": self.filling,
            "fixed": self.fixed,
            "packed": self.packed,
            "complex_pairs": complex_pairs,
        }

    def input(self, name: str, array: Array, kind: str) -> Value:
        """An input of the graph, of the shape that the array has in memory."""
        follows = kind in ("float", "complex")
        element = self._float if follows else helper.np_dtype_to_tensor_dtype(array.dtype)
        self._inputs[name] = helper.make_tensor_value_info(name, element, array.shape)
        self._arrays[name] = array
        return Value(name=name, shape=array.shape)

    def filling(self, number: float) -> onnx.TensorProto:
        """In an expression: what a new tensor is filled with, in the case's dtype."""
        return helper.make_tensor("filling", self._float, [1], [number])

    def fixed(self, value: Value) -> Value:
        """In an expression: an input whose values are part of the graph, as weights of an exported network are."""
        element = self._inputs.pop(value.name).type.tensor_type.elem_type
        array = self._arrays[value.name]
        self._constants.append(helper.make_tensor(value.name, element, array.shape, array.tobytes(), raw=True))
        return value

    def packed(self, order: Sequence[int], *directions: Sequence[Value]) -> Value:
        """In an expression: recurrent weights as ONNX wants them: gates in its order, directions in one input."""
        ways = []
        for direction in directions:
            parts = [np.split(self._arrays[value.name], len(order)) for value in direction]
            ways.append(np.concatenate([gates[number] for gates in parts for number in order]))
            for value in direction:
                del self._inputs[value.name]
        return self.input(
            "_".join(value.name for direction in directions for value in direction), np.stack(ways), "float"
        )

    def node(self, kind: str, *inputs: Any, outputs: int | None = None, **attributes: Any) -> Any:
        """Add one node and give its output, or a tuple when the operator always has several or `outputs` asks."""
        count = max(1, onnx.defs.get_schema(kind, self._opset).min_output) if outputs is None else outputs
        made = tuple(Value(name=f"{kind}_{len(self._nodes)}_{number}") for number in range(count))
        names = [self._name(one) for one in inputs]
        self._nodes.append(helper.make_node(kind, names, [one.name for one in made], **attributes))
        return made[0] if count == 1 else made

    def build(self, outputs: tuple[Value, ...]) -> Built:
        """The model that gives these outputs: types and shapes inferred, then checked."""
        graph = helper.make_graph(
            self._nodes,
            "operator",
            list(self._inputs.values()),
            [helper.make_empty_tensor_value_info(one.name) for one in outputs],
            initializer=self._constants,
        )
        opsets = [helper.make_opsetid("", self._opset)]
        version = helper.find_min_ir_version_for(opsets)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=version)
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        onnx.checker.check_model(model)
        return Built(model=model, arrays={name: self._arrays[name] for name in self._inputs}, outputs=outputs)

    def _name(self, given: Any) -> str:
        """The name of what a node reads; an optional input that is left out has none."""
        if isinstance(given, Value):
            return given.name
        return "" if given is None else self._constant(np.asarray(given))

    def _constant(self, array: Array) -> str:
        name = f"constant_{len(self._constants)}"
        if array.dtype.kind == "f":
            self._constants.append(helper.make_tensor(name, self._float, array.shape, array.ravel().tolist()))
        else:
            self._constants.append(numpy_helper.from_array(array, name))
        return name


class Nodes:
    """The `op` of expressions: every operator type of ONNX is a function that adds its node."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        return partial(self._graph.node, kind)


def complex_pairs(value: Value) -> Value:
    """In an expression: the last dim of this result holds real and imaginary parts."""
    return replace(value, pairs=True)


def build(
    expression: str,
    arrays: Mapping[str, Array],
    kinds: Mapping[str, str],
    attributes: Mapping[str, Any],
    *,
    opset: int,
    dtype: str,
) -> Built:
    """The model of an expression over named arrays of some kinds, and its other arguments."""
    graph = Graph(opset=opset, dtype=dtype)
    values = {name: graph.input(name, array, kinds[name]) for name, array in arrays.items()}
    return graph.build(_flat(bound(expression, {**graph.names(), **values, **attributes})()))


def _flat(results: Any) -> tuple[Value, ...]:
    if isinstance(results, list | tuple):
        return tuple(value for part in results for value in _flat(part))
    assert isinstance(results, Value)
    return (results,)

"""OpenVINO models from expressions: in one, `op` holds OpenVINO's newest operators, as in `op.add(lhs, rhs)`.

Every input is a parameter of the model with a fixed shape, weights too, so that nothing can be computed while the model
is compiled. Only the fused operators fix their weights, because a batch norm is folded into none but known ones, and
the recurrent ones, which have no other.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import openvino

from tessera.operators.arrays import Array
from tessera.operators.expression import bound

FLOATS = {"float32": openvino.Type.f32, "float16": openvino.Type.f16, "bfloat16": openvino.Type.bf16}
NEWEST_THINKABLE = 40  # opsets have no list: they are modules that are there or not
COPIED = False  # a constant that shares memory does not keep it alive


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """A result whose last dim holds real and imaginary parts: OpenVINO has no complex numbers."""

    output: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A model, the tensors of its parameters, and which of its outputs are pairs."""

    model: openvino.Model
    tensors: Mapping[str, openvino.Tensor]
    pairs: tuple[bool, ...]


class Graph:
    """The inputs of one expression; arrays are as `inference_only.stored` gives them, each with its kind."""

    def __init__(self, arrays: Mapping[str, Array], kinds: Mapping[str, str], dtype: str) -> None:
        self._op, self._arrays, self._kinds, self._dtype = newest_operators(), arrays, kinds, dtype
        self._tensors = {name: self._tensor(array, kinds[name]) for name, array in arrays.items()}
        self._parameters = {
            name: self._op.parameter(list(tensor.shape), tensor.element_type, name=name)
            for name, tensor in self._tensors.items()
        }

    def names(self) -> dict[str, Any]:
        """What an expression may use beside its attributes."""
        known = {
            "np": np,
            "op": self._op,
            "types": openvino.Type,
            "real": self.real,
            "fixed": self.fixed,
            "blocks": self.blocks,
            "complex_pairs": complex_pairs,
        }
        return {**known, **self._parameters}

    def real(self, number: float | Sequence[float]) -> Any:
        """In an expression: a constant in the case's dtype."""
        return self._op.constant(number, FLOATS[self._dtype])

    def fixed(self, parameter: Any) -> Any:
        """In an expression: an input whose values are part of the model, as weights of an exported network are."""
        return self._op.constant(self._tensors[self._taken(parameter)], COPIED)

    def blocks(self, parameter: Any, order: Sequence[int]) -> Any:
        """In an expression: a weight that is part of the model, its gates in another order."""
        name = self._taken(parameter)
        gates = np.split(self._arrays[name], len(order))
        tensor = self._tensor(np.concatenate([gates[number] for number in order]), self._kinds[name])
        return self._op.constant(tensor, COPIED)

    def build(self, results: Any) -> Built:
        """The model that gives these results."""
        ends = list(_ends(results))
        outputs = [self._op.result(end.output if isinstance(end, Pairs) else end) for end in ends]
        return Built(
            model=openvino.Model(outputs, list(self._parameters.values()), "operator"),
            tensors={name: self._tensors[name] for name in self._parameters},
            pairs=tuple(isinstance(end, Pairs) for end in ends),
        )

    def _taken(self, parameter: Any) -> str:
        """The name of an input that is a parameter no longer."""
        name = str(parameter.get_friendly_name())
        del self._parameters[name]
        return name

    def _tensor(self, array: Array, kind: str) -> openvino.Tensor:
        """A tensor on the array's own memory."""
        if kind == "float" and self._dtype == "bfloat16":
            return openvino.Tensor(array, openvino.Shape(list(array.shape)), openvino.Type.bf16)
        return openvino.Tensor(array, shared_memory=True)


def complex_pairs(node: Any) -> Pairs:
    """In an expression: a result that stands for complex numbers."""
    return Pairs(output=node.output(0))


def build(
    expression: str,
    arrays: Mapping[str, Array],
    kinds: Mapping[str, str],
    attributes: Mapping[str, Any],
    *,
    dtype: str,
) -> Built:
    """The model of an expression over named arrays of some kinds, and its other arguments."""
    graph = Graph(arrays, kinds, dtype)
    return graph.build(bound(expression, {**graph.names(), **attributes})())


@cache
def newest_operators() -> SimpleNamespace:
    """OpenVINO's operators, each from the newest opset that has it: the newest of all hold only what is new."""
    found: dict[str, Any] = {}
    for version in range(1, NEWEST_THINKABLE):
        try:
            found |= vars(importlib.import_module(f"openvino.opset{version}"))
        except ModuleNotFoundError:
            continue
    return SimpleNamespace(**{name: value for name, value in found.items() if not name.startswith("_")})


def _ends(results: Any) -> Iterator[Any]:
    """Every output of an expression's result; a node stands for all its outputs."""
    if isinstance(results, list | tuple):
        for part in results:
            yield from _ends(part)
    elif isinstance(results, openvino.Node):
        yield from results.outputs()
    else:
        yield results

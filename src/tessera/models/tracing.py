"""Trace networks with torch.fx so that `+=` and other in-place operators modify the tensor in place.

Plain torch.fx traces `a += b` as `a = a + b`, which creates a new tensor. If another variable refers to the tensor `a`,
it would keep the old value, and the traced network would compute different results from the original.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.fx.proxy import Attribute

InPlaceOperator = Callable[[Any, Any], Any]


def _wrap_operator(name: str) -> InPlaceOperator:
    """Return a function of this module that applies an in-place operator, so that a trace can be pickled.

    `operator.iadd` itself is not used, because fx prints it as an augmented assignment, which rebinds plain numbers.
    """
    operation: InPlaceOperator = getattr(operator, name)

    def write(value: Any, other: Any) -> Any:
        return operation(value, other)

    write.__name__ = write.__qualname__ = name
    return write


iadd, isub, imul, itruediv = map(_wrap_operator, ("iadd", "isub", "imul", "itruediv"))
ifloordiv, imod, ipow = map(_wrap_operator, ("ifloordiv", "imod", "ipow"))  # tensors have no in-place `@=`
iand, ior, ixor, ilshift, irshift = map(_wrap_operator, ("iand", "ior", "ixor", "ilshift", "irshift"))
IN_PLACE_OPERATORS = {
    write.__name__: write
    for write in (iadd, isub, imul, itruediv, ifloordiv, imod, ipow, iand, ior, ixor, ilshift, irshift)
}


class _InPlaceValue:
    """Base of traced values whose in-place operators, such as `+=`, are recorded as in-place."""

    tracer: fx.proxy.TracerBase


def _make_write_recorder(write: InPlaceOperator) -> Callable[[_InPlaceValue, Any], fx.Proxy]:
    def record(value: _InPlaceValue, other: Any) -> fx.Proxy:
        return value.tracer.create_proxy("call_function", write, (value, other), {})

    return record


for _name, _write in IN_PLACE_OPERATORS.items():
    setattr(_InPlaceValue, f"__{_name}__", _make_write_recorder(_write))


class _TracedValue(_InPlaceValue, fx.Proxy):
    """A traced value with in-place operators."""

    def __getattr__(self, k: str) -> Attribute:
        return _TracedAttribute(self, k)


class _TracedAttribute(_InPlaceValue, Attribute):
    """An attribute or method of a traced value, with in-place operators."""

    def __getattr__(self, k: str) -> Attribute:
        return _TracedAttribute(self, k)


class InPlaceTracer(fx.Tracer):
    """Tracer that records in-place operators as functions of `IN_PLACE_OPERATORS`.

    It raises an error for networks that use torch.autocast.
    """

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> fx.Graph:
        self._autocast = torch.is_autocast_enabled("cpu")
        return super().trace(root, concrete_args)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        if torch.is_autocast_enabled("cpu") != self._autocast:
            raise RuntimeError("it uses torch.autocast, which a torch.fx trace does not record")
        return super().create_node(*args, **kwargs)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _TracedValue(node, self)

"""Traces in which `+=` and its kin write into a value, as they do into a tensor; torch.fx alone would make a new one.

A value that has a second name would keep what it was then, and a network would give other numbers than it does.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.fx.proxy import Attribute

Writing = Callable[[Any, Any], Any]


def _own(name: str) -> Writing:
    """A function of this module, so that a program that calls it can be sent to another process.

    fx would spell `operator.iadd` as a statement, which changes not only the sum but also a plain number.
    """
    operation: Writing = getattr(operator, name)

    def write(value: Any, other: Any) -> Any:
        return operation(value, other)

    write.__name__ = write.__qualname__ = name
    return write


iadd, isub, imul, itruediv = map(_own, ("iadd", "isub", "imul", "itruediv"))
ifloordiv, imod, ipow = map(_own, ("ifloordiv", "imod", "ipow"))  # `@=` is no write: tensors have none
iand, ior, ixor, ilshift, irshift = map(_own, ("iand", "ior", "ixor", "ilshift", "irshift"))
WRITING = {
    write.__name__: write
    for write in (iadd, isub, imul, itruediv, ifloordiv, imod, ipow, iand, ior, ixor, ilshift, irshift)
}


class _Writable:
    """A traced value into which `+=` writes."""

    tracer: fx.proxy.TracerBase


def _recorded(write: Writing) -> Callable[[_Writable, Any], fx.Proxy]:
    def record(value: _Writable, other: Any) -> fx.Proxy:
        return value.tracer.create_proxy("call_function", write, (value, other), {})

    return record


for _name, _write in WRITING.items():
    setattr(_Writable, f"__{_name}__", _recorded(_write))


class _Value(_Writable, fx.Proxy):
    """A value of the trace."""

    def __getattr__(self, k: str) -> Attribute:
        return _Attribute(self, k)


class _Attribute(_Writable, Attribute):
    """An attribute of such a value, or a method that is about to be called."""

    def __getattr__(self, k: str) -> Attribute:
        return _Attribute(self, k)


class WritingTracer(fx.Tracer):
    """Records a write as one of `WRITING`; refuses calls under an autocast of the network's own."""

    def trace(self, root: Any, concrete_args: dict[str, Any] | None = None) -> fx.Graph:
        self._autocast = torch.is_autocast_enabled("cpu")
        return super().trace(root, concrete_args)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        if torch.is_autocast_enabled("cpu") != self._autocast:
            raise RuntimeError("it computes under torch.autocast, which a trace does not keep")
        return super().create_node(*args, **kwargs)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Value(node, self)

"""How the calls of a model are recorded: as torch.fx does, and with what it passes over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx
from torch.fx.proxy import Attribute

from tessera.phased.network.writes import WRITING, Writing


class _Writable:
    """A traced value into which `+=` writes, as it does into a tensor; fx would make a new value of it."""

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


class _NoArguments(tuple[Any, ...]):
    """`*args` of a call without any. Of a type of its own, because fx takes plain tuples apart."""


class _NoKeywords(dict[str, Any]):
    """`**kwargs` of a call without any."""


class Tracer(fx.Tracer):
    """Follows a model down to torch's own modules, called with the arguments that it cannot do without.

    An argument that is None unless it is given, and any number of further ones, are traced as left out: a value in
    their place would take the branch of `if mask is not None` for good.
    """

    proxy_buffer_attributes = True  # else what is computed from a buffer would be a constant without values

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _Value(node, self)

    def create_proxy(
        self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *rest: Any, **more: Any
    ) -> Any:
        if kind == "placeholder":
            if str(target).startswith("**"):
                return _NoKeywords()
            if str(target).startswith("*"):
                return _NoArguments()
            if args and args[0] is None:
                return None
        return super().create_proxy(kind, target, args, kwargs, *rest, **more)

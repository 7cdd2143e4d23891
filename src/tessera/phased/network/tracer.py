"""How the calls of a model are recorded: as torch.fx does, and with what it passes over."""

from __future__ import annotations

from typing import Any

from tessera.models.tracing import WritingTracer


class _NoArguments(tuple[Any, ...]):
    """`*args` of a call without any. Of a type of its own, because fx takes plain tuples apart."""


class _NoKeywords(dict[str, Any]):
    """`**kwargs` of a call without any."""


class Tracer(WritingTracer):
    """Follows a model down to torch's own modules, called with the arguments that it cannot do without.

    An argument that is None unless it is given, and any number of further ones, are traced as left out: a value in
    their place would take the branch of `if mask is not None` for good.
    """

    proxy_buffer_attributes = True  # else what is computed from a buffer would be a constant without values

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

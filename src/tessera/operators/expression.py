"""Expressions over named inputs, as the catalogue and the backends write operators down."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def bound(expression: str, names: Mapping[str, Any]) -> Callable[[], Any]:
    """The expression as a function without arguments.

    Names are looked up as globals of its code, which costs a call nothing measurable, rather than passed.

    >>> bound("a + b", {"a": 1, "b": 2})()
    3
    """
    return function(expression, (), names)


def function(expression: str, arguments: Sequence[str], names: Mapping[str, Any]) -> Callable[..., Any]:
    """The expression as a function of some of its names; the others are given.

    >>> function("a + b", ["a"], {"b": 2})(1)
    3
    """
    code = compile(f"lambda {', '.join(arguments)}: ({expression})", f"<{expression}>", "eval")
    made: Callable[..., Any] = eval(code, dict(names))
    return made

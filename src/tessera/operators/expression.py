"""The Python expressions by which the catalogue and the backends define operators: compiling and translating."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def bind_expression(expression: str, names: Mapping[str, Any]) -> Callable[[], Any]:
    """Compile an expression into a function without arguments.

    `names` become globals of the compiled code, so that a timed call passes no arguments.

    >>> bind_expression("a + b", {"a": 1, "b": 2})()
    3
    """
    return compile_expression(expression, (), names)


def compile_expression(expression: str, arguments: Sequence[str], names: Mapping[str, Any]) -> Callable[..., Any]:
    """Compile an expression into a function of `arguments`; all other names come from `names`.

    >>> compile_expression("a + b", ["a"], {"b": 2})(1)
    3
    """
    code = compile(f"lambda {', '.join(arguments)}: ({expression})", f"<{expression}>", "eval")
    compiled: Callable[..., Any] = eval(code, dict(names))
    return compiled


def replace_modules(expression: str, modules: Mapping[str, str]) -> str:
    """Replace the names of modules in an expression.

    >>> replace_modules("np.sum(np.abs(snp.x))", {"np": "jnp"})
    'jnp.sum(jnp.abs(snp.x))'
    """
    return re.sub(rf"\b({'|'.join(modules)})\.", lambda match: f"{modules[match[1]]}.", expression)

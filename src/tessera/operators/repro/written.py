"""What the programs have in common: how their inputs are drawn, and the parts that a backend writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tessera.operators.inputs import COMPLEX
from tessera.operators.operator import Input
from tessera.operators.preparation import inputs_of
from tessera.operators.skews import SKEWS, takes, tiny
from tessera.results.record import Case

FORWARD = "def {name}():\n    return {expression}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The part of a program that is its backend's own.

    `body` makes the inputs and defines the functions named in `calls`. `settings` are variables that the process has to
    be started with, `before` says that it defines a function of that name, to be called before each timed call.
    """

    imports: str
    body: str
    calls: tuple[str, ...] = ("call",)
    settings: Mapping[str, str] = field(default_factory=dict)
    before: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """A case's inputs as text: each an expression that gives a NumPy array, and what comes before and after them."""

    begin: str
    arrays: Mapping[str, str]
    attributes: str

    def body(self, inputs: Mapping[str, str], *parts: str) -> str:
        """A program's body: the inputs as the backend makes them of the arrays, the other arguments, and the rest."""
        lines = [self.begin, *(f"{name} = {made}" for name, made in inputs.items()), self.attributes]
        return "\n\n\n".join(filter(None, ["\n".join(filter(None, lines)), *parts]))


def drawn(case: Case) -> Drawn:
    """The inputs of a case, drawn in the same order and rounded in the same way."""
    _, inputs, attributes = inputs_of(case)
    shapes = {name: one.shape for name, one in inputs.items()}
    return Drawn(
        begin=f"rng = np.random.default_rng({case.params['seed']})\nshapes = {shapes}",
        arrays={name: _array(name, one, case.params) for name, one in inputs.items()},
        attributes="\n".join(f"{name} = {literal(value)}" for name, value in attributes.items()),
    )


def literal(value: Any) -> str:
    """A value as Python; infinity and what is no number have no name there.

    >>> literal((1, float("-inf")))
    "(1, float('-inf'))"
    """
    if isinstance(value, tuple | list):
        inside = ", ".join(map(literal, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    return f"float({str(value)!r})" if isinstance(value, float) and not math.isfinite(value) else repr(value)


def _array(name: str, one: Input, params: Mapping[str, Any]) -> str:
    dtype = str(params["dtype"])
    values = f"(lambda shape: {one.draw.expression})({one.shape})"
    if one.kind == "complex":
        kept = COMPLEX.get(dtype, "complex64")
        values = f"({values} + 1j * {values})"
    else:
        kept = {"bfloat16": "float32"}.get(dtype, dtype) if one.kind == "float" else one.kind
    made = f"np.asarray({values}).astype({kept!r})"
    skew = str(params.get("skew", ""))
    if skew in SKEWS and takes(name, one.kind, one.shape, skew):
        made = f"(lambda array, tiny: {SKEWS[skew]})({made}, {tiny(dtype)!r}).astype({kept!r}, copy=False)"
    return made


def function(name: str, expression: str) -> str:
    """An expression as a function of a program."""
    return FORWARD.format(name=name, expression=expression)

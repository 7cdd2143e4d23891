"""Program text shared by all backends: source that draws the inputs, and containers for the other parts."""

from __future__ import annotations

import keyword
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tessera.operators.inputs import COMPLEX_DTYPES
from tessera.operators.operator import Input
from tessera.operators.preparation import resolve_inputs
from tessera.operators.skews import VALUE_SKEWS, can_skew, get_smallest_normal
from tessera.results.record import Case

FUNCTION_TEMPLATE = "def {name}():\n    return {expression}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramText:
    """The backend-specific part of a program.

    `body` is source that makes the inputs and defines the functions named in `calls`, which are timed. `settings` are
    the environment variables of the process. `before` is true if `body` defines a function `before`, to call before
    each timed call.
    """

    imports: str
    body: str
    calls: tuple[str, ...] = ("call",)
    settings: Mapping[str, str] = field(default_factory=dict)
    before: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class InputText:
    """The inputs of a case as source: first lines (`begin`), an expression per NumPy array, and the attributes."""

    begin: str
    arrays: Mapping[str, str]
    attributes: str

    def format_body(self, inputs: Mapping[str, str], *parts: str) -> str:
        """Return the body of a program: `inputs` (name -> source in the backend's type), attributes, then `parts`."""
        lines = [self.begin, *(f"{name} = {text}" for name, text in inputs.items()), self.attributes]
        return "\n\n\n".join(filter(None, ["\n".join(filter(None, lines)), *parts]))


def format_inputs(case: Case) -> InputText:
    """Return the inputs of a case as source, with the random draws and rounding of the measured case."""
    _, inputs, attributes = resolve_inputs(case)
    shapes = {name: entry.shape for name, entry in inputs.items()}
    return InputText(
        begin=f"rng = np.random.default_rng({case.params['seed']!r})\nshapes = {shapes!r}",
        arrays={check_name(name): _format_array(name, entry, case.params) for name, entry in inputs.items()},
        attributes="\n".join(f"{check_name(name)} = {format_literal(value)}" for name, value in attributes.items()),
    )


def check_name(name: str) -> str:
    """Return a name that is written into a program; raise an error unless it is an identifier."""
    if not name.isidentifier() or keyword.iskeyword(name):
        raise ValueError(f"{name!r} is not a name")
    return name


def format_literal(value: Any) -> str:
    """Format a value as Python source; infinity and NaN, which have no literal, become `float(...)` calls.

    >>> format_literal((1, float("-inf")))
    "(1, float('-inf'))"
    """
    if isinstance(value, tuple | list):
        inside = ", ".join(map(format_literal, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' if len(value) == 1 else ''})"
    if value is not None and not isinstance(value, bool | int | float | str | complex):
        raise TypeError(f"{type(value).__name__} is not a plain value")
    return f"float({str(value)!r})" if isinstance(value, float) and not math.isfinite(value) else repr(value)


def _format_array(name: str, entry: Input, params: Mapping[str, Any]) -> str:
    dtype = str(params["dtype"])
    values = f"(lambda shape: {entry.draw.expression})({entry.shape})"
    if entry.kind == "complex":
        storage_dtype = COMPLEX_DTYPES.get(dtype, "complex64")
        values = f"({values} + 1j * {values})"
    else:
        storage_dtype = {"bfloat16": "float32"}.get(dtype, dtype) if entry.kind == "float" else entry.kind
    expression = f"np.asarray({values}).astype({storage_dtype!r})"
    skew = str(params.get("skew", ""))
    if skew in VALUE_SKEWS and can_skew(name, entry.kind, entry.shape, skew):
        skewed = f"(lambda array, tiny: {VALUE_SKEWS[skew]})({expression}, {get_smallest_normal(dtype)!r})"
        expression = f"{skewed}.astype({storage_dtype!r}, copy=False)"
    return expression


def format_function(name: str, expression: str) -> str:
    """Format an expression as the source of a function without arguments."""
    return FUNCTION_TEMPLATE.format(name=name, expression=expression)

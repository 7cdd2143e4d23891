"""Strict JSON that preserves every float.

Python writes NaN and the infinities as bare words, which are not JSON. Here they are written as `{"$float":
"nan"}`; a user's object of this form is wrapped in `$object`, so that it is read back unchanged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

_TAG_NAMES = ("$float", "$object")


def dumps(value: Any, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """Serialize plain values to strict JSON: one line of ASCII, or indented.

    >>> dumps({"b": [1.5, float("-inf")], "a": None})
    '{"b":[1.5,{"$float":"-inf"}],"a":null}'
    """
    separators = (",", ":") if indent is None else (",", ": ")

    def serialize(plain: Any) -> str:
        return json.dumps(
            plain, allow_nan=False, indent=indent, separators=separators, sort_keys=sort_keys, default=_to_python_number
        )

    try:
        text = serialize(value)
    except ValueError:  # NaN or infinity: rare, so the slow conversion in Python runs only then
        return serialize(_tag_values(value))
    return serialize(_tag_values(value)) if '"$' in text else text


def loads(text: str | bytes) -> Any:
    """Parse the output of `dumps`; ValueError for other text, bare NaN and Infinity, and values nested too deeply.

    >>> loads('{"a": {"$float": "inf"}}')
    {'a': inf}
    """
    try:
        value = json.loads(text, parse_constant=_reject_constant)
        tagged = b'"$' in text if isinstance(text, bytes) else '"$' in text
        return _untag_values(value) if tagged else value
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _to_python_number(value: Any) -> Any:
    """Convert a NumPy or torch scalar to a Python number."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not a plain value")


def _tag_values(value: Any) -> Any:
    """Replace NaN and infinities by `$float` objects, and wrap objects that look like tags."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(float(value))}
    if isinstance(value, Mapping):
        inner = {key: _tag_values(item) for key, item in value.items()}
        return {"$object": inner} if _is_tagged(value) else inner
    if isinstance(value, list | tuple):
        return [_tag_values(item) for item in value]
    return value


def _untag_values(value: Any) -> Any:
    """Convert tagged objects back, the inverse of `_tag_values`."""
    if isinstance(value, dict):
        if _is_tagged(value):
            ((tag, content),) = value.items()
            if tag == "$float" and isinstance(content, str):
                return float(content)
            if tag == "$object" and isinstance(content, dict):
                return {k: _untag_values(v) for k, v in content.items()}
            raise ValueError(f"invalid content of {tag}")
        return {key: _untag_values(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_untag_values(item) for item in value]
    return value


def _is_tagged(value: Mapping[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)) in _TAG_NAMES


def _reject_constant(word: str) -> float:
    raise ValueError(f"{word} is not JSON")

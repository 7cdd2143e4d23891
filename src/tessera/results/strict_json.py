"""JSON that every reader accepts and that gives every float back.

Python writes NaN and the infinities as bare words, which are not JSON. Here they are written as `{"$float":
"nan"}`; an object of the user's own that looks like this is wrapped in `$object` and stays itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

_TAGS = ("$float", "$object")


def dumps(value: Any, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """Plain values as one line of ASCII, or indented.

    >>> dumps({"b": [1.5, float("-inf")], "a": None})
    '{"b":[1.5,{"$float":"-inf"}],"a":null}'
    """
    separators = (",", ":") if indent is None else (",", ": ")

    def write(plain: Any) -> str:
        return json.dumps(
            plain, allow_nan=False, indent=indent, separators=separators, sort_keys=sort_keys, default=_number
        )

    try:
        text = write(value)
    except ValueError:  # a NaN or an infinity: rare, and only then is the value walked in Python
        return write(_tagged(value))
    return write(_tagged(value)) if '"$' in text else text


def loads(text: str | bytes) -> Any:
    """Read what `dumps` wrote; bare NaN and Infinity are refused with a ValueError.

    >>> loads('{"a": {"$float": "inf"}}')
    {'a': inf}
    """
    value = json.loads(text, parse_constant=_refuse)
    tagged = b'"$' in text if isinstance(text, bytes) else '"$' in text
    return _untagged(value) if tagged else value


def _number(value: Any) -> Any:
    """A number of NumPy or torch as Python's own."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not a plain value")


def _tagged(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(float(value))}
    if isinstance(value, Mapping):
        inner = {key: _tagged(item) for key, item in value.items()}
        return {"$object": inner} if _looks_tagged(value) else inner
    if isinstance(value, list | tuple):
        return [_tagged(item) for item in value]
    return value


def _untagged(value: Any) -> Any:
    if isinstance(value, dict):
        if _looks_tagged(value):
            ((tag, content),) = value.items()
            return float(content) if tag == "$float" else {k: _untagged(v) for k, v in content.items()}
        return {key: _untagged(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_untagged(item) for item in value]
    return value


def _looks_tagged(value: Mapping[str, Any]) -> bool:
    return len(value) == 1 and next(iter(value)) in _TAGS


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not JSON")

"""TOML files in and out. The standard library reads TOML; this writes as much of it as machines need."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tessera.errors import TesseraError
from tessera.files import replace_text


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TesseraError("no such file", got=str(path)) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TesseraError(f"{path} is not a TOML file: {error}") from None
    except OSError as error:
        raise TesseraError(f"cannot read {path}: {error.strerror}") from None


def write_toml(path: Path, data: Mapping[str, Any]) -> None:
    """Write tables as TOML; a reader sees the old file or the whole new one, never a part."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, dumps(data))
    except OSError as error:
        raise TesseraError(f"cannot write {path}: {error.strerror}") from None


def dumps(data: Mapping[str, Any]) -> str:
    """TOML text of nested tables of strings, numbers and lists; `tomllib.loads` gives the same values back.

    >>> print(dumps({"name": "a", "memory": {"local": 4, "rates": [1.5, 2.0]}}), end="")
    name = "a"
    <BLANKLINE>
    [memory]
    local = 4
    rates = [1.5, 2.0]
    """
    return "\n".join(_lines(data, ())) + "\n"


def _lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"{_key(key)} = {_value(value)}" for key, value in plain.items()]
    if path and (lines or not table):
        lines = ["", f"[{'.'.join(map(_key, path))}]", *lines]
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += _lines(value, (*path, key))
    return lines


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if bare else _string(key)


def _value(value: Any) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_value, value)) + "]"
    return repr(value)


def _string(text: str) -> str:
    # A JSON string is a TOML string but for this one character, which TOML wants escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

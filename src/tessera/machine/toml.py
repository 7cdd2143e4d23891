"""Read and write TOML files. The standard library only reads TOML; this module writes the subset of machine files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tessera.errors import TesseraError
from tessera.files import replace_text
from tessera.validation import parse_toml, read_bounded


def read_toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file as nested dicts."""
    try:
        return parse_toml(read_bounded(path))
    except FileNotFoundError:
        raise TesseraError("file not found", got=str(path), do="check the path") from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise TesseraError(f"{path} is not a TOML file: {error}") from None
    except OSError as error:
        raise TesseraError(f"cannot read {path}: {error.strerror}") from None


def write_toml(path: Path, data: Mapping[str, Any]) -> None:
    """Write tables as TOML; the file is replaced atomically."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_text(path, format_toml(data))
    except OSError as error:
        raise TesseraError(f"cannot write {path}: {error.strerror}") from None


def format_toml(data: Mapping[str, Any]) -> str:
    """Format nested tables of strings, numbers and lists as TOML; `tomllib.loads` returns the same values.

    >>> print(format_toml({"name": "a", "memory": {"local": 4, "rates": [1.5, 2.0]}}), end="")
    name = "a"
    <BLANKLINE>
    [memory]
    local = 4
    rates = [1.5, 2.0]
    """
    return "\n".join(_format_lines(data, ())) + "\n"


def _format_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    lines = [f"{_format_key(key)} = {_format_value(value)}" for key, value in plain.items()]
    if path and (lines or not table):
        lines = ["", f"[{'.'.join(map(_format_key, path))}]", *lines]
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += _format_lines(value, (*path, key))
    return lines


def _format_key(key: str) -> str:
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if bare else _format_string(key)


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return _format_string(value)
    if isinstance(value, list):
        return "[" + ", ".join(map(_format_value, value)) + "]"
    return repr(value)


def _format_string(text: str) -> str:
    # A JSON string is a TOML string, except that TOML requires this character (DEL) to be escaped.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")

"""Checks of values that come from files: types, ranges and sizes, declared by the fields of a dataclass.

Exported runs, stores, suites, configs and machine descriptions are not trusted. Their values pass through this module
before other code uses them, so that a wrong value is one clear error and never a traceback.

>>> from dataclasses import dataclass
>>> @dataclass
... class Point:
...     x: int
...     label: str = ""
>>> check_fields(Point, {"x": 3}, "point")
>>> check_fields(Point, {"x": "three"}, "point")
Traceback (most recent call last):
tessera.validation.InvalidValue: point: invalid value of x: got 'three'; allowed: an integer
"""

from __future__ import annotations

import dataclasses
import os
import stat
import tomllib
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tessera.errors import TesseraError

MAX_DEPTH = 50  # nesting of lists and objects
MAX_TEXT = 4 << 20  # characters of one string
MAX_INTEGER = 2**63 - 1
MAX_CONFIG_BYTES = 16 << 20  # size of a suite, config or machine description


class InvalidValue(TesseraError):
    """The error for a value of a file that has the wrong type or is out of range."""


class _Mismatch(Exception):
    """A value that does not have the required type, with its path inside the checked value."""

    def __init__(self, got: object, allowed: str, *path: str) -> None:
        self.got, self.allowed, self.path = got, allowed, path

    def within(self, name: object) -> _Mismatch:
        return _Mismatch(self.got, self.allowed, str(name), *self.path)


Checker = Callable[[Any], None]


def check_fields(kind: type, data: object, where: str, *, partial: bool = False) -> None:
    """Check an object of plain values against the fields of a dataclass: types, 64-bit integers, sizes, nesting.

    Unknown fields are ignored. A field without a default is required, unless `partial` is set.

    Raises:
        InvalidValue: a value is missing, or is not allowed; the message begins with `where`.
    """
    try:
        _check_object(kind, data, partial=partial)
    except _Mismatch as mismatch:
        raise _explain_mismatch(mismatch, where) from None


def check_value(annotation: Any, value: object, where: str) -> None:
    """Check one value against a type annotation, for example `int`, `str | None` or `tuple[float, ...]`."""
    try:
        _make_checker(annotation)(value)
    except _Mismatch as mismatch:
        raise _explain_mismatch(mismatch, where) from None


def _explain_mismatch(mismatch: _Mismatch, where: str) -> InvalidValue:
    place = f": invalid value of {'.'.join(mismatch.path)}" if mismatch.path else ": invalid value"
    return InvalidValue(f"{where}{place}", got=mismatch.got, allowed=mismatch.allowed)


def _check_object(kind: type, data: object, *, partial: bool = False) -> None:
    if not isinstance(data, Mapping):
        raise _Mismatch(data, "an object")
    for name, (checker, required) in _list_field_checkers(kind).items():
        if name not in data:
            if required and not partial:
                raise _Mismatch(None, "a value, which is missing", name)
            continue
        try:
            checker(data[name])
        except _Mismatch as mismatch:
            raise mismatch.within(name) from None


@lru_cache(maxsize=64)
def _list_field_checkers(kind: type) -> dict[str, tuple[Checker, bool]]:
    hints = typing.get_type_hints(kind)
    missing = dataclasses.MISSING
    return {
        field.name: (_make_checker(hints[field.name]), field.default is missing and field.default_factory is missing)
        for field in dataclasses.fields(kind)
        if field.init
    }


@lru_cache(maxsize=256)
def _make_checker(annotation: Any) -> Checker:
    """Return a function that raises `_Mismatch` for a value that does not have the annotated type."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in _SCALAR_CHECKERS:
        return _SCALAR_CHECKERS[annotation]
    if origin is typing.Literal:
        return _make_choice_checker(arguments)
    if origin in (typing.Union, types.UnionType):
        return _make_union_checker([_make_checker(each) for each in arguments])
    if origin in (tuple, list, Sequence):
        return _check_numbers if arguments[0] is float else _make_list_checker(_make_checker(arguments[0]))
    if origin in (dict, Mapping):
        return _make_mapping_checker(_make_checker(arguments[1]))
    if dataclasses.is_dataclass(annotation) and isinstance(annotation, type):
        return lambda value: _check_object(annotation, value)
    raise AssertionError(f"no check for the annotation {annotation}")


def _make_choice_checker(choices: tuple[Any, ...]) -> Checker:
    def check(value: Any) -> None:
        if not isinstance(value, str | int) or value not in choices:
            raise _Mismatch(value, ", ".join(repr(choice) for choice in choices))

    return check


def _make_union_checker(checkers: list[Checker]) -> Checker:
    def check(value: Any) -> None:
        reasons = []
        for checker in checkers:
            try:
                checker(value)
            except _Mismatch as mismatch:
                reasons.append(mismatch.allowed)
            else:
                return
        raise _Mismatch(value, " or ".join(reasons))

    return check


def _make_list_checker(checker: Checker) -> Checker:
    def check(value: Any) -> None:
        if not isinstance(value, list | tuple):
            raise _Mismatch(value, "a list")
        for position, item in enumerate(value):
            try:
                checker(item)
            except _Mismatch as mismatch:
                raise mismatch.within(position) from None

    return check


def _make_mapping_checker(checker: Checker) -> Checker:
    def check(value: Any) -> None:
        if not isinstance(value, Mapping):
            raise _Mismatch(value, "an object")
        for key, item in value.items():
            _check_text(key)
            try:
                checker(item)
            except _Mismatch as mismatch:
                raise mismatch.within(key[:50]) from None

    return check


def _check_text(value: Any) -> None:
    if not isinstance(value, str):
        raise _Mismatch(value, "text")
    if len(value) > MAX_TEXT:
        raise _Mismatch(f"{len(value):,} characters", f"text of up to {MAX_TEXT:,} characters")


def _check_integer(value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Mismatch(value, "an integer")
    if not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
        raise _Mismatch("a larger integer", "64-bit integers")


def _check_number(value: Any) -> None:
    if not isinstance(value, float):
        if not isinstance(value, int) or isinstance(value, bool):
            raise _Mismatch(value, "a number")
        _check_integer(value)


def _check_numbers(value: Any) -> None:
    """Check a list of numbers; the types of all items are compared at once, because samples are long lists."""
    if not isinstance(value, list | tuple):
        raise _Mismatch(value, "a list of numbers")
    if not set(map(type, value)) <= {float}:
        for item in value:
            _check_number(item)


def _check_flag(value: Any) -> None:
    if not isinstance(value, bool):
        raise _Mismatch(value, "true or false")


def _check_nothing(value: Any) -> None:
    if value is not None:
        raise _Mismatch(value, "null")


def check_plain(value: Any, depth: int = MAX_DEPTH) -> None:
    """Check a plain value of unknown structure: nesting, 64-bit integers, text; `_Mismatch` if it is not allowed."""
    if value is None or isinstance(value, bool | float):
        return
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, int):
        _check_integer(value)
    elif not depth:
        raise _Mismatch("deeper nesting", f"up to {MAX_DEPTH} levels")
    elif isinstance(value, list | tuple):
        for item in value:
            check_plain(item, depth - 1)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _check_text(key)
            check_plain(item, depth - 1)
    else:
        raise _Mismatch(type(value).__name__, "plain JSON values")


_SCALAR_CHECKERS: dict[Any, Checker] = {
    str: _check_text,
    int: _check_integer,
    float: _check_number,
    bool: _check_flag,
    type(None): _check_nothing,
    Any: check_plain,
}


def read_bounded(path: str | os.PathLike[str], limit: int = MAX_CONFIG_BYTES) -> bytes:
    """Read a regular file of at most `limit` bytes; devices and pipes, which may never end, are refused.

    Raises:
        OSError: the file cannot be read.
        TesseraError: the path is not a regular file, or the file is too large.
    """
    with open(os.open(Path(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(21, "Is a directory", str(path))
        if not stat.S_ISREG(status.st_mode):
            raise TesseraError("not a regular file", got=str(path), do="copy its content into a file")
        if status.st_size > limit:
            raise TesseraError(
                f"the file {path} is too large", got=f"{status.st_size:,} bytes", allowed=f"up to {limit:,} bytes"
            )
        return file.read(limit)


def parse_toml(content: bytes | str) -> dict[str, Any]:
    """Parse TOML; the nesting is bounded.

    Raises:
        ValueError: the text is not TOML or not UTF-8, or it is nested too deeply.
    """
    try:
        data = tomllib.loads(content if isinstance(content, str) else content.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return data

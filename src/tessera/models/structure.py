"""Dicts, lists and tuples of things, as arguments and outputs of a network come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def mapped(structure: Any, function: Callable[[Any], Any]) -> Any:
    """The same structure with the function of everything in it; a size is one thing.

    >>> mapped({"a": (1, 2), "b": [3]}, lambda n: 10 * n)
    {'a': (10, 20), 'b': [30]}
    """
    if isinstance(structure, dict):
        return {key: mapped(entry, function) for key, entry in structure.items()}
    if isinstance(structure, list):
        return [mapped(entry, function) for entry in structure]
    if isinstance(structure, tuple) and not isinstance(structure, torch.Size):
        found = [mapped(entry, function) for entry in structure]
        return type(structure)(*found) if hasattr(structure, "_fields") else tuple(found)
    return function(structure)


def members(structure: Any, kind: type[T]) -> list[T]:
    """Everything of a kind in a structure, in order.

    >>> members({"a": (1, "x"), "b": [3]}, int)
    [1, 3]
    """
    found: list[T] = []
    mapped(structure, lambda entry: found.append(entry) if isinstance(entry, kind) else None)
    return found

"""Functions on nested dicts, lists and tuples, such as the arguments and outputs of a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def map_structure(structure: Any, function: Callable[[Any], Any]) -> Any:
    """Apply a function to every leaf of a structure; a torch.Size is a leaf.

    >>> map_structure({"a": (1, 2), "b": [3]}, lambda n: 10 * n)
    {'a': (10, 20), 'b': [30]}
    """
    if isinstance(structure, dict):
        return {key: map_structure(entry, function) for key, entry in structure.items()}
    if isinstance(structure, list):
        return [map_structure(entry, function) for entry in structure]
    if isinstance(structure, tuple) and not isinstance(structure, torch.Size):
        entries = [map_structure(entry, function) for entry in structure]
        return type(structure)(*entries) if hasattr(structure, "_fields") else tuple(entries)
    return function(structure)


def collect_members(structure: Any, kind: type[T]) -> list[T]:
    """Return all leaves of type `kind` of a structure, in order.

    >>> collect_members({"a": (1, "x"), "b": [3]}, int)
    [1, 3]
    """
    leaves: list[T] = []
    map_structure(structure, lambda entry: leaves.append(entry) if isinstance(entry, kind) else None)
    return leaves

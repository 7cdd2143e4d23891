"""Inputs named `data` in the shapes that several categories share, by size."""

from __future__ import annotations

from collections.abc import Mapping

from tessera.operators.draws import Draw, distinct, normal
from tessera.operators.operator import Input, by_size

Sizes = Mapping[str, Mapping[str, Input]]


def square(draw: Draw = normal, kind: str = "float") -> Sizes:
    """A square matrix: 4 thousand, 1 million, 16 million elements."""
    return by_size(lambda n: {"data": Input(shape=(n, n), draw=draw, kind=kind)}, 64, 1024, 4096)


def table(draw: Draw = distinct, kind: str = "float") -> Sizes:
    """Long rows, fewer of them, for what sorts each: 4 thousand, 128 thousand, 4 million elements."""
    return by_size(
        lambda rows, n: {"data": Input(shape=(rows, n), draw=draw, kind=kind)}, (16, 256), (128, 1024), (1024, 4096)
    )


def vector(draw: Draw = normal, kind: str = "float") -> Sizes:
    """A vector: 4 thousand, 256 thousand, 4 million elements."""
    return by_size(lambda n: {"data": Input(shape=(n,), draw=draw, kind=kind)}, 2**12, 2**18, 2**22)


def images(draw: Draw = normal, kind: str = "float") -> Sizes:
    """Images (n, channels, height, width) inside a network: 4 thousand, 1.6 million, 12.8 million elements."""
    return by_size(
        lambda n, c, s: {"data": Input(shape=(n, c, s, s), draw=draw, kind=kind)},
        (1, 16, 16),
        (8, 64, 56),
        (64, 64, 56),
    )

"""Meshes: workers arranged in rows and columns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mesh:
    """A grid of workers, numbered row by row.

    >>> Mesh(2, 3).size
    6
    >>> Mesh(2, 3).get_position(4)
    (1, 1)
    >>> Mesh.parse("8x12")
    Mesh(8x12)
    """

    rows: int
    cols: int

    def __post_init__(self) -> None:
        if self.rows < 1 or self.cols < 1:
            raise ValueError(f"a mesh needs at least one row and one column, got {self.rows}x{self.cols}")

    @classmethod
    def parse(cls, text: str) -> Mesh:
        rows, x, cols = text.lower().partition("x")
        if not (x and rows.strip().isdigit() and cols.strip().isdigit()):
            raise ValueError(f"a mesh is written ROWSxCOLS, for example 2x3; got {text!r}")
        return cls(int(rows), int(cols))

    @property
    def size(self) -> int:
        return self.rows * self.cols

    def get_position(self, worker: int) -> tuple[int, int]:
        """Return the row and column of a worker."""
        if not 0 <= worker < self.size:
            raise ValueError(f"worker {worker} is not on a mesh of {self.size}")
        return divmod(worker, self.cols)

    def get_worker(self, row: int, col: int) -> int:
        """Return the number of the worker at a row and column."""
        if not (0 <= row < self.rows and 0 <= col < self.cols):
            raise ValueError(f"({row}, {col}) is not on a mesh of {self.rows}x{self.cols}")
        return row * self.cols + col

    def __repr__(self) -> str:
        return f"Mesh({self.rows}x{self.cols})"

"""The explanation of a parallel run: how each operator was computed (split, moved, whole), and the bytes received."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tessera.spatial.tensor.trace_log import LoggedOperation
from tessera.tabular import Tabular

ADVICE = {
    "whole": "every rank computes all of it",
    "moved": "the split moves to another dim and back",
}
VIEWS = {"view", "permute", "transpose", "t", "expand", "slice", "select", "unsqueeze", "squeeze", "detach", "alias"}


@dataclass(frozen=True, slots=True)
class Explanation(Tabular):
    """How each operation of a network was computed on a mesh; `str` gives a table per module."""

    operations: Sequence[LoggedOperation]
    mesh: tuple[int, ...]

    @property
    def received_bytes(self) -> int:
        """Bytes that the busiest rank received in the whole run."""
        return sum(operation.received_bytes for operation in self.operations)

    def count(self, way: str) -> int:
        """Return the number of operations computed in some way; views do not count."""
        return sum(operation.way == way and operation.name not in VIEWS for operation in self.operations)

    def to_dict(self) -> dict[str, Any]:
        return {"mesh": list(self.mesh), "rows": self.to_rows()}

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one row per module and operator, in the order of execution."""
        rows: dict[tuple[str, str, str, str], dict[str, Any]] = {}
        for operation in self.operations:
            if operation.name in VIEWS and not operation.received_bytes:
                continue
            key = operation.module, operation.name, operation.way, operation.note
            row = rows.setdefault(
                key,
                {
                    "module": operation.module,
                    "operator": operation.name,
                    "shape": "x".join(map(str, operation.shape)),
                    "computed": operation.way,
                    "calls": 0,
                    "received_bytes": 0,
                    "stored_bytes": 0,
                    "why": ADVICE.get(operation.way, operation.note),
                },
            )
            row["calls"] += 1
            row["received_bytes"] += operation.received_bytes
            row["stored_bytes"] += operation.stored_bytes
        return list(rows.values())

    def __str__(self) -> str:
        rows = self.to_rows()
        width = max((len(row["module"]) for row in rows), default=6)
        lines = [f"{'module':{width}}  {'operator':24} {'shape':>18}  {'computed':8} {'received':>12}"]
        for row in rows:
            lines.append(
                f"{row['module']:{width}}  {row['operator'][:24]:24} {row['shape']:>18}  {row['computed']:8} "
                f"{row['received_bytes']:>10} B  {row['why']}".rstrip()
            )
        lines.append(self.summarise())
        return "\n".join(lines)

    def summarise(self, format_bytes: Callable[[int], str] = "{} B".format) -> str:
        """Return one line: operators by how they were computed, and the bytes that the busiest rank receives."""
        return (
            f"{self.count('split')} operators on tiles, {self.count('moved')} with the split moved to another dim, "
            f"{self.count('whole')} whole on every rank; the busiest rank receives {format_bytes(self.received_bytes)}"
        )

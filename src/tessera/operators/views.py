"""Views and copies: an operator that one backend answers with a view and another with a copy is not the same work.

What torch and NumPy give as a view of their input (a transposed matrix) takes no time whatever its size; a compiler or
a runtime that has no views copies. Each record of such an operator says which of the two it was.
"""

from __future__ import annotations

from tessera.operators.operator import Operator
from tessera.results.record import Record

VIEW = "gives a view: nothing is copied"
COPY = "copies what may be had as a view"


def view_notes(operator: Operator, flops: float, moved: float, *, shared: bool) -> tuple[str, ...]:
    """What a record says of a pass that need not compute or move anything; `shared` when it did not.

    Of outputs that are compared by their shape alone (`empty`) nobody knows whose memory they were.
    """
    if flops or moved or operator.check == "shape":
        return ()
    return (VIEW,) if shared else (COPY,)


def note_of(record: Record) -> str:
    """What a record says of itself; nothing where its operator has to compute or move something."""
    return next((note for note in record.notes if note in (VIEW, COPY)), "")


def given_as(record: Record) -> str:
    """The same in a word: view or copy."""
    return {VIEW: "view", COPY: "copy"}.get(note_of(record), "")


def alike(one: Record, other: Record) -> bool:
    """Whether the times of two backends are of the same work."""
    return note_of(one) == note_of(other)

"""Cells that several sections of the report share: a figure with its unit, a status, a share, a case."""

from __future__ import annotations

from tessera.report.blocks import Cell, Tone
from tessera.report.figures import format_percent, format_value
from tessera.results.record import Case, Record

STATUS_TONES: dict[str, Tone] = {"ok": "good", "failed": "bad", "refused": "muted", "timed_out": "bad"}
NONE = Cell("")


def figure(value: float | None, unit: str) -> Cell:
    """A measured value, with its unit scaled to be read."""
    return NONE if value is None else Cell(format_value(value, unit), value)


def share(value: float | None, sign: str = "") -> Cell:
    """A part of one, in per cent."""
    return NONE if value is None else Cell(sign + format_percent(value), value)


def number(value: int) -> Cell:
    """A count."""
    return Cell(f"{value:,}", value)


def status(record: Record) -> Cell:
    """How the record ended, in the colour of its kind."""
    return Cell(record.status.replace("_", " "), tone=STATUS_TONES[record.status])


def label(case: Case) -> str:
    """The case without its feature, for places where the feature is plain.

    >>> label(Case(feature="ops", name="add", params={"size": "small"}))
    'add[size=small]'
    """
    return case.key.removeprefix(f"{case.feature}/")

"""Phased execution's part of the report: schedules side by side, the balance of I/O and compute, timelines."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.phased.section.balance import balance_section
from tessera.phased.section.schedules import schedule_section
from tessera.phased.section.timelines import timeline_section
from tessera.report.blocks import Card, Section
from tessera.report.figures import format_percent, format_rate
from tessera.report.newest import newest_section
from tessera.report.runs import RunView
from tessera.results.record import Record

INTRO = (
    "Networks whose weights do not fit: they stay on disk or in host memory and come into a small working memory phase "
    "by phase. Where loading a phase overlaps with computing another, a phase takes the longer of both: the ideal is "
    "the sum over phases of max(I/O, compute), each taken by itself. Efficiency is the ideal over the time."
)


def section(runs: Sequence[RunView]) -> Section:
    """Every case of the newest run; the comparison shows the others."""
    measured = [record for record in runs[-1].records if record.status == "ok" and "time" in record.metrics]
    parts = (schedule_section(measured), balance_section(measured), timeline_section(measured))
    return newest_section("Phased execution", INTRO, runs, cards=_cards(measured), parts=parts)


def _cards(records: Sequence[Record]) -> list[Card]:
    found = []
    streamed = [record for record in records if "hidden" in record.metrics]
    overlapping = [record for record in streamed if record.case.params.get("schedule") != "sequential"]
    if overlapping:
        best = max(overlapping, key=lambda record: record.metrics["efficiency"].value)
        said = str(best.case.params.get("schedule", ""))
        found.append(Card("Best efficiency", format_percent(best.metrics["efficiency"].value), f"of the ideal, {said}"))
        most = max(record.metrics["hidden"].value for record in overlapping)
        found.append(Card("Most hidden", format_percent(most), "of the loading, behind computing"))
    rates = [record.metrics["bandwidth"].value for record in records if "bandwidth" in record.metrics]
    if rates:
        found.append(Card("Fastest stream", format_rate(max(rates), "GB/s"), "of a phase by itself"))
    shares = [
        record.metrics["working_memory"].value / record.metrics["weights"].value
        for record in streamed
        if record.metrics.get("weights") and record.metrics["weights"].value
    ]
    if shares:
        found.append(Card("Least working memory", format_percent(min(shares)), "of the weights that went through it"))
    return found

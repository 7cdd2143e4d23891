"""Servers: the rates that were tried, and which of them were held."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.report.blocks import Cell, Column, Heading, Row, Section, Table
from tessera.report.cells import figure, number
from tessera.report.naming import case_names
from tessera.results.record import Record


def serving_section(records: Sequence[Record]) -> Section | None:
    """Networks that answered questions as they arrived; None without one."""
    found = [
        r for r in records if r.status == "ok" and r.case.params.get("mode") == "server" and "trials" in r.conditions
    ]
    if not found:
        return None
    names = case_names([record.case for record in found])
    intro = (
        "Images arrive at random at a rate, and 99 of 100 have to be answered in time, counted from their arrival. "
        "The highest rate that is held is looked for by halving what is not known."
    )
    columns: list[Heading] = [
        Column("Case", quick=True),
        Column("Asked by", quick=True),
        Column("Rate", "number"),
        Column("Questions", "number"),
        Column("Answered", "number", hint="images/s that came out"),
        Column("p99", "number", hint="from arrival to answer"),
        Column("Allowed", "number"),
        Column("Held", quick=True),
    ]
    rows: list[Row] = [
        [
            names[record.case.key].cell,
            str(record.conditions.get("load_generator", "")),
            figure(trial["rate"], "images/s"),
            number(trial["questions"]),
            figure(trial["achieved"], "images/s"),
            figure(trial["latency_p99"], "s"),
            figure(record.metrics["max_latency"].value, "s"),
            Cell("held", tone="good") if trial["held"] else Cell("not held", tone="warn"),
        ]
        for record in found
        for trial in record.conditions["trials"]
    ]
    return Section("Servers", intro, [Table(columns, rows, "Every rate that was tried")])

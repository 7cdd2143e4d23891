"""Timelines: a pass of the best overlapping case, and beside it the same network loaded and computed in turn."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.phased.profile.directory import profile_of
from tessera.phased.profile.picture import describe, pass_svg
from tessera.phased.section.schedules import way, whatever_schedule
from tessera.report.blocks import Block, Picture, Section
from tessera.results.record import Record

MOST_EVENTS = 400  # more of them cannot be told apart


def timeline_section(records: Sequence[Record]) -> Section | None:
    """The case that shows most of what overlapping does; None where no case that streams has a profile."""
    drawable = [r for r in records if (p := profile_of(r)) is not None and len(p.events) <= MOST_EVENTS and p.devices]
    overlapping = [r for r in drawable if "hidden" in r.metrics and r.case.params.get("schedule") != "sequential"]
    if not overlapping:
        return None
    # the nearer I/O and compute are to each other, the more there is to hide
    chosen = max(overlapping, key=lambda r: (_evenness(r), r.metrics["phases"].value))
    beside = [
        record
        for record in drawable
        if whatever_schedule(record.case).key == whatever_schedule(chosen.case).key
        and record.case.params.get("schedule") == "sequential"
        and record.conditions.get("storage") == chosen.conditions.get("storage")
    ]
    blocks: list[Block] = [_picture(record) for record in (chosen, *beside[:1])]
    intro = (
        "One pass, a lane for each device and kind of work; tinted stretches are idle, the mark is where the ideal "
        "would end. `tessera phases --profile` writes such a page for every case, and a trace."
    )
    return Section("A pass", intro, blocks)


def _evenness(record: Record) -> float:
    load, compute = (record.metrics[name].value if name in record.metrics else 0.0 for name in ("load", "compute"))
    return min(load, compute) / max(load, compute, 1e-12)


def _picture(record: Record) -> Picture:
    profile = profile_of(record)
    assert profile is not None
    said = f"{way(record)}: {describe(profile)}"
    return Picture(pass_svg(profile, standalone=False), said, said)

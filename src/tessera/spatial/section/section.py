"""The halo exchange's part of the report: exchanges, what hides them, scaling, exactness, and a plan as a picture."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.errors import TesseraError
from tessera.report.blocks import Card, Picture, Section
from tessera.report.figures import format_percent, format_rate, format_seconds
from tessera.report.newest import newest_section
from tessera.report.runs import RunView
from tessera.results.record import Record
from tessera.spatial.bench.problem import Problem
from tessera.spatial.picture.plan import describe, plan_svg
from tessera.spatial.section.compute import compute_section
from tessera.spatial.section.exchange import exchange_section
from tessera.spatial.section.scaling import scaling_section
from tessera.spatial.section.validation import validation_section

MOST_DRAWN = 16  # workers of the picture: more of them are too small to read


def section(runs: Sequence[RunView]) -> Section:
    """Every halo case of the newest run; the comparison shows the others."""
    intro = (
        "Images that are cut over ranks: each rank has a tile, and a convolution reads pixels of its neighbours' "
        "tiles. What it costs to exchange them, how much of that a convolution hides, and whether the result is the "
        "uncut one. A time is that of the slowest rank in each iteration."
    )
    records = runs[-1].records
    parts = (
        exchange_section(records),
        compute_section(records),
        scaling_section(records),
        validation_section(records),
        _picture(records),
    )
    return newest_section("Halo exchange", intro, runs, cards=_cards(records), parts=parts)


def _cards(records: Sequence[Record]) -> list[Card]:
    found = []
    rates = [r.metrics["bandwidth"] for r in records if r.case.name == "exchange" and "bandwidth" in r.metrics]
    if rates:
        best = max(rate.value for rate in rates)
        found.append(Card("Fastest exchange", format_rate(best, "GB/s"), "received by one rank"))
    times = [r.metrics["time"].value for r in records if r.case.name == "exchange" and "time" in r.metrics]
    if times:
        found.append(Card("Shortest exchange", format_seconds(min(times)), "of the slowest rank"))
    shares = [r.metrics["efficiency"].value for r in records if "efficiency" in r.metrics]
    if shares:
        found.append(Card("Best efficiency", format_percent(max(shares)), "of the uncut convolution, same cores"))
    verdicts = [r.metrics["failed_ranks"].value for r in records if "failed_ranks" in r.metrics]
    if verdicts:
        wrong = sum(1 for count in verdicts if count)
        remark = f"of {len(verdicts)} validations"
        found.append(Card("Exact", f"{len(verdicts) - wrong}", remark, "bad" if wrong else "good"))
    return found


def _picture(records: Sequence[Record]) -> Section | None:
    """The plan of the case that shows most: both ways cut, and as many workers as can be drawn."""
    drawable = [problem for record in records if (problem := _problem(record)) and problem.parts <= MOST_DRAWN]
    cut = [problem for problem in drawable if problem.parts > 1]
    if not cut:
        return None
    chosen = max(cut, key=lambda p: (min(p.mesh.rows, p.mesh.cols), p.parts, p.image))
    plan = chosen.plan()
    said = describe(plan)
    intro = f"{said}. Each panel is a worker: its tile, and around it what its output reads besides."
    drawn = Picture(
        plan_svg(plan, standalone=False), f"Who sends what to whom: {said}", "Point at a box for its pixels."
    )
    return Section("A plan", intro, [drawn])


def _problem(record: Record) -> Problem | None:
    """The problem of a record; one of an older or a newer release may not be one here."""
    try:
        return Problem.of(record.case.params)
    except (TesseraError, KeyError):
        return None

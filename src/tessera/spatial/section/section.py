"""The report section of the halo feature: exchanges, overlap, scaling, validation, and the picture of a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tessera.errors import TesseraError
from tessera.report.blocks import Card, Picture, Section
from tessera.report.feature_section import build_feature_section
from tessera.report.figures import format_percent, format_rate, format_seconds
from tessera.report.runs import RunView
from tessera.results.record import Record
from tessera.spatial.picture.plan import describe_plan, draw_plan
from tessera.spatial.problem import HaloProblem
from tessera.spatial.section.compute import build_compute_section
from tessera.spatial.section.exchange import build_exchange_section
from tessera.spatial.section.network import build_network_section
from tessera.spatial.section.scaling import build_scaling_section
from tessera.spatial.section.validation import build_validation_section

MAX_DRAWN_WORKERS = 16  # with more workers, the panels of the picture are too small to read

MAX_DRAWN_PIXELS = 1 << 24  # larger images are not planned for the picture


def section(runs: Sequence[RunView]) -> Section:
    """Return the report section of the halo cases of the newest run; older runs appear only in the comparison."""
    intro = (
        "Images that are split over ranks: each rank has a tile, and a convolution reads pixels of its neighbours' "
        "tiles. The section shows the cost of the exchange, the share of it that a convolution hides, and whether the "
        "result equals the unsplit one. Each iteration takes the time of its slowest rank."
    )
    records = runs[-1].records
    parts = (
        build_exchange_section(records),
        build_compute_section(records),
        build_scaling_section(records),
        build_network_section(records),
        build_validation_section(records),
        _build_picture(records),
    )
    return build_feature_section("Halo exchange", intro, runs, cards=_build_cards(records), parts=parts)


def _build_cards(records: Sequence[Record]) -> list[Card]:
    cards = []
    rates = [r.metrics["bandwidth"] for r in records if r.case.name == "exchange" and "bandwidth" in r.metrics]
    if rates:
        best = max(rate.value for rate in rates)
        cards.append(Card("Fastest exchange", format_rate(best, "GB/s"), "received by one rank"))
    times = [r.metrics["time"].value for r in records if r.case.name == "exchange" and "time" in r.metrics]
    if times:
        cards.append(Card("Shortest exchange", format_seconds(min(times)), "of the slowest rank"))
    shares = [r.metrics["efficiency"].value for r in records if r.case.name == "compute" and "efficiency" in r.metrics]
    if shares:
        cards.append(Card("Best efficiency", format_percent(max(shares)), "of the unsplit convolution, same cores"))
    verdicts = [r.metrics["failed_ranks"].value for r in records if "failed_ranks" in r.metrics]
    if verdicts:
        wrong = sum(1 for count in verdicts if count)
        remark = f"of {len(verdicts)} validations"
        cards.append(Card("Exact", f"{len(verdicts) - wrong}", remark, "bad" if wrong else "good"))
    return cards


def _build_picture(records: Sequence[Record]) -> Section | None:
    """Draw the plan of one case: preferably a case split in both dims, with as many workers as can be drawn."""
    drawable = [
        problem
        for record in records
        if (problem := _parse_problem(record)) and problem.parts <= MAX_DRAWN_WORKERS and len(problem.image) == 2
        if math.prod(problem.image) * problem.batch <= MAX_DRAWN_PIXELS
    ]
    split_problems = [problem for problem in drawable if problem.parts > 1]
    if not split_problems:
        return None
    chosen = max(split_problems, key=lambda p: (min(p.mesh), p.parts, p.image))
    plan = chosen.plan()
    description = describe_plan(plan)
    intro = f"{description}. Each panel is a worker: its tile and, around it, the other pixels that its output reads."
    drawn = Picture(
        draw_plan(plan, standalone=False), f"Traffic of the plan: {description}", "Point at a box for its pixels."
    )
    return Section("A plan", intro, [drawn])


def _parse_problem(record: Record) -> HaloProblem | None:
    """Return the problem of a record; None if its parameters are invalid, as in records of other releases."""
    try:
        return HaloProblem.of(record.case.params)
    except (TesseraError, KeyError, TypeError, ValueError):
        return None

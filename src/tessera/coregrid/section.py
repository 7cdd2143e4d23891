"""The core grid's part of the report: fits, numbers, shards and halos, memory, timeline, candidates, networks."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.coregrid.cost.timeline import predicted, timeline
from tessera.coregrid.pictures.halos import describe, halos_svg
from tessera.coregrid.pictures.lanes import timeline_svg
from tessera.coregrid.pictures.memory_map import memory_svg
from tessera.coregrid.planning.plan import MB, ConvPlan
from tessera.coregrid.planning.search import Search
from tessera.coregrid.problem import Problem
from tessera.errors import TesseraError
from tessera.report.blocks import Card, Cell, Column, Heading, Picture, Row, Section, Table
from tessera.report.figures import format_bytes, format_percent, format_seconds
from tessera.report.newest import newest_section
from tessera.report.runs import RunView
from tessera.results.record import Record

MOST_DRAWN = 12  # rows of cores: beyond it the halos of a few stand for all, and small ones read better
MOST_CANDIDATES = 12


def section(runs: Sequence[RunView]) -> Section:
    """Every convolution case of the newest run; the comparison shows the others."""
    intro = (
        "Convolutions on a grid of cores with a small memory each. Each is planned for a described chip, executed here "
        "under a model of it that bounds every core's memory and counts every byte, and held against torch. Memory and "
        "bytes are counted and equal their prediction; the chip's time is predicted from its rates."
    )
    records = runs[-1].records
    shown = _shown(records)
    parts = [_networks(records)]
    if shown is not None:
        problem, plan = shown
        parts += [_halos(plan), _memory(plan), _timeline(plan), _candidates(problem)]
    return newest_section("Core grid", intro, runs, cards=_cards(records), parts=parts)


def _cards(records: Sequence[Record]) -> list[Card]:
    found = []
    checked = [record for record in records if "wrong" in record.metrics]
    if checked:
        wrong = sum(1 for record in checked if record.metrics["wrong"].value)
        remark = f"of {len(checked)} convolutions as torch has them"
        found.append(Card("Right", str(len(checked) - wrong), remark, "bad" if wrong else "good"))
        worst = min(record.metrics["pcc"].value for record in checked)
        found.append(Card("Least correlation", f"{worst:.6f}", "with torch's output"))
        off = sum(1 for record in checked if not _as_predicted(record))
        said = f"of {len(checked)} used just what was predicted"
        found.append(Card("Memory and bytes", str(len(checked) - off), said, "bad" if off else "good"))
    errors = [error for record in records if (error := _error(record)) is not None]
    if errors:
        worst = max(errors, key=abs)
        found.append(
            Card("Networks", format_percent(worst, signed=True), "the prediction furthest from what was published")
        )
    return found


def _as_predicted(record: Record) -> bool:
    names = ("high_water", "local", "remote", "multicast", "global")
    return all(record.metrics[name].value == record.predicted[name].value for name in names if name in record.predicted)


def _error(record: Record) -> float | None:
    said, known = (where.get("images_per_second") for where in (record.predicted, record.metrics))
    return said.value / known.value - 1 if said and known and known.value else None


def _networks(records: Sequence[Record]) -> Section | None:
    """Predicted images per second beside what was published."""
    rows: list[Row] = []
    for record in records:
        said = record.predicted.get("images_per_second")
        if said is None:
            continue
        known, error = record.metrics.get("images_per_second"), _error(record)
        params = record.case.params
        rows.append(
            [
                str(params.get("network", "")),
                str(params.get("machine", "")),
                Cell(str(params.get("batch_size", "")), float(params.get("batch_size", 0))),
                Cell(f"{said.value:,.0f}", said.value),
                Cell(f"{known.value:,.0f}", known.value) if known else Cell(""),
                Cell(format_percent(error, signed=True), error) if error is not None else Cell(""),
            ]
        )
    if not rows:
        return None
    columns: list[Heading] = [
        "network",
        "machine",
        Column("batch", "number"),
        Column("predicted images/s", "number"),
        Column("published images/s", "number"),
        Column("off by", "number"),
    ]
    intro = (
        "From the chips' rates alone: no factor is fitted to a network. What is published was measured by their maker."
    )
    return Section("Networks, predicted and published", intro, [Table(columns, rows)])


def _shown(records: Sequence[Record]) -> tuple[Problem, ConvPlan] | None:
    """The convolution that shows most: one with halos, on few enough rows of cores to see them."""
    best: tuple[Problem, ConvPlan] | None = None
    for record in records:
        if record.case.name != "conv2d" or record.status != "ok":
            continue
        try:
            problem = Problem.of(record.case.params)
            plan = problem.plan()
        except (TesseraError, KeyError):
            continue  # of an older or a newer release
        if best is None or _worth(plan) > _worth(best[1]):
            best = problem, plan
    return best


def _worth(plan: ConvPlan) -> tuple[bool, bool, int]:
    return plan.halo is not None and not plan.slices, plan.sharding.rows <= MOST_DRAWN, -plan.conv.width


def _halos(plan: ConvPlan) -> Section | None:
    if plan.haloing is None:
        return None
    drawn = Picture(
        halos_svg(plan, standalone=False), f"Shards and halos: {describe(plan)}", "Point at a run for its sticks."
    )
    return Section("Shards and halos", f"{describe(plan)}.", [drawn])


def _memory(plan: ConvPlan) -> Section:
    drawn = Picture(memory_svg(plan, standalone=False), f"Memory of a core: {plan.reason}")
    return Section("Memory of a core", f"{plan.reason}.", [drawn])


def _timeline(plan: ConvPlan) -> Section:
    when = predicted(plan)
    said = f"{format_seconds(when.seconds)} predicted, bound by the {when.bound}"
    return Section(
        "Timeline of the busiest core", f"{said}.", [Picture(timeline_svg(timeline(plan), standalone=False), said)]
    )


def _candidates(problem: Problem) -> Section:
    found = problem.search()
    intro = " ".join(f"{line[0].upper()}{line[1:]}." for line in found.explain())
    return Section("Candidates of the search", intro, [_table(found)])


def _table(found: Search) -> Table:
    columns: list[Heading] = [
        "setting",
        Column("fits", quick=True),
        Column("memory per core", "number"),
        Column("bytes moved", "number"),
        Column("predicted", "number"),
    ]
    rows: list[Row] = [
        [
            str(candidate),
            Cell("yes" if candidate.fits else "no", tone="" if candidate.fits else "muted"),
            Cell(f"{candidate.plan.high_water / MB:.2f} MB", candidate.plan.high_water),
            Cell(format_bytes(candidate.plan.ledger.total), candidate.plan.ledger.total),
            Cell(format_seconds(candidate.seconds), candidate.seconds),
        ]
        for candidate in found.candidates[:MOST_CANDIDATES]
    ]
    return Table(columns, rows, f"The first {len(rows)} of {len(found.candidates)}.")

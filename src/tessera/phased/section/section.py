"""The section of phased execution in the report: schedules side by side, balance of I/O and compute, timelines."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.phased.profile.pass_profile import get_profile
from tessera.phased.profile.picture import describe_pass, draw_pass
from tessera.phased.section.balance import build_balance_section
from tessera.phased.section.schedules import build_schedule_section, describe_variant, is_baseline, strip_schedule
from tessera.report.blocks import Block, Card, Picture, Section
from tessera.report.feature_section import build_feature_section
from tessera.report.figures import format_percent, format_rate
from tessera.report.runs import RunView
from tessera.results.record import Record

SECTION_INTRO = (
    "Networks whose weights do not fit into memory: they stay on disk or in host memory and are loaded into a small "
    "working memory phase by phase. If loading a phase overlaps with computing another, a phase takes the longer of "
    "both: the ideal is the sum over phases of max(I/O, compute), each measured in isolation. Efficiency is the ideal "
    "over the time."
)
MAX_TIMELINE_EVENTS = 400  # a timeline with more events is not readable


def build_section(runs: Sequence[RunView]) -> Section:
    """Return the section for the newest run only; the comparison section shows earlier runs."""
    measured = [record for record in runs[-1].records if record.status == "ok" and "time" in record.metrics]
    parts = (build_schedule_section(measured), build_balance_section(measured), build_timeline_section(measured))
    return build_feature_section("Phased execution", SECTION_INTRO, runs, cards=_build_cards(measured), parts=parts)


def _build_cards(records: Sequence[Record]) -> list[Card]:
    cards = []
    streamed = [record for record in records if "hidden" in record.metrics]
    overlapping = [record for record in streamed if not is_baseline(record.case)]
    if overlapping:
        best = max(overlapping, key=lambda record: record.metrics["efficiency"].value)
        schedule = str(best.case.params.get("schedule", ""))
        cards.append(
            Card("Best efficiency", format_percent(best.metrics["efficiency"].value), f"of the ideal, {schedule}")
        )
        most = max(record.metrics["hidden"].value for record in overlapping)
        cards.append(Card("Most hidden", format_percent(most), "of the loading time overlaps with computing"))
    rates = [record.metrics["bandwidth"].value for record in records if "bandwidth" in record.metrics]
    if rates:
        cards.append(Card("Fastest stream", format_rate(max(rates), "GB/s"), "of a phase in isolation"))
    shares = [
        record.metrics["working_memory"].value / record.metrics["weights"].value
        for record in streamed
        if record.metrics.get("weights") and record.metrics["weights"].value
    ]
    if shares:
        cards.append(
            Card("Smallest working memory", format_percent(min(shares)), "of the weights that are streamed through it")
        )
    return cards


def build_timeline_section(records: Sequence[Record]) -> Section | None:
    """Return the timeline of the case whose I/O and compute times are closest; None if no profile can be drawn."""
    drawable = [
        r for r in records if (p := get_profile(r)) is not None and len(p.events) <= MAX_TIMELINE_EVENTS and p.devices
    ]
    overlapping = [r for r in drawable if "hidden" in r.metrics and not is_baseline(r.case)]
    if not overlapping:
        return None
    # overlapping saves most if I/O and compute take equally long
    chosen = max(overlapping, key=lambda r: (_compute_balance_ratio(r), r.metrics["phases"].value))
    baselines = [
        record
        for record in drawable
        if strip_schedule(record.case).key == strip_schedule(chosen.case).key
        and is_baseline(record.case)
        and record.details.get("storage") == chosen.details.get("storage")
    ]
    blocks: list[Block] = [_draw_record(record) for record in (chosen, *baselines[:1])]
    intro = (
        "One pass, with a lane for each device and kind of work. Tinted spans are idle; the mark is the end of an "
        "ideal pass. `tessera phases --profile` writes such a page for every case, and a trace."
    )
    return Section("A pass", intro, blocks)


def _compute_balance_ratio(record: Record) -> float:
    load, compute = (record.metrics[name].value if name in record.metrics else 0.0 for name in ("load", "compute"))
    return min(load, compute) / max(load, compute, 1e-12)


def _draw_record(record: Record) -> Picture:
    profile = get_profile(record)
    assert profile is not None
    caption = f"{describe_variant(record)}: {describe_pass(profile)}"
    return Picture(draw_pass(profile, standalone=False), caption, caption)

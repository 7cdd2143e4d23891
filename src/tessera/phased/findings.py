"""Findings on streamed weights: the best schedule beside the baseline, and streaming beside weights in memory."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.phased.section.schedules import is_baseline, strip_schedule
from tessera.report.figures import format_percent
from tessera.report.findings import Finding, compare_records, format_estimate, get_speedup, make_time_bar
from tessera.results.record import Record


def find_in_phases(records: Sequence[Record]) -> list[Finding]:
    """Return the findings on phased records."""
    measured = [record for record in records if record.status == "ok" and record.launches]
    return [*find_best_schedule(measured), *find_streaming_cost(measured)]


def _get_schedule(record: Record) -> str:
    return str(record.case.params.get("schedule", ""))


def _is_streamed(record: Record) -> bool:
    return "load" in record.metrics


def _pair_with(records: Sequence[Record], bases: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Return (base, record) for each record with a base of the same network and batches."""
    return [
        (base, record)
        for record in records
        for base in bases
        if record is not base and strip_schedule(base.case).key == strip_schedule(record.case).key
    ]


def find_best_schedule(records: Sequence[Record]) -> list[Finding]:
    """Return the schedule that certainly gains most over loading and computing in turn."""
    streamed = [record for record in records if _is_streamed(record)]
    pairs = _pair_with(streamed, [record for record in streamed if is_baseline(record.case)])
    gains = [
        (base, other, gain)
        for (base, other), judged in zip(pairs, compare_records(pairs), strict=True)
        if (gain := get_speedup(judged)) and gain.value > 1
    ]
    if not gains:
        return []
    base, best, gain = max(gains, key=lambda each: each[2].value)
    hidden = best.metrics.get("hidden")
    text = (
        f"For streamed weights of {best.case.name}, schedule {_get_schedule(best)} is {format_estimate(gain)} as fast "
        f"as {_get_schedule(base)}"
    )
    text += f"; {format_percent(hidden.value)} of the loading is hidden." if hidden else "."
    bars = (make_time_bar(_get_schedule(best), best), make_time_bar(_get_schedule(base), base))
    return [Finding(feature="phases", text=text, command="tessera phases --schedule all", bars=bars)]


def find_streaming_cost(records: Sequence[Record]) -> list[Finding]:
    """Return the certain cost of streaming a network, beside the same network with all weights in memory."""
    streamed = [record for record in records if _is_streamed(record) and not is_baseline(record.case)]
    pairs = _pair_with(streamed, [record for record in records if not _is_streamed(record)])
    costs = [
        (base, other, gain.invert())
        for (base, other), judged in zip(pairs, compare_records(pairs), strict=True)
        if (gain := get_speedup(judged))
    ]
    networks = [each for each in costs if each[1].metrics.get("working_memory") and each[1].metrics.get("weights")]
    if not networks:
        return []
    base, best, cost = max(networks, key=lambda each: (each[1].metrics["phases"].value, -each[2].value))
    share = best.metrics["working_memory"].value / best.metrics["weights"].value
    text = (
        f"{best.case.name} with {format_percent(share)} of its weights in memory ({_get_schedule(best)}) takes "
        f"{format_estimate(cost)} of the time with all weights in memory."
    )
    name = "" if best.case.name == "chain" else f" --model {best.case.name}"
    bars = (make_time_bar(_get_schedule(best), best), make_time_bar(_get_schedule(base), base))
    command = f"tessera phases{name} --schedule {_get_schedule(best)} --profile"
    return [Finding(feature="phases", text=text, command=command, bars=bars)]

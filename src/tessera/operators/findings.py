"""Findings on operators: distance from the roofline, the fastest backend, fused kernels, unusual inputs."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence

from tessera.measure.statistics import Estimate
from tessera.operators.check import same_work
from tessera.operators.section.categories import MAIN_BACKEND
from tessera.report.figures import format_percent, format_seconds
from tessera.report.findings import (
    MIN_DIFFERENCE,
    Bar,
    Finding,
    compare_records,
    estimate_precisely,
    format_estimate,
    get_speedup,
    group_variants,
    make_time_bar,
    name_record,
)
from tessera.results.record import Record

# Below this predicted time, the overhead of a call is longer than its work.
MIN_PREDICTED_SECONDS = 20e-6
# An operator is far from the roofline if it reaches less than this fraction of the median share of all operators.
FAR_FRACTION = 0.5
MAX_BARS = 4
# A case above this share of its roofline contradicts the calibration, unless its data are in a cache.
STALE_SHARE = 1.1
# With more than this fraction of the large cases above the roofline, the calibration is too slow for this machine.
MAX_STALE_FRACTION = 0.25


def find_in_operators(records: Sequence[Record]) -> list[Finding]:
    """Return the findings on operator records."""
    plain = [record for record in records if record.status == "ok" and record.launches]
    return [
        *find_stale_calibration(plain),
        *find_furthest_from_roofline(plain),
        *find_fastest_backends(plain),
        *find_fusion_gains(plain),
        *find_input_effects(plain),
    ]


def _name(record: Record, records: Sequence[Record], *omitted: str) -> str:
    """Return the short name of a record, without the backend if it is the main one."""
    main = record.case.params.get("backend") == MAIN_BACKEND
    same = [each for each in records if each.case.params.get("backend") == MAIN_BACKEND] if main else records
    return name_record(record, same, *omitted)


def _select_large(records: Sequence[Record]) -> list[Record]:
    """Return the records with a predicted time that is longer than the overhead of a call."""
    return [
        record
        for record in records
        if "roofline" in record.metrics
        and record.predicted.get("time") is not None
        and record.predicted["time"].value >= MIN_PREDICTED_SECONDS
    ]


def find_stale_calibration(records: Sequence[Record]) -> list[Finding]:
    """Return a finding if many operators are certainly faster than the calibrated rates allow."""
    large = _select_large(records)
    above = [record for record in large if (share := _estimate_roofline(record)) and share.low > STALE_SHARE]
    if len(above) <= MAX_STALE_FRACTION * len(large):
        return []
    worst = max(above, key=lambda record: record.metrics["roofline"].value)
    share = _estimate_roofline(worst)
    assert share is not None
    text = (
        f"The calibration is stale: {len(above)} of {len(large)} operators are faster than the calibrated rates allow, "
        f"{_name(worst, records)} by {format_estimate(share)}."
    )
    return [Finding(feature="ops", text=text, command="tessera doctor --calibrate")]


def _estimate_roofline(record: Record) -> Estimate | None:
    """Return the share of the roofline that a record reaches, with its interval."""
    seconds = estimate_precisely(record)
    return None if seconds is None else seconds.invert().scale(record.predicted["time"].value)


def find_furthest_from_roofline(records: Sequence[Record]) -> list[Finding]:
    """Return the operator that reaches the smallest share of its roofline, if it is far below the other operators."""
    large = _select_large(records)
    shares = [(record, share) for record in large if (share := _estimate_roofline(record))]
    if len(shares) < 3:
        return []
    middle = statistics.median(share.value for _, share in shares)
    ranked = sorted(shares, key=lambda pair: pair[1].value)
    worst, share = ranked[0]
    if share.high >= FAR_FRACTION * min(1.0, middle):
        return []
    text = (
        f"{_name(worst, records)} is furthest from the roofline: it reaches "
        f"{format_estimate(share, format_percent)} of what this machine's memory and compute rates allow; the median "
        f"of {len(shares)} operators is {_format_share(middle)}."
    )
    command = f"tessera ops {worst.case.name} --size {worst.case.params.get('size', 'medium')}"
    bars = tuple(
        Bar(label=_name(r, records), value=s.value, text=format_percent(s.value), low=s.low, high=s.high)
        for r, s in ranked[:MAX_BARS]
    )
    return [Finding(feature="ops", text=text, command=command, bars=bars)]


def _format_share(share: float) -> str:
    return "above 100%" if share > 1 else format_percent(share)


def find_fastest_backends(records: Sequence[Record]) -> list[Finding]:
    """Return how often each backend is certainly the fastest, and the largest certain difference from torch."""
    groups = group_variants(records, "backend")
    pairs = [
        (base, other)
        for group in groups
        for base in group[:1]
        for other in group[1:]
        if base.case.params.get("backend") != other.case.params.get("backend") and same_work(base, other)
    ]
    gains = [
        (base, other, gain)
        for (base, other), judged in zip(pairs, compare_records(pairs), strict=True)
        if (gain := get_speedup(judged))
    ]
    if not gains:
        return []
    base, other, gain = max(gains, key=lambda each: max(each[2].value, 1 / each[2].value))
    if gain.value < 1:
        base, other, gain = other, base, gain.invert()
    wins = Counter(str((o if g.value > 1 else b).case.params["backend"]) for b, o, g in gains)
    name, slow, fast = name_record(base, records, "backend"), *(r.case.params["backend"] for r in (base, other))
    counted = ", ".join(f"{backend} in {count}" for backend, count in wins.most_common())
    text = (
        f"The fastest backend depends on the operator: {counted} of {len(pairs)} pairs "
        f"({len(pairs) - len(gains)} undecided). Largest difference: {name} is {format_estimate(gain)} as fast on "
        f"{fast} as on {slow}."
    )
    command = f"tessera ops {base.case.name} --backend {slow},{fast} --size {base.case.params.get('size', 'medium')}"
    bars = (make_time_bar(f"{name}, {fast}", other), make_time_bar(f"{name}, {slow}", base))
    return [Finding(feature="ops", text=text, command=command, bars=bars)]


def find_fusion_gains(records: Sequence[Record]) -> list[Finding]:
    """Return the fused kernel with the largest certain gain over its separate steps."""
    gains = [
        (
            record,
            Estimate(value=metrics["gain"].value, low=metrics["gain_low"].value, high=metrics["gain_high"].value),
        )
        for record in records
        if {"gain", "gain_low", "gain_high", "unfused"} <= (metrics := record.metrics).keys()
    ]
    sure = [(record, gain) for record, gain in gains if gain.low > 1 + MIN_DIFFERENCE and gain.relative < 1]
    if not sure:
        return []
    record, gain = max(sure, key=lambda pair: pair[1].value)
    name = _name(record, records, "fusion")
    text = f"As one kernel, {name} is {format_estimate(gain)} as fast as its separate steps."
    bars = (
        make_time_bar("one kernel", record),
        Bar(
            label="separate steps",
            value=record.metrics["unfused"].value,
            text=format_seconds(record.metrics["unfused"].value),
        ),
    )
    command = f"tessera ops {record.case.name} --fusion library"
    return [Finding(feature="ops", text=text, command=command, bars=bars)]


def find_input_effects(records: Sequence[Record]) -> list[Finding]:
    """Return the operator whose time certainly depends most on the kind of its inputs (sorted, strided, …)."""
    pairs = [
        (base, other)
        for group in group_variants(records, "skew")
        for base in group
        if "skew" not in base.case.params
        for other in group
        if "skew" in other.case.params
    ]
    effects = [
        (base, other, gain)
        for (base, other), judged in zip(pairs, compare_records(pairs), strict=True)
        if (gain := get_speedup(judged))
    ]
    if not effects:
        return []
    base, other, gain = max(effects, key=lambda each: max(each[2].value, 1 / each[2].value))
    name, skew = _name(base, records, "skew"), str(other.case.params["skew"])
    factor, how = (gain, "fast") if gain.value > 1 else (gain.invert(), "slow")
    text = f"The inputs matter: on {skew} inputs, {name} is {format_estimate(factor)} as {how} as on random inputs."
    bars = (make_time_bar(f"{skew} inputs", other), make_time_bar("random inputs", base))
    command = f"tessera ops {base.case.name} --skew {skew} --size {base.case.params.get('size', 'medium')}"
    return [Finding(feature="ops", text=text, command=command, bars=bars)]

"""Findings on inference: the fastest engine beside plain torch, and the scaling over replicas."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.measure.statistics import Estimate
from tessera.report.figures import format_rate
from tessera.report.findings import (
    Bar,
    Finding,
    compare_records,
    format_estimate,
    group_variants,
    make_bar,
)
from tessera.results.judgement import Judgement
from tessera.results.record import Record

PLAIN_ENGINE = "torch-eager"


def find_in_inference(records: Sequence[Record]) -> list[Finding]:
    """Return the findings on inference records."""
    rates = [record for record in records if record.status == "ok" and record.unit == "images/s" and record.launches]
    return [*find_best_engine(rates), *find_scaling(rates)]


def _get_ratio(judged: Judgement) -> Estimate | None:
    """Return the ratio of two rates; None unless noise cannot explain it."""
    if judged.verdict not in ("faster", "slower") or judged.low is None or judged.high is None:
        return None
    return Estimate(value=judged.ratio, low=judged.low, high=judged.high)


def _make_rate_bar(label: str, record: Record) -> Bar:
    return make_bar(label, record, lambda rate: format_rate(rate, "images/s"))


def find_best_engine(records: Sequence[Record]) -> list[Finding]:
    """Return the engine that is certainly fastest, beside plain torch (or the first engine)."""
    pairs = []
    for group in group_variants(records, "engine"):
        base = next((r for r in group if r.case.params.get("engine") == PLAIN_ENGINE), group[0])
        pairs += [(base, record) for record in group if record is not base]
    gains = [
        (base, other, ratio)
        for (base, other), judged in zip(pairs, compare_records(pairs), strict=True)
        if (ratio := _get_ratio(judged))
    ]
    if not gains:
        return []
    base, best, ratio = max(gains, key=lambda each: max(each[2].value, 1 / each[2].value))
    if ratio.value < 1:
        base, best, ratio = best, base, ratio.invert()
    fast, slow = (str(record.case.params.get("engine")) for record in (best, base))
    batch = best.case.params.get("batch_size")
    text = f"Engine {fast} runs {best.case.name} at batch {batch} {format_estimate(ratio)} as fast as {slow}."
    bars = (_make_rate_bar(fast, best), _make_rate_bar(slow, base))
    command = f"tessera infer --model {best.case.name} --tune"
    return [Finding(feature="infer", text=text, command=command, bars=bars)]


def find_scaling(records: Sequence[Record]) -> list[Finding]:
    """Return the certain gain of several replicas over one."""
    pairs = []
    for group in group_variants(records, "num_replicas"):
        single = [record for record in group if record.case.params.get("num_replicas") == 1]
        pairs += [(single[0], record) for record in group if single and record is not single[0]]
    gains = [
        (base, other, ratio)
        for (base, other), judged in zip(pairs, compare_records(pairs), strict=True)
        if (ratio := _get_ratio(judged))
    ]
    if not gains:
        return []
    base, best, ratio = max(gains, key=lambda each: each[2].value)
    count, params = best.case.params["num_replicas"], best.case.params
    text = (
        f"{count} replicas of {best.case.name} in {params.get('engine')} give {format_estimate(ratio)} the rate of one."
    )
    bars = (_make_rate_bar(f"{count} replicas", best), _make_rate_bar("1 replica", base))
    command = f"tessera infer --model {best.case.name} --engine {params.get('engine')} --sweep num-replicas=1,{count}"
    return [Finding(feature="infer", text=text, command=command, bars=bars)]

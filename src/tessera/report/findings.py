"""Findings: one sentence each about what a run shows, with a number, its interval, a comparison and a command.

Every feature has rules that derive findings from its records. A rule compares launches (`compare_records`), or uses the
interval of one record (`estimate_figure`). If noise can explain a difference, the rule returns no finding.
"""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tessera.measure.statistics import Estimate, summarize
from tessera.report.figures import format_factor, format_percent, format_seconds
from tessera.report.measured import summarize_record
from tessera.report.naming import name_cases
from tessera.results.judgement import Judgement, ValuePair, judge_pairs
from tessera.results.observation import make_observation
from tessera.results.record import Record

CONFIDENCE_ALPHA = 0.05
# The smallest relative difference that is a finding.
MIN_DIFFERENCE = 0.05
# A figure with a wider interval (relative half-width) is not quoted.
MAX_MARGIN = 0.25
MAX_PER_FEATURE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar of the small plot of a finding: label, length, the bounds of its interval, and its text."""

    label: str
    value: float
    text: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One result of a run: its feature, a sentence, the command that shows more, and the bars of its plot."""

    feature: str
    text: str
    command: str
    bars: tuple[Bar, ...] = ()


FindingRule = Callable[[Sequence[Record]], list[Finding]]


def estimate_figure(record: Record) -> Estimate | None:
    """Return the figure of a record (a time or a rate) with its interval; None for fewer than two launches.

    The value is the median of the launches' medians, as in tables. The launch is the sampling unit: the interval is
    that of the mean logarithm of the launches' medians.
    """
    from scipy.special import stdtrit

    values = [summarize(launch.values).median for launch in record.launches if launch.values]
    if record.status != "ok" or len(values) < 2 or min(values) <= 0:
        return None
    logs = [math.log(value) for value in values]
    mean = math.fsum(logs) / len(logs)
    variance = math.fsum((log - mean) ** 2 for log in logs) / (len(logs) - 1)
    half = float(stdtrit(len(logs) - 1, 1 - CONFIDENCE_ALPHA / 2)) * math.sqrt(variance / len(logs))
    if half > 100:
        return None
    middle = statistics.median(values)
    return Estimate(middle, min(middle, math.exp(mean - half)), max(middle, math.exp(mean + half)))


def estimate_precisely(record: Record) -> Estimate | None:
    """Return the figure of a record with its interval; None if the interval is wider than `MAX_MARGIN`."""
    estimate = estimate_figure(record)
    return estimate if estimate is not None and estimate.relative <= MAX_MARGIN else None


def compare_records(pairs: Sequence[tuple[Record, Record]]) -> list[Judgement]:
    """Compare the records of each pair; the ratio is the second record over the first.

    All pairs of a rule are judged together, with the false discovery rate controlled over them.
    """
    values = [
        ValuePair(before=make_observation(a).figures, after=make_observation(b).figures, direction=a.direction)
        for a, b in pairs
    ]
    usable = [pair if pair.before and pair.after else None for pair in values]
    judged = iter(judge_pairs([p for p in usable if p], threshold=MIN_DIFFERENCE, alpha=CONFIDENCE_ALPHA))
    missing = Judgement(verdict="unresolved", ratio=math.nan, why="a record has no samples")
    return [next(judged) if pair else missing for pair in usable]


def get_speedup(judgement: Judgement) -> Estimate | None:
    """Return how many times as fast the second record is as the first; None unless noise cannot explain it.

    For times only: below 1, the second record is slower.
    """
    if judgement.verdict not in ("faster", "slower") or judgement.low is None or judgement.high is None:
        return None
    return Estimate(value=judgement.ratio, low=judgement.low, high=judgement.high).invert()


def group_variants(records: Iterable[Record], *params: str) -> list[list[Record]]:
    """Group measured records that differ only in `params`; groups of a single record are left out."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        if record.status == "ok" and record.launches:
            groups.setdefault(record.case.without(*params).key, []).append(record)
    return [group for group in groups.values() if len(group) > 1]


def format_estimate(estimate: Estimate, format_one: Callable[[float], str] = format_factor) -> str:
    """Format an estimate with its interval.

    >>> format_estimate(Estimate(value=2.0, low=1.9, high=2.125))
    '2.00x (1.90x to 2.12x)'
    """
    return f"{format_one(estimate.value)} ({format_one(estimate.low)} to {format_one(estimate.high)})"


def make_time_bar(label: str, record: Record) -> Bar:
    """Return the bar of a record's time, with the range of its launches."""
    return make_bar(label, record, format_seconds)


def make_bar(label: str, record: Record, format_one: Callable[[float], str]) -> Bar:
    """Return the bar of a record's median, with the range of its launches."""
    summary = summarize_record(record)
    assert summary is not None
    return Bar(label=label, value=summary.median, text=format_one(summary.median), low=summary.low, high=summary.high)


def name_record(record: Record, records: Sequence[Record], *omitted: str) -> str:
    """Return the short name of a record among others, without the parameters `omitted`."""
    cases = [each.case.without(*omitted) for each in records]
    return name_cases(cases)[record.case.without(*omitted).key].words


def collect_findings(records: Sequence[Record], rules: Mapping[str, FindingRule]) -> list[Finding]:
    """Return the findings of all features, in order of the records' features, then the finding on noise."""
    findings: list[Finding] = []
    for feature in dict.fromkeys(record.case.feature for record in records):
        if feature in rules:
            findings += rules[feature]([r for r in records if r.case.feature == feature])[:MAX_PER_FEATURE]
    return [*findings, *find_noise(records)]


def find_noise(records: Sequence[Record]) -> list[Finding]:
    """Return the finding on figures that are too noisy to be compared; empty if there are none."""
    measured = [(r, summary) for r in records if r.status == "ok" and (summary := summarize_record(r))]
    noisy = [(record, summary) for record, summary in measured if summary.noise]
    if not noisy:
        return []
    known = [(record, summary.relative) for record, summary in noisy if summary.relative is not None]
    text = f"{len(noisy)} of {len(measured)} figures are too noisy to be compared"
    if known:
        worst, margin = max(known, key=lambda pair: pair[1])
        text += f"; the widest is {worst.case.feature} {name_record(worst, [r for r, _ in measured])}"
        text += f", ± {format_percent(margin)}" if margin <= 1 else ", which varies by more than its own value"
    return [Finding(feature="noise", text=text + ".", command="tessera doctor")]


def format_findings(findings: Sequence[Finding], width: int) -> list[str]:
    """Return the lines of a list of findings for a terminal; the command of each is on its own line."""
    lines = ["Findings" if findings else "Findings: none that noise could not explain"]
    for number, finding in enumerate(findings, 1):
        lead = f"{number:>2}. "
        lines += textwrap.wrap(finding.text, width, initial_indent=lead, subsequent_indent="    ")
        lines.append(f"    > {finding.command}")
    return lines

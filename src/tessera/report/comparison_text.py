"""A comparison as text: what matters first, the rest as counts, or everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from tessera.report.figures import format_percent, format_value
from tessera.report.tables import Column, Form, render, show
from tessera.results.compare import Apart, Compared, Comparison
from tessera.results.verdict import VERDICTS

# Reasons for a case to stand apart that nobody wants to miss.
_URGENT = ("newly failed", "newly refused")

_CASES = (
    Column("verdict"),
    Column("case"),
    Column("A", "right"),
    Column("B", "right"),
    Column("change", "right"),
    Column("why"),
)
_APART = (Column("kind"), Column("case"), Column("reason"))
_RAW = (
    *("key", "verdict", "ratio", "low", "high", "smallest", "p", "unit", "direction", "before", "after"),
    *("launches_a", "launches_b", "why"),
)


@dataclass(frozen=True, slots=True)
class Names:
    """What the two runs are called, e.g. `nightly, 2026-11-15`."""

    a: str
    b: str


def write_comparison(
    comparison: Comparison, names: Names, form: Form, stream: TextIO, *, everything: bool = False
) -> None:
    """Header, cases and summary for the terminal or in Markdown; CSV has one row for each case."""
    if form == "csv":
        render([Column(name) for name in _RAW], _raw_rows(comparison), "csv", stream)
        return
    # A blank line parts the blocks; in the terminal, tables bring their own.
    gap = "\n" if form == "markdown" else ""
    _lines(_header(comparison, names), form, stream)
    stream.write(gap)
    shown = [case for verdict in VERDICTS for case in comparison.of(verdict) if everything or _matters(case)]
    if shown:
        render(_CASES, [_case_row(case) for case in shown], form, stream)
        stream.write(gap)
    apart = [case for case in comparison.apart if everything or case.kind in _URGENT]
    if apart:
        rows = [(case.kind, case.key, case.reason) for case in apart]
        render(_APART, rows, form, stream, title="not compared")
        stream.write(gap)
    _lines(_summary(comparison, hidden=not everything), form, stream)


def _matters(case: Compared) -> bool:
    """Changes, and unresolved cases where something did change."""
    return case.verdict in ("slower", "faster") or (case.verdict == "unresolved" and case.judgement.changed)


def _case_row(case: Compared) -> tuple[str, ...]:
    return (
        case.verdict,
        case.key,
        format_value(case.before, case.unit),
        format_value(case.after, case.unit),
        format_percent(case.judgement.ratio - 1, signed=True),
        case.judgement.why,
    )


def _header(comparison: Comparison, names: Names) -> Iterator[str]:
    yield f"A: {names.a}"
    yield f"B: {names.b}"
    for difference in comparison.software:
        yield f"{difference.name}: {difference.before} in A, {difference.after} in B"
    if comparison.moved_together is not None:
        change = format_percent(comparison.moved_together - 1, signed=True)
        yield f"half of all cases changed by {change} or more: look at the machine and the libraries first"


def _summary(comparison: Comparison, *, hidden: bool) -> Iterator[str]:
    counts = Counter(case.verdict for case in comparison.cases)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    threshold = format_percent(comparison.threshold)
    yield f"{len(comparison.cases):,} compared, threshold {threshold}: {verdicts} (changes are B over A)"
    if missed := [c.judgement.smallest for c in comparison.of("unresolved") if c.judgement.smallest is not None]:
        low, high = format_percent(min(missed)), format_percent(max(missed))
        span = low if low == high else f"{low} to {high}"
        yield f"smallest change visible in the unresolved: {span}; more launches make smaller ones visible"
    elif alone := [case for case in comparison.of("unresolved") if case.judgement.smallest is None]:
        yield f"unresolved: {alone[0].judgement.why}"
    if comparison.apart:
        kinds = Counter(case.kind for case in comparison.apart)
        listed = ", ".join(f"{count} {_MEANING[kind]}" for kind, count in kinds.items())
        unlisted = hidden and any(kind not in _URGENT for kind in kinds)
        yield f"not compared: {listed}" + ("; --all lists them" if unlisted else "")


_MEANING = {
    "newly failed": "newly failed",
    "newly refused": "newly refused",
    "mended": "mended in B",
    "not measured": "measured in neither",
    "only in A": "only in A",
    "only in B": "only in B",
    "version": "with an edited benchmark",
    "unit": "with another unit",
    "fingerprint": "under other conditions",
    "figure": "without a figure to compare",
}


def _lines(lines: Iterator[str], form: Form, stream: TextIO) -> None:
    if form == "markdown":
        stream.write("".join(f"- {line}\n" for line in lines))
        return
    for line in lines:
        show(line, stream)


def _raw_rows(comparison: Comparison) -> Iterator[Sequence[object]]:
    for case in comparison.cases:
        j = case.judgement
        yield (
            *(case.key, j.verdict, j.ratio, j.low, j.high, j.smallest, j.p, case.unit, case.direction),
            *(case.before, case.after, *case.launches, j.why),
        )
    for apart in comparison.apart:
        yield _apart_row(apart)


def _apart_row(apart: Apart) -> Sequence[object]:
    cells: dict[str, object] = dict.fromkeys(_RAW)
    cells |= {"key": apart.key, "verdict": apart.kind, "why": apart.reason}
    return tuple(cells.values())

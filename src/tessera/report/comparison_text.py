"""A comparison as text: header, changed cases and a summary with counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TextIO

from tessera.report.blocks import Column
from tessera.report.figures import format_change, format_percent, format_value
from tessera.report.tables import OutputFormat, write_lines, write_rows
from tessera.results.compare import ComparedCase, Comparison, ExcludedCase
from tessera.results.judgement import VERDICTS

# Cases that are not compared for these reasons are always listed.
_ALWAYS_LISTED_KINDS = ("newly failed", "newly refused")

_CASE_COLUMNS = (
    Column("verdict"),
    Column("case"),
    Column("A", "number"),
    Column("B", "number"),
    Column("change", "number"),
    Column("why", "prose"),
)
_EXCLUDED_COLUMNS = (Column("kind"), Column("case"), Column("reason", "prose"))
_CSV_COLUMNS = (
    *("key", "verdict", "ratio", "low", "high", "smallest", "p", "unit", "direction", "before", "after"),
    *("launches_a", "launches_b", "why"),
)


@dataclass(frozen=True, slots=True)
class RunTitles:
    """The titles of the two runs, e.g. `nightly, 2026-11-15`."""

    a: str
    b: str


def write_comparison(
    comparison: Comparison, names: RunTitles, output_format: OutputFormat, stream: TextIO, *, everything: bool = False
) -> None:
    """Write header, cases and summary for the terminal or as Markdown; CSV has one row per case."""
    if output_format == "csv":
        write_rows([Column(name) for name in _CSV_COLUMNS], _iter_csv_rows(comparison), "csv", stream)
        return
    # A blank line separates the blocks; in the terminal, tables already begin with one.
    gap = "\n" if output_format == "markdown" else ""
    write_lines(_iter_header(comparison, names), output_format, stream)
    stream.write(gap)
    shown = [case for verdict in VERDICTS for case in comparison.get_cases(verdict) if everything or _is_relevant(case)]
    if shown:
        write_rows(_CASE_COLUMNS, [_format_case(case) for case in shown], output_format, stream)
        stream.write(gap)
    excluded = [case for case in comparison.excluded if everything or case.kind in _ALWAYS_LISTED_KINDS]
    if excluded:
        rows = [(case.kind, case.key, case.reason) for case in excluded]
        write_rows(_EXCLUDED_COLUMNS, rows, output_format, stream, title="not compared")
        stream.write(gap)
    write_lines(_iter_summary(comparison, hidden=not everything), output_format, stream)


def _is_relevant(case: ComparedCase) -> bool:
    """Return whether a case is listed by default: changed, or unresolved with an interval that excludes ratio 1."""
    return case.verdict in ("slower", "faster") or (case.verdict == "unresolved" and case.judgement.changed)


def _format_case(case: ComparedCase) -> tuple[str, ...]:
    return (
        case.verdict,
        case.key,
        format_value(case.before, case.unit),
        format_value(case.after, case.unit),
        format_change(case.judgement.ratio - 1),
        case.judgement.why,
    )


def _iter_header(comparison: Comparison, names: RunTitles) -> Iterator[str]:
    yield f"A: {names.a}"
    yield f"B: {names.b}"
    for difference in comparison.software:
        yield f"{difference.name}: {difference.before} in A, {difference.after} in B"
    if comparison.common_ratio is not None:
        change = format_change(comparison.common_ratio - 1)
        yield f"half of all cases changed by {change} or more: check the machine and the libraries first"


def _iter_summary(comparison: Comparison, *, hidden: bool) -> Iterator[str]:
    counts = Counter(case.verdict for case in comparison.cases)
    verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    threshold = format_percent(comparison.threshold)
    yield f"{len(comparison.cases):,} compared, threshold {threshold}: {verdicts} (changes are B relative to A)"
    if missed := [c.judgement.smallest for c in comparison.get_cases("unresolved") if c.judgement.smallest is not None]:
        low, high = format_percent(min(missed)), format_percent(max(missed))
        span = low if low == high else f"{low} to {high}"
        yield f"smallest detectable change of unresolved cases: {span}; more launches detect smaller changes"
    elif alone := [case for case in comparison.get_cases("unresolved") if case.judgement.smallest is None]:
        yield f"unresolved: {alone[0].judgement.why}"
    if comparison.excluded:
        kinds = Counter(case.kind for case in comparison.excluded)
        listed = ", ".join(f"{count} {_EXCLUSION_TEXTS[kind]}" for kind, count in kinds.items())
        unlisted = hidden and any(kind not in _ALWAYS_LISTED_KINDS for kind in kinds)
        yield f"not compared: {listed}" + ("; --all lists them" if unlisted else "")


_EXCLUSION_TEXTS = {
    "newly failed": "newly failed",
    "newly refused": "newly refused",
    "fixed": "fixed in B",
    "not measured": "measured in neither run",
    "only in A": "only in A",
    "only in B": "only in B",
    "version": "with an edited benchmark",
    "unit": "with another unit",
    "device": "on another device",
    "fingerprint": "under other conditions",
    "figure": "without a comparable value",
}


def _iter_csv_rows(comparison: Comparison) -> Iterator[Sequence[object]]:
    for case in comparison.cases:
        j = case.judgement
        yield (
            *(case.key, j.verdict, j.ratio, j.low, j.high, j.smallest, j.p, case.unit, case.direction),
            *(case.before, case.after, *case.launches, j.why),
        )
    for excluded in comparison.excluded:
        yield _make_excluded_row(excluded)


def _make_excluded_row(excluded: ExcludedCase) -> Sequence[object]:
    cells: dict[str, object] = dict.fromkeys(_CSV_COLUMNS)
    cells |= {"key": excluded.key, "verdict": excluded.kind, "why": excluded.reason}
    return tuple(cells.values())

"""The comparison section of the page: every run compared with the first run, which is the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.measure.statistics import Verdict
from tessera.report.blocks import Block, Card, Cards, Cell, Column, Columns, Plot, Section, Table, Text, Tone, tabulate
from tessera.report.cells import EMPTY_CELL, make_share_cell, make_value_cell
from tessera.report.figures import format_change, format_percent
from tessera.report.naming import CaseNames, name_cases_of_runs
from tessera.report.plots import make_error_bars, make_row_layout
from tessera.report.runs import RunView
from tessera.results.compare import ComparedCase, Comparison, ExcludedCase, compare
from tessera.results.judgement import VERDICTS

VERDICT_TONES: dict[Verdict, Tone] = {"slower": "bad", "faster": "good", "same": "muted", "unresolved": "warn"}
VERDICT_REMARKS: dict[Verdict, str] = {
    "slower": "by more than the threshold",
    "faster": "by more than the threshold",
    "unresolved": "not enough data to decide",
    "same": "within the threshold",
}

RunComparisons = Sequence[tuple[RunView, Comparison]]


def compare_with_first(runs: Sequence[RunView], threshold: float) -> list[tuple[RunView, Comparison]]:
    """Compare every later run with the first run, which is the baseline."""
    base, *others = runs
    return [(run, compare(base.records, run.records, threshold=threshold)) for run in others]


def build_comparison_cards(comparisons: RunComparisons) -> list[Card]:
    """Build the summary cards with the numbers of changed cases."""
    slower = sum(len(result.get_cases("slower")) for _, result in comparisons)
    faster = sum(len(result.get_cases("faster")) for _, result in comparisons)
    failed = sum(len(result.newly_failed) for _, result in comparisons)
    remark = f"and {failed:,} newly failed" if failed else "than the baseline"
    return [
        Card("Slower", f"{slower:,}", remark, "bad" if slower or failed else "muted"),
        Card("Faster", f"{faster:,}", "than the baseline", "good" if faster else "muted"),
    ]


def build_comparison_section(base: RunView, comparisons: RunComparisons) -> Section:
    """Build the comparison section."""
    threshold = format_percent(comparisons[0][1].threshold)
    intro = (
        f"Ratios are a run over the baseline, `{base.name}`: a time with ratio 2 has doubled. A case is "
        f"slower or faster if its whole interval is beyond the threshold of {threshold}, corrected for the number "
        "of cases. Unresolved means that the runs have too little data to decide, not that nothing changed."
    )
    parts = [
        Section(f"{run.name} against {base.name}", "", _build_comparison_blocks(base, run, result))
        for run, result in comparisons
    ]
    return Section("Comparison", intro, parts)


def _build_comparison_blocks(base: RunView, run: RunView, result: Comparison) -> list[Block]:
    cards = [_build_verdict_card(verdict, len(result.get_cases(verdict))) for verdict in VERDICTS]
    cards.append(Card("Not compared", f"{len(result.excluded):,}", "listed below", "muted"))
    names = name_cases_of_runs([base, run])
    blocks: list[Block] = [Cards(cards), *_warn_of_common_change(result)]
    if changed := [*result.get_cases("slower"), *result.get_cases("faster")]:
        blocks.append(plot_changes(changed, names, result.threshold))
    elif result.cases:
        blocks.append(_explain_no_change(result))
    if result.cases:
        blocks.append(_build_verdict_table(result, names))
    if result.excluded:
        blocks.append(_build_excluded_table(base, run, result, names))
    if result.software:
        rows = [[change.name, change.before, change.after] for change in result.software]
        blocks.append(Table(["Software", base.name, run.name], rows, "Software that differs"))
    return blocks


def _build_verdict_card(verdict: Verdict, cases: int) -> Card:
    return Card(
        verdict.capitalize(), f"{cases:,}", VERDICT_REMARKS[verdict], VERDICT_TONES[verdict] if cases else "muted"
    )


def _explain_no_change(result: Comparison) -> Text:
    if not (open_cases := len(result.get_cases("unresolved"))):
        return Text("No case is slower or faster.", "good")
    many = f"{open_cases:,} of {len(result.cases):,} cases are unresolved"
    return Text(f"No case is slower or faster, but {many}: measure with more `--launches`.", "warn")


def _warn_of_common_change(result: Comparison) -> list[Text]:
    if result.common_ratio is None:
        return []
    moved = format_change(result.common_ratio - 1)
    text = f"The median case changed by {moved}. If all cases change together, check the machine before the code."
    return [Text(text, "warn")]


def _build_verdict_table(result: Comparison, names: CaseNames) -> Table:
    columns: Columns[ComparedCase] = {
        "Case": lambda case: names[case.key].cell,
        Column("Feature", quick=True): lambda case: names[case.key].feature,
        Column("Verdict", quick=True): lambda case: Cell(case.verdict, tone=VERDICT_TONES[case.verdict]),
        Column("Ratio", "number", hint="this run over the baseline"): lambda case: Cell(
            f"{case.judgement.ratio:.3f}", case.judgement.ratio
        ),
        Column("Interval", "number", hint="of the ratio; sorts by its width"): _make_interval_cell,
        Column("Baseline", "number"): lambda case: make_value_cell(case.before, case.unit),
        Column("This run", "number"): lambda case: make_value_cell(case.after, case.unit),
        Column("Detectable", "number", hint="the smallest change that would have been detected"): lambda case: (
            make_share_cell(case.judgement.smallest)
        ),
        Column("Why", "prose"): lambda case: case.judgement.why,
    }
    cases = [case for verdict in VERDICTS for case in result.get_cases(verdict)]
    return tabulate(columns, cases, "Every compared case")


def _make_interval_cell(case: ComparedCase) -> Cell:
    low, high = case.judgement.low, case.judgement.high
    return EMPTY_CELL if low is None or high is None else Cell(f"{low:.3f} to {high:.3f}", high - low)


def _build_excluded_table(base: RunView, run: RunView, result: Comparison, names: CaseNames) -> Table:
    columns: Columns[ExcludedCase] = {
        "Case": lambda case: names[case.key].cell,
        Column("Feature", quick=True): lambda case: names[case.key].feature,
        Column("Kind", quick=True): lambda case: Cell(
            case.kind, tone="bad" if case.kind == "newly failed" else "muted"
        ),
        Column("Reason", "prose"): lambda case: case.reason,
    }
    return tabulate(columns, result.excluded, f"Not compared (A is {base.name}, B is {run.name})")


# Maximum number of changed cases in the plot: the largest slowdowns and the largest speed-ups.
MAX_PLOTTED_CASES = 40
VERDICT_COLOURS = {"slower": "var(--bad)", "faster": "var(--good)"}


def plot_changes(changed: Sequence[ComparedCase], names: CaseNames, threshold: float) -> Plot:
    """Plot the ratio of each changed case with its confidence interval; a band marks ratios below the threshold."""
    shown = sorted(changed, key=lambda case: case.judgement.ratio, reverse=True)
    if len(shown) > MAX_PLOTTED_CASES:
        shown = [*shown[: MAX_PLOTTED_CASES // 2], *shown[-MAX_PLOTTED_CASES // 2 :]]
    band = {
        "type": "rect",
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "x0": 1 / (1 + threshold) - 1,
        "x1": threshold,
        "fillcolor": "var(--muted)",
        "opacity": 0.15,
        "line": {"width": 0},
    }
    layout = make_row_layout([str(names[case.key]) for case in shown], legend=True) | {
        "shapes": [band],
        "scattermode": "overlay",
        "xaxis": {"side": "top", "tickformat": "+.0~%", "zeroline": True},
    }
    traces = [
        _make_trace(verdict, [case for case in shown if case.verdict == verdict], names) for verdict in VERDICT_COLOURS
    ]
    caption = "Changed cases with their intervals; changes within the grey band are below the threshold."
    if len(shown) < len(changed):
        caption += f" Shown are the {MAX_PLOTTED_CASES} largest of {len(changed):,} changes."
    return Plot({"data": traces, "layout": layout}, caption)


def _make_trace(verdict: str, cases: Sequence[ComparedCase], names: CaseNames) -> dict[str, Any]:
    judgements = [case.judgement for case in cases]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": verdict,
        "x": [f.ratio - 1 for f in judgements],
        "y": [str(names[case.key]) for case in cases],
        "hovertext": [f.why for f in judgements],
        "hovertemplate": "%{y}<br>%{x:+.1%}: %{hovertext}<extra></extra>",
        "marker": {"size": 10, "color": VERDICT_COLOURS[verdict]},
        "error_x": make_error_bars([(f.low, f.ratio, f.high) for f in judgements], thickness=1.4, width=4),
    }

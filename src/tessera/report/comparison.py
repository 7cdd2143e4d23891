"""Runs against the first of them: the verdict on every case, and what could not be compared."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.measure.verdict import Verdict
from tessera.report.blocks import Block, Card, Cards, Cell, Column, Heading, Row, Section, Table, Text, Tone
from tessera.report.cells import NONE, figure
from tessera.report.changes import change_plot
from tessera.report.figures import format_percent
from tessera.report.naming import Names, short_names
from tessera.report.runs import RunView
from tessera.results.compare import Compared, Comparison, compare
from tessera.results.verdict import VERDICTS

TONES: dict[Verdict, Tone] = {"slower": "bad", "faster": "good", "same": "muted", "unresolved": "warn"}
MEANING: dict[Verdict, str] = {
    "slower": "by more than the threshold",
    "faster": "by more than the threshold",
    "unresolved": "these runs cannot tell",
    "same": "within the threshold",
}

Against = Sequence[tuple[RunView, Comparison]]


def against_first(runs: Sequence[RunView], threshold: float) -> list[tuple[RunView, Comparison]]:
    """Each further run compared with the first, the baseline."""
    base, *others = runs
    return [(run, compare(base.records, run.records, threshold=threshold)) for run in others]


def comparison_cards(found: Against) -> list[Card]:
    """What changed, for the top of the page."""
    slower = sum(len(result.of("slower")) for _, result in found)
    faster = sum(len(result.of("faster")) for _, result in found)
    failed = sum(len(result.newly_failed) for _, result in found)
    remark = f"and {failed:,} newly failed" if failed else "than the baseline"
    return [
        Card("Slower", f"{slower:,}", remark, "bad" if slower or failed else "muted"),
        Card("Faster", f"{faster:,}", "than the baseline", "good" if faster else "muted"),
    ]


def comparison_section(base: RunView, found: Against) -> Section:
    """The comparison view of the page."""
    threshold = format_percent(found[0][1].threshold)
    intro = (
        f"Ratios are a run over the baseline, `{base.name}`: a time of ratio 2 has doubled. A case is called "
        f"slower or faster when all of its interval is beyond the threshold of {threshold}, with false "
        "alarms held down over all cases. Unresolved means that these runs cannot tell, not that nothing "
        "changed."
    )
    parts = [Section(f"{run.name} against {base.name}", "", _blocks(base, run, result)) for run, result in found]
    return Section("Comparison", intro, parts)


def _blocks(base: RunView, run: RunView, result: Comparison) -> list[Block]:
    cards = [_card(verdict, len(result.of(verdict))) for verdict in VERDICTS]
    cards.append(Card("Not compared", f"{len(result.apart):,}", "listed apart", "muted"))
    names = short_names([base, run])
    blocks: list[Block] = [Cards(cards), *_shift(result)]
    if changed := [*result.of("slower"), *result.of("faster")]:
        blocks.append(change_plot(changed, names, result.threshold))
    elif result.cases:
        blocks.append(_unchanged(result))
    if result.cases:
        blocks.append(_verdicts(result, names))
    if result.apart:
        blocks.append(_apart(base, run, result, names))
    if result.software:
        rows = [[change.name, change.before, change.after] for change in result.software]
        blocks.append(Table(["Software", base.name, run.name], rows, "Software that differs"))
    return blocks


def _card(verdict: Verdict, cases: int) -> Card:
    return Card(verdict.capitalize(), f"{cases:,}", MEANING[verdict], TONES[verdict] if cases else "muted")


def _unchanged(result: Comparison) -> Text:
    if not (open_cases := len(result.of("unresolved"))):
        return Text("No case is slower or faster.", "good")
    many = f"{open_cases:,} of {len(result.cases):,} cases are unresolved"
    return Text(f"Nothing is called slower or faster, but {many}: more `--launches` would tell.", "warn")


def _shift(result: Comparison) -> list[Text]:
    if result.moved_together is None:
        return []
    moved = format_percent(result.moved_together - 1, signed=True)
    text = f"The middle case moved by {moved}: when all move together, look at the machine before the code."
    return [Text(text, "warn")]


def _verdicts(result: Comparison, names: Names) -> Table:
    columns: list[Heading] = [
        "Case",
        Column("Feature", quick=True),
        Column("Verdict", quick=True),
        Column("Ratio", "number", hint="this run over the baseline"),
        Column("Interval", "number", hint="of the ratio; sorts by its width"),
        Column("Baseline", "number"),
        Column("This run", "number"),
        Column("Resolves", "number", hint="the smallest change that would have been called"),
        Column("Why", "prose"),
    ]
    rows = [_row(case, names) for verdict in VERDICTS for case in result.of(verdict)]
    return Table(columns, rows, "Every compared case")


def _row(case: Compared, names: Names) -> Row:
    found = case.judgement
    interval = smallest = NONE
    if found.low is not None and found.high is not None:
        interval = Cell(f"{found.low:.3f} to {found.high:.3f}", found.high - found.low)
    if found.smallest is not None:
        smallest = Cell(format_percent(found.smallest), found.smallest)
    return [
        names[case.key].cell,
        names[case.key].feature,
        Cell(found.verdict, tone=TONES[found.verdict]),
        Cell(f"{found.ratio:.3f}", found.ratio),
        interval,
        figure(case.before, case.unit),
        figure(case.after, case.unit),
        smallest,
        found.why,
    ]


def _apart(base: RunView, run: RunView, result: Comparison, names: Names) -> Table:
    rows: list[Row] = [
        [
            names[case.key].cell,
            names[case.key].feature,
            Cell(case.kind, tone="bad" if case.kind == "newly failed" else "muted"),
            case.reason,
        ]
        for case in result.apart
    ]
    columns: list[Heading] = [
        "Case",
        Column("Feature", quick=True),
        Column("Kind", quick=True),
        Column("Reason", "prose"),
    ]
    return Table(columns, rows, f"Not compared (A is {base.name}, B is {run.name})")

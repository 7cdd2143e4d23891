"""Backends side by side: how many times longer than torch each takes, operator by operator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tessera.operators.section.categories import MAIN
from tessera.operators.section.ratios import even_line, ratio_axis, times
from tessera.operators.views import alike, given_as, note_of
from tessera.report.blocks import Block, Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import NONE, figure, number
from tessera.report.naming import case_names
from tessera.report.rows import row_layout
from tessera.results.record import Case, Record

MOST_ROWS = 20
Found = dict[str, dict[str, Record]]  # case without its backend -> backend -> what was measured


def backends_section(records: Sequence[Record]) -> Section | None:
    """The other backends against torch (or the first); None where there is only one."""
    found, cases = _found(records)
    names = list(dict.fromkeys(backend for own in found.values() for backend in own))
    if len(names) < 2:
        return None
    base = MAIN if MAIN in names else names[0]
    others = [name for name in names if name != base]
    shared = {key: own for key, own in found.items() if base in own and len(own) > 1}
    if not shared:
        return None
    ratios = {name: _ratios(shared, name, base) for name in others}
    blocks: list[Block] = []
    if any(ratios.values()):
        blocks += [_summary(ratios, base), _plot(ratios, {key: cases[key] for key in shared}, base)]
    blocks.append(_table(shared, cases, [base, *others]))
    intro = f"Times over that of `{base}` on the same inputs: 0.5 takes half as long, 2 twice as long."
    if any(not alike(own[base], other) for own in shared.values() for other in own.values()):
        intro += " Where one backend gives a view and the other copies, nothing is compared."
    return Section("Backends side by side", intro, blocks)


def _found(records: Sequence[Record]) -> tuple[Found, dict[str, Case]]:
    found: Found = {}
    cases = {}
    for record in records:
        if record.status == "ok" and "backend" in record.case.params and "time" in record.metrics:
            kept = {name: value for name, value in record.case.params.items() if name != "backend"}
            case = Case(feature=record.case.feature, name=record.case.name, params=kept)
            cases[case.key] = case
            found.setdefault(case.key, {})[str(record.case.params["backend"])] = record
    return found, cases


def _ratios(shared: Found, name: str, base: str) -> dict[str, float]:
    """The times of a backend over those of another, of all cases in which both did the same work."""
    pairs = {key: (own[name], own[base]) for key, own in shared.items() if name in own}
    return {key: _seconds(one) / _seconds(other) for key, (one, other) in pairs.items() if alike(one, other)}


def _seconds(record: Record) -> float:
    return record.metrics["time"].value


def _middle(ratios: Sequence[float]) -> float:
    """The geometric mean: two backends' ratios to each other are then one over the other."""
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def _summary(ratios: Mapping[str, Mapping[str, float]], base: str) -> Table:
    columns: list[Heading] = [
        "Backend",
        Column("Cases", "number", hint=f"that {base} has as well"),
        Column("Time over all", "number", hint=f"geometric mean of the ratios to {base}"),
        Column("Faster in", "number", hint="by more than 3 %"),
        Column("Slower in", "number", hint="by more than 3 %"),
    ]
    rows: list[Row] = []
    for name, own in ratios.items():
        values = list(own.values())
        if values:
            middle = _middle(values)
            faster, slower = (sum(test(value) for value in values) for test in (_faster, _slower))
            rows.append([name, number(len(values)), Cell(times(middle), middle), number(faster), number(slower)])
    return Table(columns, rows, f"All cases that a backend shares with {base}")


def _faster(ratio: float) -> bool:
    return ratio < 1 / 1.03


def _slower(ratio: float) -> bool:
    return ratio > 1.03


def _plot(ratios: Mapping[str, Mapping[str, float]], cases: Mapping[str, Case], base: str) -> Plot:
    """A row for each operator, a dot for each backend; of many, those that differ most."""
    by_name: dict[str, dict[str, list[float]]] = {}
    for backend, own in ratios.items():
        for key, ratio in own.items():
            by_name.setdefault(cases[key].name, {}).setdefault(backend, []).append(ratio)
    middles = {name: {b: _middle(values) for b, values in own.items()} for name, own in by_name.items()}
    ranked = sorted(middles, key=lambda name: -max(abs(math.log(ratio)) for ratio in middles[name].values()))
    rows = sorted(ranked[:MOST_ROWS], key=lambda name: min(middles[name].values()))
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": backend,
            "x": [middles[name][backend] for name in rows if backend in middles[name]],
            "y": [name for name in rows if backend in middles[name]],
            "text": [f"{backend}, {len(by_name[name][backend])} cases" for name in rows if backend in middles[name]],
            "hovertemplate": "%{y}, %{text}: %{x:.2f} times " + "as long<extra></extra>",
            "marker": {"size": 10, "color": f"var(--series-{place % 6 + 1})", "opacity": 0.85},
        }
        for place, backend in enumerate(ratios)
    ]
    layout = row_layout(rows, 1, legend=True)
    layout["scattermode"] = "overlay"
    layout["xaxis"] = ratio_axis(ratio for name in rows for ratio in middles[name].values())
    layout["shapes"] = [even_line()]
    which = "" if len(rows) == len(ranked) else f" Shown are the {len(rows)} that differ most of {len(ranked):,}."
    words = f"Time over that of {base}, over all sizes, passes and dtypes of an operator; left is faster.{which}"
    return Plot({"data": traces, "layout": layout}, words)


def _table(shared: Found, cases: Mapping[str, Case], backends: Sequence[str]) -> Table:
    names = case_names([cases[key] for key in shared])
    base = backends[0]
    columns: list[Heading] = [
        "Case",
        Column(base, "number"),
        *(Column(f"{name} / {base}", "number") for name in backends[1:]),
        Column("Fastest", quick=True),
    ]
    rows: list[Row] = []
    for key, own in shared.items():
        cells = [_ratio(own.get(name), own[base]) for name in backends[1:]]
        rows.append([names[key].cell, figure(_seconds(own[base]), "s"), *cells, _fastest(own, base)])
    return Table(columns, rows, "Every case that several backends have")


def _ratio(record: Record | None, base: Record) -> Cell:
    if record is None:
        return NONE
    if not alike(record, base):
        return Cell(given_as(record), hint=f"{record.case.params['backend']} {note_of(record)}")
    ratio = _seconds(record) / _seconds(base)
    return Cell(times(ratio), ratio, "good" if _faster(ratio) else "bad" if _slower(ratio) else "")


def _fastest(own: Mapping[str, Record], base: str) -> Cell:
    """The fastest of those that do the same work as the first, if there are others."""
    same = [name for name, record in own.items() if alike(record, own[base])]
    return Cell(min(same, key=lambda name: _seconds(own[name]))) if len(same) > 1 else NONE

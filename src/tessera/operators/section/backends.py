"""Backends side by side: how many times longer than torch each takes, operator by operator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tessera.operators.section.categories import MAIN
from tessera.report.blocks import Block, Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import NONE, figure, number
from tessera.report.naming import case_names
from tessera.report.rows import row_layout
from tessera.results.record import Case, Record

MOST_ROWS = 20
Times = dict[str, dict[str, float]]  # case without its backend -> backend -> seconds


def backends_section(records: Sequence[Record]) -> Section | None:
    """The other backends against torch (or the first); None where there is only one."""
    times, cases = _times(records)
    names = list(dict.fromkeys(backend for own in times.values() for backend in own))
    if len(names) < 2:
        return None
    base = MAIN if MAIN in names else names[0]
    others = [name for name in names if name != base]
    shared = {key: own for key, own in times.items() if base in own and len(own) > 1}
    if not shared:
        return None
    ratios = {name: {key: own[name] / own[base] for key, own in shared.items() if name in own} for name in others}
    blocks: list[Block] = [
        _summary(ratios, base),
        _plot(ratios, {key: cases[key] for key in shared}, base),
        _table(shared, cases, [base, *others]),
    ]
    intro = f"Times over that of `{base}` on the same inputs: 0.5 takes half as long, 2 twice as long."
    return Section("Backends side by side", intro, blocks)


def _times(records: Sequence[Record]) -> tuple[Times, dict[str, Case]]:
    times: Times = {}
    cases = {}
    for record in records:
        if record.status == "ok" and "backend" in record.case.params and "time" in record.metrics:
            kept = {name: value for name, value in record.case.params.items() if name != "backend"}
            case = Case(feature=record.case.feature, name=record.case.name, params=kept)
            cases[case.key] = case
            times.setdefault(case.key, {})[str(record.case.params["backend"])] = record.metrics["time"].value
    return times, cases


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
            rows.append([name, number(len(values)), Cell(f"{middle:.2f}x", middle), number(faster), number(slower)])
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
    layout["xaxis"] = {"side": "top", "type": "log", "ticksuffix": "x", "tickangle": 0, "nticks": 6}
    line = {"color": "var(--muted)", "width": 1, "dash": "dot"}
    layout["shapes"] = [{"type": "line", "x0": 1, "x1": 1, "yref": "paper", "y0": 0, "y1": 1, "line": line}]
    which = "" if len(rows) == len(ranked) else f" Shown are the {len(rows)} that differ most of {len(ranked):,}."
    words = f"Time over that of {base}, over all sizes, passes and dtypes of an operator; left is faster.{which}"
    return Plot({"data": traces, "layout": layout}, words)


def _table(shared: Times, cases: Mapping[str, Case], backends: Sequence[str]) -> Table:
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
        ratios = [own[name] / own[base] if name in own else None for name in backends[1:]]
        cells = [_ratio(ratio) for ratio in ratios]
        rows.append([names[key].cell, figure(own[base], "s"), *cells, min(own, key=lambda name: own[name])])
    return Table(columns, rows, "Every case that several backends have")


def _ratio(ratio: float | None) -> Cell:
    if ratio is None:
        return NONE
    return Cell(f"{ratio:.2f}x", ratio, "good" if _faster(ratio) else "bad" if _slower(ratio) else "")

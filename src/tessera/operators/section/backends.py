"""The comparison of backends: the time of each operator on each backend relative to torch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tessera.operators.check import OUTPUT_NOTES, get_output_kind, same_work
from tessera.operators.section.categories import MAIN_BACKEND
from tessera.operators.section.plots import format_times, make_dots, make_ratio_layout
from tessera.report.blocks import Block, Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.cells import EMPTY_CELL, make_count_cell, make_value_cell
from tessera.report.naming import name_cases
from tessera.results.record import Case, Record

MAX_PLOT_ROWS = 20
RecordsByBackend = dict[str, dict[str, Record]]  # key of a case without its backend -> backend -> record


def build_backends_section(records: Sequence[Record]) -> Section | None:
    """Build the section that compares backends with torch (or the first backend); None for a single backend."""
    by_backend, cases = _group_by_backend(records)
    names = list(dict.fromkeys(backend for own in by_backend.values() for backend in own))
    if len(names) < 2:
        return None
    base = MAIN_BACKEND if MAIN_BACKEND in names else names[0]
    others = [name for name in names if name != base]
    shared = {key: own for key, own in by_backend.items() if base in own and len(own) > 1}
    if not shared:
        return None
    ratios = {name: _compute_ratios(shared, name, base) for name in others}
    blocks: list[Block] = []
    if any(ratios.values()):
        blocks += [_build_summary(ratios, base), _build_plot(ratios, {key: cases[key] for key in shared}, base)]
    blocks.append(_build_table(shared, cases, [base, *others]))
    intro = f"Time relative to `{base}` on the same inputs: 0.5x is half the time, 2x twice the time."
    if any(not same_work(own[base], other) for own in shared.values() for other in own.values()):
        intro += " Cases in which one backend returns a view and the other a copy are not compared."
    return Section("Backends side by side", intro, blocks)


def _group_by_backend(records: Sequence[Record]) -> tuple[RecordsByBackend, dict[str, Case]]:
    by_backend: RecordsByBackend = {}
    cases = {}
    for record in records:
        if record.status == "ok" and "backend" in record.case.params and "time" in record.metrics:
            case = record.case.without("backend")
            cases[case.key] = case
            by_backend.setdefault(case.key, {})[str(record.case.params["backend"])] = record
    return by_backend, cases


def _compute_ratios(shared: RecordsByBackend, name: str, base: str) -> dict[str, float]:
    """Return the time on backend `name` over the time on `base`, by case key, for comparable cases (`same_work`)."""
    pairs = {key: (own[name], own[base]) for key, own in shared.items() if name in own}
    return {
        key: _get_seconds(one) / _get_seconds(other) for key, (one, other) in pairs.items() if same_work(one, other)
    }


def _get_seconds(record: Record) -> float:
    return record.metrics["time"].value


def _compute_geometric_mean(ratios: Sequence[float]) -> float:
    """Return the geometric mean of time ratios; swapping the two backends gives its reciprocal."""
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def _build_summary(ratios: Mapping[str, Mapping[str, float]], base: str) -> Table:
    columns: list[Heading] = [
        "Backend",
        Column("Cases", "number", hint=f"cases also measured on {base}"),
        Column("Mean ratio", "number", hint=f"geometric mean of the ratios to {base}"),
        Column("Faster in", "number", hint="by more than 3 %"),
        Column("Slower in", "number", hint="by more than 3 %"),
    ]
    rows: list[Row] = []
    for name, own in ratios.items():
        values = list(own.values())
        if values:
            middle = _compute_geometric_mean(values)
            faster, slower = (sum(test(value) for value in values) for test in (_is_faster, _is_slower))
            rows.append(
                [
                    name,
                    make_count_cell(len(values)),
                    Cell(format_times(middle), middle),
                    make_count_cell(faster),
                    make_count_cell(slower),
                ]
            )
    return Table(columns, rows, f"Cases that a backend shares with {base}")


def _is_faster(ratio: float) -> bool:
    return ratio < 1 / 1.03


def _is_slower(ratio: float) -> bool:
    return ratio > 1.03


def _build_plot(ratios: Mapping[str, Mapping[str, float]], cases: Mapping[str, Case], base: str) -> Plot:
    """Plot one row per operator with one dot per backend; if there are too many operators, those that differ most."""
    by_name: dict[str, dict[str, list[float]]] = {}
    for backend, own in ratios.items():
        for key, ratio in own.items():
            by_name.setdefault(cases[key].name, {}).setdefault(backend, []).append(ratio)
    middles = {name: {b: _compute_geometric_mean(values) for b, values in own.items()} for name, own in by_name.items()}
    ranked = sorted(middles, key=lambda name: -max(abs(math.log(ratio)) for ratio in middles[name].values()))
    rows = sorted(ranked[:MAX_PLOT_ROWS], key=lambda name: min(middles[name].values()))
    traces: list[dict[str, Any]] = [
        make_dots(
            backend,
            [middles[name][backend] for name in rows if backend in middles[name]],
            [name for name in rows if backend in middles[name]],
            "%{y}, %{text}: %{x:.2f} times as long",
            text=[f"{backend}, {len(by_name[name][backend])} cases" for name in rows if backend in middles[name]],
            marker={"size": 10, "color": f"var(--series-{place % 6 + 1})", "opacity": 0.85},
        )
        for place, backend in enumerate(ratios)
    ]
    layout = make_ratio_layout(rows, [ratio for name in rows for ratio in middles[name].values()])
    selection = "" if len(rows) == len(ranked) else f" Shown are the {len(rows)} that differ most of {len(ranked):,}."
    words = f"Time relative to {base}, over all sizes, passes and dtypes of an operator; left is faster.{selection}"
    return Plot({"data": traces, "layout": layout}, words)


def _build_table(shared: RecordsByBackend, cases: Mapping[str, Case], backends: Sequence[str]) -> Table:
    names = name_cases([cases[key] for key in shared])
    base = backends[0]
    columns: list[Heading] = [
        "Case",
        Column(base, "number"),
        *(Column(f"{name} / {base}", "number") for name in backends[1:]),
        Column("Fastest", quick=True),
    ]
    rows: list[Row] = []
    for key, by_backend in shared.items():
        cells = [_format_ratio(by_backend.get(name), by_backend[base]) for name in backends[1:]]
        rows.append(
            [
                names[key].cell,
                make_value_cell(_get_seconds(by_backend[base]), "s"),
                *cells,
                _find_fastest(by_backend, base),
            ]
        )
    return Table(columns, rows, "Cases measured on several backends")


def _format_ratio(record: Record | None, base: Record) -> Cell:
    if record is None:
        return EMPTY_CELL
    if not same_work(record, base):
        output = get_output_kind(record)
        return Cell(output, hint=f"{record.case.params['backend']} {OUTPUT_NOTES.get(output, '')}".rstrip())
    ratio = _get_seconds(record) / _get_seconds(base)
    return Cell(format_times(ratio), ratio, "good" if _is_faster(ratio) else "bad" if _is_slower(ratio) else "")


def _find_fastest(by_backend: Mapping[str, Record], base: str) -> Cell:
    """Return the fastest backend among those comparable with the baseline; empty if only one backend is comparable."""
    same = [name for name, record in by_backend.items() if same_work(record, by_backend[base])]
    return Cell(min(same, key=lambda name: _get_seconds(by_backend[name]))) if len(same) > 1 else EMPTY_CELL

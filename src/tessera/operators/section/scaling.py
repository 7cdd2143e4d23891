"""Sizes: the time of an operator over its work, and the overhead and cost that were fitted to it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tessera.operators.scaling import Fit, fits, format_fit
from tessera.operators.section.categories import MAIN, backend_of
from tessera.report.blocks import Block, Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.figures import format_seconds, format_value
from tessera.report.naming import Names, case_names
from tessera.results.record import Record

MOST_CURVES = 6
STEPS = 24  # points of a fitted curve
POOR = math.log(1.3)  # a size this far off makes the figures rough ones
AXIS = {"type": "log", "exponentformat": "SI", "minexponent": 0, "dtick": 1}


def scaling_section(records: Sequence[Record]) -> Section | None:
    """Curves of the operators with the greatest overheads, all operators as dots, and a table; None without sizes."""
    found = sorted(fits(records), key=lambda fit: -fit.overhead)
    if not found:
        return None
    names = case_names([fit.case for fit in found])
    backends = list(dict.fromkeys(backend_of(record.case) for record in records))
    main = MAIN if MAIN in backends else backends[0]
    blocks: list[Block] = []
    for unit in dict.fromkeys(fit.unit for fit in found):
        own = [fit for fit in found if fit.unit == unit]
        shown = [fit for fit in own if backend_of(fit.case) == main] or own
        blocks.append(_curves(shown[:MOST_CURVES], unit, names, of=len(shown)))
        if len(own) > MOST_CURVES:
            blocks.append(_overview([fit for fit in own if fit.even], unit, names, backends))
    blocks.append(_table(found, names))
    intro = (
        "`time = overhead + n * cost`, fitted over the sizes: the overhead is there whatever the size, the cost comes "
        "with each unit of work. Below the size at which both are equal, a call mostly pays its overhead. Inputs that "
        "do not fit the caches take many times what the line says: the size that is furthest off it is given."
    )
    return Section("Overhead and cost", intro, blocks)


def _curves(found: Sequence[Fit], unit: str, names: Names, of: int) -> Plot:
    traces: list[dict[str, Any]] = []
    for number, fit in enumerate(found):
        colour, name = f"var(--series-{number % 6 + 1})", names[fit.case.key].words
        low, high = fit.sizes[0].work, fit.sizes[-1].work
        low = low or high / 1e6
        works = [low * (high / low) ** (step / STEPS) for step in range(STEPS + 1)]
        line = {"type": "scatter", "mode": "lines", "line": {"color": colour, "width": 1.6}, "hoverinfo": "skip"}
        traces.append(
            line | {"name": name, "legendgroup": name, "x": works, "y": [fit.seconds(work) for work in works]}
        )
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": name,
                "legendgroup": name,
                "showlegend": False,
                "x": [size.work for size in fit.sizes],
                "y": [size.seconds for size in fit.sizes],
                "text": [f"{name} {size.name}: {format_seconds(size.seconds)}" for size in fit.sizes],
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {"size": 9, "color": colour},
            }
        )
    layout = {
        # A name a line, above the plot: side by side they would not fit a phone.
        "height": 330 + 20 * len(found),
        "legend": {"orientation": "v", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "margin": {"t": 20 * len(found) + 16},
        "xaxis": AXIS | {"ticksuffix": unit, "tickangle": 0},
        "yaxis": AXIS | {"ticksuffix": "s"},
    }
    which = "" if len(found) == of else f" of the {len(found)} operators with the greatest overhead of {of:,}"
    words = f"Time over work in {unit}{which}: dots are measured, lines fitted; logarithmic axes."
    return Plot({"data": traces, "layout": layout}, words)


def _overview(found: Sequence[Fit], unit: str, names: Names, backends: Sequence[str]) -> Plot:
    traces = []
    for number, backend in enumerate(backends):
        own = [fit for fit in found if backend_of(fit.case) == backend]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": backend,
                "x": [fit.rate for fit in own],
                "y": [fit.overhead for fit in own],
                "text": [f"{names[fit.case.key].words}: {_in_words(fit)}" for fit in own],
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {"size": 7, "opacity": 0.7, "color": f"var(--series-{number % 6 + 1})"},
            }
        )
    layout = {
        "height": 420,
        "showlegend": len(backends) > 1,
        "xaxis": AXIS | {"title": {"text": f"work per second, {unit}/s"}},
        "yaxis": AXIS | {"ticksuffix": "s", "title": {"text": "overhead"}},
    }
    return Plot(
        {"data": traces, "layout": layout}, f"Every operator whose work is counted in {unit}; right and low is best."
    )


def _in_words(fit: Fit) -> str:
    shown = format_fit(fit)
    return f"overhead {shown['overhead']}, then {shown['rate']}"


def _table(found: Sequence[Fit], names: Names) -> Table:
    columns: list[Heading] = [
        "Operator",
        Column("Overhead", "number", hint="of a call, whatever its size"),
        Column("Cost", "number", hint="of each unit of work"),
        Column("Rate", "number", hint="work per second without the overhead"),
        Column("Equal at", "number", hint="the work that takes as long as the overhead"),
        Column("Furthest off", "number", hint="the size that is furthest off the line, and how many times it takes"),
        Column("Sizes", "number", hint="how many the line was fitted to"),
    ]
    rows: list[Row] = []
    for fit in found:
        shown, (_, off) = format_fit(fit), fit.furthest
        rows.append(
            [
                names[fit.case.key].cell,
                Cell(shown["overhead"], fit.overhead),
                Cell(shown["cost"], fit.cost),
                Cell(shown["rate"], fit.rate),
                Cell(shown["even"], fit.even),
                Cell(shown["furthest"], off, "warn" if abs(math.log(off)) > POOR else ""),
                Cell(str(len(fit.sizes)), len(fit.sizes), hint=_measured(fit)),
            ]
        )
    return Table(columns, rows, "Fitted overhead and cost")


def _measured(fit: Fit) -> str:
    return ", ".join(f"{s.name} {format_value(s.work, fit.unit)}: {format_seconds(s.seconds)}" for s in fit.sizes)

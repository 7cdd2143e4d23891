"""The report section on scaling: operator time as a function of work, with fitted overhead and cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tessera.operators.scaling import ScalingFit, fit_records, format_fit
from tessera.operators.section.categories import MAIN_BACKEND, get_backend
from tessera.operators.section.plots import make_dots
from tessera.report.blocks import Block, Cell, Column, Heading, Plot, Row, Section, Table
from tessera.report.figures import format_seconds, format_value
from tessera.report.naming import CaseNames, name_cases
from tessera.results.record import Record

MAX_PLOT_CURVES = 6
CURVE_POINTS = 24  # number of points that draw a fitted curve
POOR_FIT_LOG_RATIO = math.log(1.3)  # log ratio of measured to fitted time above which a fit is marked as poor
LOG_AXIS = {"type": "log", "exponentformat": "SI", "minexponent": 0, "dtick": 1}


def build_scaling_section(records: Sequence[Record]) -> Section | None:
    """Build the section: curves of the fits with the largest overheads, overview plot, table; None without fits."""
    fits = sorted(fit_records(records), key=lambda fit: -fit.overhead)
    if not fits:
        return None
    names = name_cases([fit.case for fit in fits])
    backends = list(dict.fromkeys(get_backend(record.case) for record in records))
    main = MAIN_BACKEND if MAIN_BACKEND in backends else backends[0]
    blocks: list[Block] = []
    for unit in dict.fromkeys(fit.unit for fit in fits):
        unit_fits = [fit for fit in fits if fit.unit == unit]
        shown = [fit for fit in unit_fits if get_backend(fit.case) == main] or unit_fits
        blocks.append(_plot_curves(shown[:MAX_PLOT_CURVES], unit, names, of=len(shown)))
        if len(unit_fits) > MAX_PLOT_CURVES:
            blocks.append(_plot_overview([fit for fit in unit_fits if fit.break_even_work], unit, names, backends))
    blocks.append(_build_table(fits, names))
    intro = (
        "`time = overhead + work * cost`, fitted over the measured sizes. Below the size at which both parts are "
        "equal, a call consists mostly of overhead. Inputs that exceed the caches take longer than the fit; the "
        "largest residual is given."
    )
    return Section("Overhead and cost", intro, blocks)


def _plot_curves(fits: Sequence[ScalingFit], unit: str, names: CaseNames, of: int) -> Plot:
    traces: list[dict[str, Any]] = []
    for number, fit in enumerate(fits):
        colour, name = f"var(--series-{number % 6 + 1})", names[fit.case.key].words
        low, high = fit.sizes[0].work, fit.sizes[-1].work
        low = low or high / 1e6
        works = [low * (high / low) ** (step / CURVE_POINTS) for step in range(CURVE_POINTS + 1)]
        line = {"type": "scatter", "mode": "lines", "line": {"color": colour, "width": 1.6}, "hoverinfo": "skip"}
        traces.append(
            line | {"name": name, "legendgroup": name, "x": works, "y": [fit.predict_seconds(work) for work in works]}
        )
        traces.append(
            make_dots(
                name,
                [size.work for size in fit.sizes],
                [size.seconds for size in fit.sizes],
                "%{text}",
                legendgroup=name,
                showlegend=False,
                text=[f"{name} {size.name}: {format_seconds(size.seconds)}" for size in fit.sizes],
                marker={"size": 9, "color": colour},
            )
        )
    layout = {
        # Legend above the plot with one entry per line, because a row of entries is too wide for a phone.
        "height": 330 + 20 * len(fits),
        "legend": {"orientation": "v", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "margin": {"t": 20 * len(fits) + 16},
        "xaxis": LOG_AXIS | {"ticksuffix": unit, "tickangle": 0},
        "yaxis": LOG_AXIS | {"ticksuffix": "s"},
    }
    selection = "" if len(fits) == of else f" of the {len(fits)} operators with the greatest overhead of {of:,}"
    words = f"Time over work in {unit}{selection}: dots are measured, lines fitted; logarithmic axes."
    return Plot({"data": traces, "layout": layout}, words)


def _plot_overview(fits: Sequence[ScalingFit], unit: str, names: CaseNames, backends: Sequence[str]) -> Plot:
    traces = []
    for number, backend in enumerate(backends):
        backend_fits = [fit for fit in fits if get_backend(fit.case) == backend]
        traces.append(
            make_dots(
                backend,
                [fit.rate for fit in backend_fits],
                [fit.overhead for fit in backend_fits],
                "%{text}",
                text=[f"{names[fit.case.key].words}: {_describe_fit(fit)}" for fit in backend_fits],
                marker={"size": 7, "opacity": 0.7, "color": f"var(--series-{number % 6 + 1})"},
            )
        )
    layout = {
        "height": 420,
        "showlegend": len(backends) > 1,
        "xaxis": LOG_AXIS | {"title": {"text": f"work per second, {unit}/s"}},
        "yaxis": LOG_AXIS | {"ticksuffix": "s", "title": {"text": "overhead"}},
    }
    return Plot(
        {"data": traces, "layout": layout}, f"Every operator whose work is counted in {unit}; right and low is best."
    )


def _describe_fit(fit: ScalingFit) -> str:
    shown = format_fit(fit)
    return f"overhead {shown['overhead']}, then {shown['rate']}"


def _build_table(fits: Sequence[ScalingFit], names: CaseNames) -> Table:
    columns: list[Heading] = [
        "Operator",
        Column("Overhead", "number", hint="time of a call at zero work"),
        Column("Cost", "number", hint="time per unit of work"),
        Column("Rate", "number", hint="work per second without the overhead"),
        Column("Break-even work", "number", hint="work that takes as long as the overhead"),
        Column("Largest residual", "number", hint="size with the largest residual, and its measured over fitted time"),
        Column("Sizes", "number", hint="number of sizes in the fit"),
    ]
    rows: list[Row] = []
    for fit in fits:
        shown, (_, off) = format_fit(fit), fit.largest_residual
        rows.append(
            [
                names[fit.case.key].cell,
                Cell(shown["overhead"], fit.overhead),
                Cell(shown["cost"], fit.cost),
                Cell(shown["rate"], fit.rate),
                Cell(shown["break_even"], fit.break_even_work),
                Cell(shown["largest_residual"], off, "warn" if abs(math.log(off)) > POOR_FIT_LOG_RATIO else ""),
                Cell(str(len(fit.sizes)), len(fit.sizes), hint=_list_sizes(fit)),
            ]
        )
    return Table(columns, rows, "Fitted overhead and cost")


def _list_sizes(fit: ScalingFit) -> str:
    return ", ".join(f"{s.name} {format_value(s.work, fit.unit)}: {format_seconds(s.seconds)}" for s in fit.sizes)

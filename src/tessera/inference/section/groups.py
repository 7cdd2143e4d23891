"""Records that differ in one parameter only, as the curves of a plot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.report.figures import format_rate
from tessera.report.naming import case_names
from tessera.results.record import Case, Record

MOST_CURVES = 8


def whole(records: Sequence[Record]) -> list[Record]:
    """Records of whole networks that were measured offline: a rate and a latency."""
    return [
        record
        for record in records
        if record.status == "ok"
        and not record.case.params.get("by_operator")
        and record.case.params.get("mode", "offline") == "offline"
        and {"throughput", "latency_p50"} <= record.metrics.keys()
    ]


def without(case: Case, *names: str) -> Case:
    """The same case whatever some of its parameters are."""
    kept = {name: value for name, value in case.params.items() if name not in names}
    return Case(feature=case.feature, name=case.name, params=kept)


def curves(records: Sequence[Record], axis: str, *besides: str) -> dict[str, dict[int, Record]]:
    """Records by what they are apart from an axis, each group by its values of the axis; groups of one are left out.

    `besides` are parameters that follow from the axis and tell no curve from another.
    """
    cases = [without(record.case, axis, *besides) for record in records]
    names = case_names(cases)
    groups: dict[str, dict[int, Record]] = {}
    for record, case in zip(records, cases, strict=True):
        if axis in record.case.params:
            groups.setdefault(names[case.key].words, {})[int(record.case.params[axis])] = record
    return {name: dict(sorted(own.items())) for name, own in groups.items() if len(own) > 1}


def rate_curves(groups: dict[str, dict[int, Record]], title: str) -> dict[str, Any]:
    """Images per second over an axis, a curve for each group."""
    shown = list(groups.items())[:MOST_CURVES]
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": list(own),
            "y": [record.metrics["throughput"].value for record in own.values()],
            "text": [
                f"{name}, {title} {value}: {format_rate(record.metrics['throughput'].value, 'images/s')}"
                for value, record in own.items()
            ],
            "hovertemplate": "%{text}<extra></extra>",
            "line": {"color": f"var(--series-{number % 6 + 1})", "width": 1.6},
        }
        for number, (name, own) in enumerate(shown)
    ]
    values = sorted({value for _, own in shown for value in own})
    layout = {
        "height": 340 + 20 * len(traces),
        "showlegend": len(traces) > 1,
        "legend": {"orientation": "v", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}},
        "margin": {"t": 20 * len(traces) + 16},
        "xaxis": {"type": "log", "tickvals": values, "ticktext": [str(n) for n in values], "title": {"text": title}},
        "yaxis": {"rangemode": "tozero", "title": {"text": "images/s"}},
    }
    return {"data": traces, "layout": layout}

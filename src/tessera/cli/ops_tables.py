"""Tables of operator records beside the usual one: ranked, backends side by side, and the fit over sizes."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.operators.views import alike, given_as
from tessera.report.destination import destination
from tessera.report.figures import format_value
from tessera.report.generic import split_params
from tessera.report.tables import Column, Form, render
from tessera.results.record import Case, Record

# metrics of which a network's calls have so many times as much
ADDED = ("time", "floor", "p25", "p90", "p99", "cpu_time", "allocated", "page_faults", "work")
WIDEST = 60  # characters of a call's arguments


def ranked(records: Sequence[Record], metric: str, top: int | None, together: str) -> list[Record]:
    """The records in their order, or those with the most of a metric first.

    Records that differ in the parameter `together` alone are one case: a backend beside the others, a size of a fit.
    """
    if top is None:
        return list(records)
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(without(record.case, together).key, []).append(record)
    weights = {key: [_weight(one, metric) for one in own if metric in one.metrics] for key, own in groups.items()}
    most = sorted((key for key in groups if weights[key]), key=lambda key: max(weights[key]), reverse=True)
    return [record for key in most[:top] for record in groups[key]]


def without(case: Case, name: str) -> Case:
    """The case without one of its parameters."""
    kept = {key: value for key, value in case.params.items() if key != name}
    return Case(feature=case.feature, name=case.name, params=kept)


def _weight(record: Record, metric: str) -> float:
    """What a case counts for: a call that a network makes several times counts as often."""
    times = float(record.case.params.get("calls", 1)) if metric in ADDED else 1.0
    return record.metrics[metric].value * times


def print_backends(records: Sequence[Record], metric: str, form: Form, output: str | None) -> None:
    """One line per case, one column per backend, and how many times better than the first each is."""
    names = list(dict.fromkeys(str(record.case.params["backend"]) for record in records))
    rows: dict[str, dict[str, Record]] = {}
    cases: dict[str, Case] = {}
    for record in records:
        case = without(record.case, "backend")
        cases[case.key] = case
        rows.setdefault(case.key, {})[str(record.case.params["backend"])] = record
    varying, fixed = split_params(list(cases.values()))
    columns = [
        Column("operator"),
        *(Column(name) for name in varying),
        *(Column(name, "right") for name in names),
        *(Column(f"{name} gains", "right") for name in names[1:]),
    ]
    table = [
        [
            cases[key].name,
            *(str(cases[key].params.get(name, "")) for name in varying),
            *(_cell(found.get(name), metric) for name in names),
            *(_gain(found.get(names[0]), found.get(name), metric) for name in names[1:]),
        ]
        for key, found in rows.items()
    ]
    title = ", ".join([metric, *(f"{name} {value}" for name, value in fixed.items())])
    with destination(output) as stream:
        render(columns, table, form, stream, title)


def _cell(record: Record | None, metric: str) -> str:
    if record is None or metric not in record.metrics:
        return record.status.replace("_", " ") if record and record.status != "ok" else ""
    return format_value(record.metrics[metric].value, record.metrics[metric].unit)


def _gain(base: Record | None, other: Record | None, metric: str) -> str:
    """How many times better the other is: 2.0x is twice as fast, or twice the rate.

    A copy is not held against a view, which takes no time whatever its size: the word says what the other gives.
    """
    if base is None or other is None or metric not in base.metrics or metric not in other.metrics:
        return ""
    one, two = base.metrics[metric], other.metrics[metric]
    if not one.value or not two.value:
        return ""
    if not alike(base, other):
        return given_as(other)
    return f"{one.value / two.value if one.direction == 'lower' else two.value / one.value:.2f}x"


def print_calls(
    shown: Sequence[Record], records: Sequence[Record], metric: str, form: Form, output: str | None
) -> None:
    """The calls of a network: how often, how long each and all of them, and what operators the whole goes to."""
    from tessera.operators.sources.model import described, difference, shares

    figures = ["gflops", *([metric] if metric not in ("time", "gflops") else [])]
    columns = [
        Column("operator"),
        Column("arguments"),
        Column("dtype"),
        Column("pass"),
        Column("calls", "right"),
        Column("each", "right"),
        Column("all", "right"),
        *(Column({"gflops": "compute"}.get(name, name), "right") for name in figures),
    ]
    rows = [
        [
            record.case.name,
            _shortened(described(record.case)),
            record.case.params["dtype"],
            record.case.params["pass"],
            record.case.params["calls"],
            _cell(record, "time"),
            format_value(_weight(record, "time"), "s") if "time" in record.metrics else "",
            *(_cell(record, name) if record.status == "ok" else "" for name in figures),
        ]
        for record in shown
    ]
    found = [
        (dtype, which, one)
        for dtype, which in dict.fromkeys((row[2], row[3]) for row in rows)
        for one in shares([record for record in records if record.case.params["dtype"] == dtype], which)
    ]
    by_operator = [
        Column("operator"),
        Column("dtype"),
        Column("pass"),
        Column("calls", "right"),
        Column("all", "right"),
        Column("share", "right"),
    ]
    with destination(output) as stream:
        render(columns, rows, form, stream, title="calls")
        if form == "terminal":
            rows = [
                [share.name, dtype, which, share.calls, format_value(share.seconds, "s"), f"{share.share:.1%}"]
                for dtype, which, share in found
            ]
            render(by_operator, rows, form, stream, title="operators")
            stream.writelines(f"{line}\n" for line in difference(records))


def _shortened(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def print_fit(records: Sequence[Record], form: Form, output: str | None) -> None:
    """The fitted overhead and cost of every operator that was measured in several sizes."""
    from tessera.operators.scaling import fit_table

    columns, rows = fit_table(records)
    with destination(output) as stream:
        render(columns, rows, form, stream, title="time = overhead + n * cost")
        if not rows and form == "terminal":
            stream.write("nothing to fit: no operator was measured in two sizes with different work\n")

"""Tables of operator records beside the usual one: ranked, backends side by side, and the fit over sizes."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.errors import TesseraError
from tessera.report.destination import destination
from tessera.report.figures import format_value
from tessera.report.generic import split_params
from tessera.report.tables import Column, Form, render
from tessera.results.record import Case, Record


def ranked(records: Sequence[Record], metric: str, top: int | None) -> list[Record]:
    """The records in their order, or those with the most of a metric first."""
    if top is None:
        return list(records)
    having = [record for record in records if metric in record.metrics]
    return sorted(having, key=lambda record: _weight(record, metric), reverse=True)[:top]


def _weight(record: Record, metric: str) -> float:
    """What a case counts for: a call that a network makes several times counts as often."""
    return record.metrics[metric].value * float(record.case.params.get("calls", 1))


def print_backends(records: Sequence[Record], metric: str, form: Form, output: str | None) -> None:
    """One line per case, one column per backend, and how many times better than the first each is."""
    names = list(dict.fromkeys(str(record.case.params["backend"]) for record in records))
    rows: dict[str, dict[str, Record]] = {}
    cases: dict[str, Case] = {}
    for record in records:
        params = {name: value for name, value in record.case.params.items() if name != "backend"}
        case = Case(feature=record.case.feature, name=record.case.name, params=params)
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
        return record.status.replace("_", " ") if record else ""
    return format_value(record.metrics[metric].value, record.metrics[metric].unit)


def _gain(base: Record | None, other: Record | None, metric: str) -> str:
    """How many times better the other is: 2.0x is twice as fast, or twice the rate."""
    if base is None or other is None or metric not in base.metrics or metric not in other.metrics:
        return ""
    one, two = base.metrics[metric], other.metrics[metric]
    if not one.value or not two.value:
        return ""
    return f"{one.value / two.value if one.direction == 'lower' else two.value / one.value:.2f}x"


def print_calls(shown: Sequence[Record], records: Sequence[Record], form: Form, output: str | None) -> None:
    """The calls of a network: how often, how long each and all of them, and what operators the whole goes to."""
    from tessera.operators.sources.model import described, difference, shares

    columns = [
        Column("operator"),
        Column("arguments"),
        Column("pass"),
        Column("calls", "right"),
        Column("each", "right"),
        Column("all", "right"),
        Column("compute", "right"),
    ]
    rows = [
        [
            record.case.name,
            shortened(described(record.case), 60),
            record.case.params["pass"],
            record.case.params["calls"],
            _cell(record, "time"),
            format_value(_weight(record, "time"), "s") if "time" in record.metrics else "",
            _cell(record, "gflops") if "gflops" in record.metrics else "",
        ]
        for record in shown
    ]
    found = [(which, one) for which in dict.fromkeys(row[2] for row in rows) for one in shares(records, which)]
    by_operator = [
        Column("operator"),
        Column("pass"),
        Column("calls", "right"),
        Column("all", "right"),
        Column("share", "right"),
    ]
    with destination(output) as stream:
        render(columns, rows, form, stream, title="calls")
        if form == "terminal":
            render(
                by_operator,
                [[s.name, which, s.calls, format_value(s.seconds, "s"), f"{s.share:.1%}"] for which, s in found],
                form,
                stream,
                title="operators",
            )
            stream.writelines(f"{line}\n" for line in difference(records))


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def print_fit(records: Sequence[Record], form: Form, output: str | None) -> None:
    """The fitted overhead and cost of every operator that was measured in several sizes."""
    from tessera.operators.scaling import fit_table

    columns, rows = fit_table(records)
    if not rows:
        raise TesseraError("a fit needs an operator in two sizes or more", do="add --size all")
    with destination(output) as stream:
        render(columns, rows, form, stream, title="time = overhead + n * cost")

"""Tables of operator records: backends side by side, the calls of a network, and the fit over sizes."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.device import CPU
from tessera.operators.check import get_output_kind, same_work
from tessera.report.blocks import Column
from tessera.report.cells import make_metric_cell
from tessera.report.figures import format_value
from tessera.report.findings import compare_records, format_estimate, get_speedup
from tessera.report.record_tables import split_params
from tessera.report.tables import OutputFormat, open_output, write_rows
from tessera.results.metrics import get_spec
from tessera.results.record import Case, Record

MAX_ARGUMENT_CHARACTERS = 60  # maximum length of a call's arguments, in characters


def rank_records(records: Sequence[Record], metric: str, top: int | None, together: str) -> list[Record]:
    """Return the records of the `top` cases with the largest metric, largest first; without `top`, all in given order.

    Records that differ only in the parameter `together` (a backend, a size of a fit) count as one case.
    """
    if top is None:
        return list(records)
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.case.without(together).key, []).append(record)
    weights = {
        key: [_multiply_by_calls(one, metric) for one in own if metric in one.metrics] for key, own in groups.items()
    }
    most = sorted((key for key in groups if weights[key]), key=lambda key: max(weights[key]), reverse=True)
    return [record for key in most[:top] for record in groups[key]]


def _multiply_by_calls(record: Record, metric: str) -> float:
    """Return a metric times the number of identical calls in the network; a rate is returned unchanged."""
    calls = float(record.case.params.get("calls", 1)) if get_spec(metric).additive else 1.0
    return record.metrics[metric].value * calls


def print_side_by_side(
    records: Sequence[Record], metric: str, output_format: OutputFormat, output: str | None, *, axis: str = "backend"
) -> None:
    """Print one line per case, with a column per backend (or device) and the speed-up of each over the first."""
    names = list(dict.fromkeys(get_axis_value(record.case, axis) for record in records))
    rows: dict[str, dict[str, Record]] = {}
    cases: dict[str, Case] = {}
    for record in records:
        case = record.case.without(axis)
        cases[case.key] = case
        rows.setdefault(case.key, {})[get_axis_value(record.case, axis)] = record
    varying, fixed = split_params(list(cases.values()))
    columns = [
        Column("operator"),
        *(Column(name) for name in varying),
        *(Column(name, "number") for name in names),
        *(Column(f"{name} gains", "number") for name in names[1:]),
    ]
    table = [
        [
            cases[key].name,
            *(str(cases[key].params.get(name, "")) for name in varying),
            *(_format_cell(own.get(name), metric) for name in names),
            *(_format_gain(own.get(names[0]), own.get(name), metric) for name in names[1:]),
        ]
        for key, own in rows.items()
    ]
    title = ", ".join([metric, *(f"{name} {value}" for name, value in fixed.items())])
    with open_output(output) as stream:
        write_rows(columns, table, output_format, stream, title)


def get_axis_value(case: Case, axis: str) -> str:
    """Return the backend or the device of a case; cases without a device ran on the CPU."""
    return str(case.params.get(axis, CPU if axis == "device" else ""))


def _format_cell(record: Record | None, metric: str) -> str:
    """Format a metric of a record, or the status of the record if it has no such metric."""
    if record is None:
        return ""
    return make_metric_cell(record, metric).text or (record.status.replace("_", " ") if record.status != "ok" else "")


def _format_gain(base: Record | None, other: Record | None, metric: str) -> str:
    """Format the gain of a backend over the baseline: 2.00x is half the time, or twice the rate.

    Times of several launches have an interval, or are `same` or `unresolved`.

    A copy is not compared with a view, which takes constant time: the cell is `view` or `copy` instead.
    """
    if base is None or other is None or metric not in base.metrics or metric not in other.metrics:
        return ""
    one, two = base.metrics[metric], other.metrics[metric]
    if not one.value or not two.value:
        return ""
    if not same_work(base, other):
        return get_output_kind(other)
    if metric == "time" and len(base.launches) > 1 and len(other.launches) > 1:
        return _format_speedup(base, other)
    return f"{one.value / two.value if one.direction == 'lower' else two.value / one.value:.2f}x"


def _format_speedup(base: Record, other: Record) -> str:
    """Format the speed-up of a record with its interval; `unresolved` if noise could explain it."""
    (judged,) = compare_records([(base, other)])
    speedup = get_speedup(judged)
    return judged.verdict if speedup is None else format_estimate(speedup)


def print_calls(
    shown: Sequence[Record], records: Sequence[Record], metric: str, output_format: OutputFormat, output: str | None
) -> None:
    """Print the operator calls of a network with counts and times, and the share of each operator in the total time."""
    from tessera.operators.sources.model import compute_shares, describe_arguments, describe_difference

    figures = ["gflops", *([metric] if metric not in ("time", "gflops") else [])]
    columns = [
        Column("operator"),
        Column("arguments"),
        Column("dtype"),
        Column("pass"),
        Column("calls", "number"),
        Column("each", "number"),
        Column("all", "number"),
        *(Column({"gflops": "compute"}.get(name, name), "number") for name in figures),
    ]
    rows = [
        [
            record.case.name,
            _truncate_arguments(describe_arguments(record.case)),
            record.case.params["dtype"],
            record.case.params["pass"],
            record.case.params["calls"],
            _format_cell(record, "time"),
            format_value(_multiply_by_calls(record, "time"), "s") if "time" in record.metrics else "",
            *(_format_cell(record, name) if record.status == "ok" else "" for name in figures),
        ]
        for record in shown
    ]
    operator_shares = [
        (dtype, direction, share)
        for dtype, direction in dict.fromkeys((row[2], row[3]) for row in rows)
        for share in compute_shares([r for r in records if r.case.params["dtype"] == dtype], direction)
    ]
    operator_columns = [
        *(Column(name) for name in ("operator", "dtype", "pass")),
        *(Column(name, "number") for name in ("calls", "all", "share")),
    ]
    with open_output(output) as stream:
        write_rows(columns, rows, output_format, stream, title="calls")
        if output_format == "terminal":
            rows = [
                [share.name, dtype, direction, share.calls, format_value(share.seconds, "s"), f"{share.share:.1%}"]
                for dtype, direction, share in operator_shares
            ]
            write_rows(operator_columns, rows, output_format, stream, title="operators")
            stream.writelines(f"{line}\n" for line in describe_difference(records))


def _truncate_arguments(text: str) -> str:
    return text if len(text) <= MAX_ARGUMENT_CHARACTERS else text[: MAX_ARGUMENT_CHARACTERS - 1] + "…"


def print_fit(records: Sequence[Record], output_format: OutputFormat, output: str | None) -> None:
    """Print the fitted overhead and cost of every operator that was measured in several sizes."""
    from tessera.operators.scaling import build_fit_table

    columns, rows = build_fit_table(records)
    with open_output(output) as stream:
        write_rows(columns, rows, output_format, stream, title="time = overhead + n * cost")
        if not rows and output_format == "terminal":
            stream.write("nothing to fit: no operator was measured in three sizes with different work\n")

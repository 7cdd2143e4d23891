"""Table cells: values with units, metrics of records, percentages, counts and statuses."""

from __future__ import annotations

from tessera.report.blocks import Cell, Tone
from tessera.report.figures import format_change, format_metric, format_percent, format_value
from tessera.report.measured import summarize_record
from tessera.results.metrics import MetricFormat, get_spec, read_share
from tessera.results.record import Case, Record

STATUS_TONES: dict[str, Tone] = {"ok": "good", "failed": "bad", "refused": "muted", "timed_out": "bad"}
EMPTY_CELL = Cell("")
ABOVE_HINT = "faster than the calibrated rates: data in a cache, or the calibration is stale"


def make_metric_cell(
    record: Record, name: str, format: MetricFormat | None = None, *, predicted: bool = False, bounds: bool = False
) -> Cell:
    """Return a cell with a metric in its declared format; `n/a` for a percentage of a quantity below the noise."""
    metric = (record.predicted if predicted else record.metrics).get(name)
    if metric is None:
        return EMPTY_CELL
    spec = get_spec(name, record.case.feature)
    metric_format = format or spec.format
    part = read_share(record.metrics, name) if (bounds or spec.part_of) and not predicted else None
    margin = f" ± {format_metric(part.margin, '', metric_format)}" if part and part.margin is not None else ""
    if part and spec.part_of and not part.resolved:
        return Cell("n/a (below noise)", hint=f"the {spec.part_of} is smaller than the noise of this measurement")
    if spec.maximum is not None and metric.value > spec.maximum:
        text = f">{format_metric(spec.maximum, metric.unit, 'whole percent')}"
        return Cell(text, metric.value, hint=f"{format_metric(metric.value, metric.unit, metric_format)}: {ABOVE_HINT}")
    return Cell(format_metric(metric.value, metric.unit, metric_format) + (margin if bounds else ""), metric.value)


def make_median_cell(record: Record) -> Cell:
    """Return a cell with the median of a record, in the unit of the record."""
    summary = summarize_record(record)
    return EMPTY_CELL if summary is None else make_value_cell(summary.median, record.unit)


def make_interval_cell(record: Record) -> Cell:
    """Return a cell with the relative interval of the median; a question mark if there are too few samples.

    An interval wider than the median itself is `>100%`: the median says nothing.
    """
    summary = summarize_record(record)
    if summary is None:
        return EMPTY_CELL
    if summary.relative is None:
        return Cell("?")
    text = format_percent(summary.relative) if summary.relative <= 1 else ">100%"
    return Cell(text, summary.relative)


def make_launches_cell(record: Record) -> Cell:
    """Return a cell with the number of launches of a record."""
    summary = summarize_record(record)
    return EMPTY_CELL if summary is None else make_count_cell(summary.launches)


def make_value_cell(value: float | None, unit: str) -> Cell:
    """Return a cell with a measured value, scaled to a readable unit."""
    return EMPTY_CELL if value is None else Cell(format_value(value, unit), value)


def make_share_cell(value: float | None, sign: str = "") -> Cell:
    """Return a cell with a fraction in per cent, after an optional sign."""
    return EMPTY_CELL if value is None else Cell(sign + format_percent(value), value)


def make_change_cell(change: float) -> Cell:
    """Return a cell with a relative change: in per cent with its sign, or as a factor if it is large."""
    return Cell(format_change(change), change)


def make_count_cell(value: int) -> Cell:
    """Return a cell with a count."""
    return Cell(f"{value:,}", value)


def make_status_cell(record: Record) -> Cell:
    """Return a cell with the status of a record, in the colour of the status."""
    return Cell(record.status.replace("_", " "), tone=STATUS_TONES[record.status])


def format_case_label(case: Case) -> str:
    """Return the key of a case without its feature.

    >>> format_case_label(Case(feature="ops", name="add", params={"size": "small"}))
    'add[size=small]'
    """
    return case.key.removeprefix(f"{case.feature}/")

"""Validations: the largest error of every result on any rank, and what may be at most."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.report.blocks import Cell, Column, Heading, Row, Section, Table
from tessera.report.cells import NONE, number, status
from tessera.report.naming import case_names
from tessera.results.record import Record

ERRORS = {
    "Pixels": "error_pixels",
    "Output": "error_output",
    "Input gradient": "error_input_gradient",
    "Weight gradient": "error_weight_gradient",
    "Bias gradient": "error_bias_gradient",
}


def validation_section(records: Sequence[Record]) -> Section | None:
    """All validations that came to a verdict; None without one."""
    found = [record for record in records if record.case.name == "validate" and "failed_ranks" in record.metrics]
    if not found:
        return None
    names = case_names([record.case for record in found])
    columns: list[Heading] = [
        "Case",
        Column("Ranks", "number"),
        *(Column(title, "number") for title in ERRORS),
        Column("Allowed", "number", hint="received pixels have to be the same to the last bit"),
        Column("Status", quick=True),
    ]
    rows: list[Row] = [
        [
            names[record.case.key].cell,
            number(int(record.case.params["num_spatial_parts"])),
            *(_error(record, metric) for metric in ERRORS.values()),
            _error(record, "tolerance"),
            status(record),
        ]
        for record in found
    ]
    intro = (
        "Rounds of fresh random pixels, weights and gradients, in every layout and overlap that was asked for. Errors "
        "are the largest of any rank, as a part of the typical size of what the uncut convolution gives."
    )
    return Section("Exactness", intro, [Table(columns, rows, "Every validation")])


def _error(record: Record, name: str) -> Cell:
    metric = record.metrics.get(name)
    return Cell(f"{metric.value:.1e}" if metric.value else "0", metric.value) if metric else NONE

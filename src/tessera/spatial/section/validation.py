"""Report section of validations: the largest error of each kind of result on any rank, and the tolerance."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.report.blocks import Cell, Column, Heading, Row, Section, Table
from tessera.report.cells import EMPTY_CELL, make_count_cell, make_status_cell
from tessera.report.naming import name_cases
from tessera.results.record import Record

ERRORS = {
    "Pixels": "error_pixels",
    "Output": "error_output",
    "Input gradient": "error_input_gradient",
    "Weight gradient": "error_weight_gradient",
    "Bias gradient": "error_bias_gradient",
}


def build_validation_section(records: Sequence[Record]) -> Section | None:
    """Return the section of all completed validations; None if there are none."""
    validations = [record for record in records if record.case.name == "validate" and "failed_ranks" in record.metrics]
    if not validations:
        return None
    names = name_cases([record.case for record in validations])
    columns: list[Heading] = [
        "Case",
        Column("Ranks", "number"),
        *(Column(title, "number") for title in ERRORS),
        Column("Allowed", "number", hint="received pixels must be bitwise equal"),
        Column("Status", quick=True),
    ]
    rows: list[Row] = [
        [
            names[record.case.key].cell,
            make_count_cell(int(record.case.params["num_spatial_parts"])),
            *(_make_error_cell(record, metric) for metric in ERRORS.values()),
            _make_error_cell(record, "tolerance"),
            make_status_cell(record),
        ]
        for record in validations
    ]
    intro = (
        "Rounds of new random pixels, weights and gradients, in every requested layout and overlap. Errors are the "
        "largest of any rank, relative to the typical magnitude of the result of the unsplit convolution."
    )
    return Section("Exactness", intro, [Table(columns, rows, "Every validation")])


def _make_error_cell(record: Record, name: str) -> Cell:
    metric = record.metrics.get(name)
    return Cell(f"{metric.value:.1e}" if metric.value else "0", metric.value) if metric else EMPTY_CELL

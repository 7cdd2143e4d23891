"""Report section of whole networks on split images: times, and the picture of how each module is computed."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.report.blocks import Block, Column, Heading, Picture, Row, Section, Table
from tessera.report.cells import make_count_cell, make_metric_cell, make_status_cell
from tessera.report.naming import name_cases
from tessera.results.record import Record
from tessera.spatial.cases import NETWORK
from tessera.spatial.picture.explanation import draw_explanation


def build_network_section(records: Sequence[Record]) -> Section | None:
    """Return the section of all networks; None if there are none."""
    networks = [record for record in records if record.case.name == NETWORK and "time" in record.metrics]
    if not networks:
        return None
    names = name_cases([record.case for record in networks])
    columns: list[Heading] = [
        "Case",
        Column("Ranks", "number"),
        Column("Time", "number"),
        Column("Unsplit", "number", hint="in one process, on all cores of the ranks"),
        Column("Efficiency", "number"),
        Column("Received", "number", hint="by the busiest rank, in a forward pass"),
        Column("Status", quick=True),
    ]
    rows: list[Row] = [
        [
            names[record.case.key].cell,
            make_count_cell(int(record.case.params["num_spatial_parts"])),
            *(make_metric_cell(record, metric) for metric in ("time", "uncut", "efficiency", "bytes")),
            make_status_cell(record),
        ]
        for record in networks
    ]
    blocks: list[Block] = [Table(columns, rows, "Every network")]
    drawn: set[str] = set()
    for record in networks:
        params = record.case.params
        title = f"{params['model']}, image size {params['image_size']}, {params['num_spatial_parts']} ranks"
        if record.details.get("explanation") and title not in drawn:
            drawn.add(title)
            picture = draw_explanation(record.details["explanation"], label=title, standalone=False)
            blocks.append(Picture(picture, f"Modules of {title}", "Point at a module for its operators."))
    intro = (
        "Whole networks whose activations are split over the ranks. Output and gradients were compared with the "
        "unsplit network in float64 before the timing."
    )
    return Section("Networks", intro, blocks)

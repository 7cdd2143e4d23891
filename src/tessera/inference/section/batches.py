"""The sweep over batch sizes: what a larger batch gains."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.inference.section.groups import curves, rate_curves, whole
from tessera.report.blocks import Plot, Section
from tessera.results.record import Record


def batches_section(records: Sequence[Record]) -> Section | None:
    """Networks that were run with several batch sizes; None without one."""
    groups = curves(whole(records), "batch_size")
    if not groups:
        return None
    intro = "Images per second over the size of the batch; the latency of a batch grows with it."
    return Section("Batch size", intro, [Plot(rate_curves(groups, "batch size"), "Every curve is one way to run it.")])

"""The runs of a report as a history: each case's time over them, with the changes that last."""

from __future__ import annotations

from collections.abc import Sequence

from tessera.report.blocks import Section
from tessera.report.history_blocks import history_blocks
from tessera.report.runs import RunView
from tessera.results.changepoints import MIN_RUNS
from tessera.results.history import history
from tessera.results.reading import read

MIN_SHOWN = 3  # two runs are compared, not a history


def history_section(runs: Sequence[RunView]) -> Section | None:
    """The time of every case over the runs; None for fewer than three of them."""
    if len(runs) < MIN_SHOWN:
        return None
    readings = [read(record, "time", run=run.name, started=run.created) for run in runs for record in run.records]
    found = history(readings, "time")
    if not found.series:
        return None
    intro = f"The time of each case over {len(found.runs)} runs. Each dot is a run and each line a level."
    if len(found.runs) < MIN_RUNS:
        intro += f" It takes {MIN_RUNS} runs to tell a change from noise."
    return Section("History", intro, history_blocks(found))

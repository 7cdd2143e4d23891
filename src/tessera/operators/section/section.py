"""The operators' part of the report: few cases one by one, many by category; sizes, backends, fusion, history."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from tessera.operators.section.backends import backends_section
from tessera.operators.section.categories import backend_of, categories_section, main_backend
from tessera.operators.section.fused import fused_section
from tessera.operators.section.history import history_section
from tessera.operators.section.rates import launch_plot, rate_plot
from tessera.operators.section.scaling import scaling_section
from tessera.operators.section.slowest import slowest_table
from tessera.report.blocks import Block, Card, Cards, Section, Text
from tessera.report.figures import format_percent
from tessera.report.generic import record_table, split_params
from tessera.report.medians import MOST_ROWS, median_plots
from tessera.report.runs import RunView

# With more runs than a baseline and its successor, the history shows how they went and the rest only the newest.
MOST_RUNS = 2


def section(runs: Sequence[RunView]) -> Section:
    """Every operator case of the runs."""
    shown = runs if len(runs) <= MOST_RUNS else runs[-1:]
    cases = [record.case for run in shown for record in run.records]
    varying, fixed = split_params(cases) if cases else ([], {})
    intro = "Single operators: how long one call takes, how much it moves and computes, and how sure that is."
    if fixed:
        intro += " In all cases: " + ", ".join(f"{name} = {value}" for name, value in fixed.items()) + "."
    blocks: list[Block] = []
    if len(runs) > MOST_RUNS:
        blocks.append(
            Text(f"Of {len(runs)} runs, the newest is shown: `{shown[-1].name}`. The history has all of them.")
        )
    if len({case.key for case in cases}) > MOST_ROWS:
        blocks += [_cards(shown[-1]), categories_section(shown), slowest_table(shown[-1])]
    else:
        rates = (rate_plot(shown, varying, "gflops", "GFLOP/s"), rate_plot(shown, varying, "bandwidth", "GB/s"))
        plots = (*median_plots(shown, varying), *rates, launch_plot(shown, varying))
        blocks += [plot for plot in plots if plot]
    records = shown[-1].records
    parts = (scaling_section(records), backends_section(records), fused_section(records), history_section(runs))
    blocks += [part for part in parts if part]
    if cases:
        blocks.append(Section("All records", "", [record_table(shown, varying)]))
    return Section("Operators", intro, blocks)


def _cards(run: RunView) -> Cards:
    """What the newest run covers, in four figures."""
    ok = [record for record in run.records if record.status == "ok"]
    shares = [r.metrics["roofline"].value for r in main_backend(ok) if "roofline" in r.metrics]
    backends = dict.fromkeys(backend_of(record.case) for record in run.records)
    middle = format_percent(statistics.median(shares)) if shares else "unknown"
    remark = "of the calibrated machine" if shares else "`tessera doctor --calibrate`"
    return Cards(
        [
            Card("Operators", f"{len({record.case.name for record in run.records}):,}", "by name"),
            Card("Cases", f"{len(ok):,}", f"measured of {len(run.records):,}"),
            Card("Backends", f"{len(backends):,}", ", ".join(backends)),
            Card("The middle case reaches", middle, remark.replace("`", "")),
        ]
    )

"""The result of tuning as text: the best candidate, the Pareto front of throughput and latency, other candidates."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import TextIO

from tessera.inference.tables import format_summary, write_rates_table
from tessera.inference.tune.pareto import DOT_MARK, FRONT_MARK, format_scatter
from tessera.inference.tune.race import CandidateResult
from tessera.inference.tune.tuning import TuningResult
from tessera.report.blocks import Column, Columns, Table, tabulate
from tessera.report.figures import format_rate, format_seconds
from tessera.report.tables import OutputFormat, write_blocks
from tessera.results.record import Record


def write_tuning(tuned: TuningResult, best: Record, output_format: OutputFormat, stream: TextIO, command: str) -> None:
    """Write the best candidate, the Pareto front as a table and a plot, and all remaining candidates."""
    write_rates_table([best], output_format, stream)
    if output_format == "terminal":
        stream.writelines(f"{line}\n" for line in format_summary(best))
        stream.writelines(f"- {note}\n" for note in best.notes)
        if best.status != "ok":
            stream.write(f"{best.status.replace('_', ' ')}: {best.reason}\n")
        stream.write(f"\nbest for {tuned.goal.kind}: {tuned.best.candidate}\n  {command}\n")
        stream.writelines(f"{line}\n" for line in format_certainty(tuned))
        if not tuned.within_bound:
            stream.write("no candidate meets --max-latency; this candidate has the closest latency\n")
    front = tuned.find_front()
    others = [result for result in tuned.results if result not in front]
    blocks: list[Table | Iterable[str]] = [
        tabulate(_CANDIDATE_COLUMNS, front, "Pareto front of throughput and latency")
    ]
    if output_format == "terminal":
        blocks.append(_draw_candidates(tuned, front))
    if others:
        dropped: Columns[CandidateResult] = {Column(""): lambda result: result.dropped}
        blocks.append(tabulate({**_CANDIDATE_COLUMNS, **dropped}, others, "other candidates"))
    stream.write("\n" if output_format == "markdown" else "")
    write_blocks(blocks, output_format, stream)


def format_certainty(tuned: TuningResult) -> list[str]:
    """Return how many candidates were tried, and how far the best one is ahead of the second one."""
    lines = [f"{tuned.tried} of {len(tuned.results)} candidates were tried"]
    if any(result.out_of_time for result in tuned.results):
        lines[0] += "; a longer --tune-time tries more"
    comparison = tuned.compare_with_second()
    if comparison is None or not math.isfinite(comparison[1].low):
        return [*lines, "too few bursts to compare the best candidate with another one: use a longer --tune-time"]
    second, lead = comparison
    interval = f"{lead.low - 1:+.0%} to {lead.high - 1:+.0%}"
    if not lead.low > 1:
        return [*lines, f"not resolved against {second.candidate} ({interval}): a longer --tune-time may resolve it"]
    return [*lines, f"{lead.value - 1:+.0%} ({interval}) ahead of {second.candidate}"]


def _draw_candidates(tuned: TuningResult, front: Collection[CandidateResult]) -> list[str]:
    points = [(result.latency, result.rate, result in front) for result in tuned.measured_candidates]
    plot = format_scatter(points, x_label=format_seconds, y_label=lambda rate: format_rate(rate, "images/s"))
    legend = f"images/s over the latency of a batch (p90): {FRONT_MARK} on the front, {DOT_MARK} behind it"
    return [*plot, legend, ""]


_CANDIDATE_COLUMNS: Columns[CandidateResult] = {
    "engine": lambda result: result.candidate.replica_set.engine,
    "device": lambda result: result.candidate.replica_set.device,
    Column("replicas", "number"): lambda result: result.candidate.replica_set.replicas,
    Column("threads", "number"): lambda result: result.candidate.replica_set.threads,
    Column("batch", "number"): lambda result: result.candidate.batch,
    Column("images/s", "number"): lambda result: format_rate(result.rate, "") if result.bursts else "",
    Column("p90", "number"): lambda result: format_seconds(result.latency) if result.bursts else "",
    Column("bursts", "number"): lambda result: len(result.bursts),
}

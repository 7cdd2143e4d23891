"""Core-grid section of the report, and the HTML page of a plan: halos, memory, timeline, candidates and networks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tessera.coregrid.cost.timeline import build_timeline, predict_time
from tessera.coregrid.networks.plan import NetworkPlan
from tessera.coregrid.pictures.core_charts import draw_memory, draw_timeline
from tessera.coregrid.pictures.core_grid import draw_core_grid
from tessera.coregrid.pictures.halos import draw_halos
from tessera.coregrid.pictures.network_strip import draw_lifetimes, draw_network
from tessera.coregrid.planning.plan import MIB, ConvPlan, describe_plan
from tessera.coregrid.problem import ConvProblem
from tessera.coregrid.search import ConvSearch
from tessera.errors import TesseraError
from tessera.machine.catalogue import find_shipped_files
from tessera.report.blocks import Card, Cell, Column, Heading, Picture, Row, Section, Table
from tessera.report.feature_section import build_feature_section
from tessera.report.figures import format_bytes, format_change, format_seconds
from tessera.report.picture_page import build_picture_page, build_picture_table
from tessera.report.runs import RunView
from tessera.results.record import Record

MAX_EXAMPLE_CORE_ROWS = 12  # an example with at most this number of rows of cores is preferred
MAX_EXAMPLE_PIXELS = 1 << 20  # larger convolutions are not drawn
MAX_CANDIDATE_ROWS, MAX_PAGE_CANDIDATE_ROWS = 12, 40  # in the section and on the page of a plan
PAGE_HEADINGS = ("setting", "fits", "time", "memory", "bytes moved")


def section(runs: Sequence[RunView]) -> Section:
    """Build the core-grid section of the report from the newest run, which is compared with the other runs."""
    intro = (
        "Convolutions on a grid of cores with a small local memory each. Every convolution is planned for a chip, "
        "executed on this host in a model that bounds every core's memory and counts every byte, and compared with "
        "torch. Memory and bytes are counted; the time on the chip is predicted from its rates."
    )
    records = runs[-1].records
    shown = _choose_example(records)
    parts = [_build_network_section(records)]
    if shown is not None:
        problem, plan = shown
        parts += [
            _build_halo_section(plan),
            _build_memory_section(plan),
            _build_timeline_section(plan),
            _build_candidate_section(problem),
        ]
    return build_feature_section("Core grid", intro, runs, cards=_build_cards(records), parts=parts)


def _build_cards(records: Sequence[Record]) -> list[Card]:
    cards = []
    checked = [record for record in records if "wrong" in record.metrics]
    if checked:
        wrong = sum(1 for record in checked if record.metrics["wrong"].value)
        remark = f"of {len(checked)} convolutions agree with torch"
        cards.append(Card("Correct", str(len(checked) - wrong), remark, "bad" if wrong else "good"))
        worst = min(record.metrics["pcc"].value for record in checked)
        cards.append(Card("Lowest correlation", f"{worst:.6f}", "with torch's output"))
        off = sum(1 for record in checked if not _matches_prediction(record))
        remark = f"of {len(checked)} equal their prediction"
        cards.append(Card("Memory and bytes", str(len(checked) - off), remark, "bad" if off else "good"))
    errors = [error for record in records if (error := _compute_throughput_error(record)) is not None]
    if errors:
        worst = max(errors, key=abs)
        cards.append(Card("Networks", format_change(worst), "largest error of a predicted throughput"))
    return cards


def _matches_prediction(record: Record) -> bool:
    names = ("high_water", "local", "remote", "multicast", "global")
    return all(record.metrics[name].value == record.predicted[name].value for name in names if name in record.predicted)


def _compute_throughput_error(record: Record) -> float | None:
    predicted, published = (where.get("images_per_second") for where in (record.predicted, record.metrics))
    return predicted.value / published.value - 1 if predicted and published and published.value else None


def _build_network_section(records: Sequence[Record]) -> Section | None:
    """Build the table of predicted and published images per second."""
    rows: list[Row] = []
    for record in records:
        predicted = record.predicted.get("images_per_second")
        if predicted is None:
            continue
        published, error = record.metrics.get("images_per_second"), _compute_throughput_error(record)
        params = record.case.params
        rows.append(
            [
                str(params.get("network", "")),
                str(params.get("machine", "")),
                Cell(str(params.get("batch_size", "")), float(params.get("batch_size", 0))),
                Cell(f"{predicted.value:,.0f}", predicted.value),
                Cell(f"{published.value:,.0f}", published.value) if published else Cell(""),
                Cell(format_change(error), error) if error is not None else Cell(""),
            ]
        )
    if not rows:
        return None
    numbers = ("batch", "predicted images/s", "published images/s", "error")
    columns: list[Heading] = ["network", "machine", *(Column(name, "number") for name in numbers)]
    intro = (
        "Predicted from the chips' rates; no factor is fitted to a network. Published rates were measured by the maker."
    )
    return Section("Networks, predicted and published", intro, [Table(columns, rows)])


def _choose_example(records: Sequence[Record]) -> tuple[ConvProblem, ConvPlan] | None:
    """Choose the convolution to draw, preferably a convolution with halos on few rows of cores."""
    best: tuple[ConvProblem, ConvPlan] | None = None
    for record in records:
        if record.case.name != "conv2d" or record.status != "ok":
            continue
        # A record may come from another person: its machine may be a path, and its sizes may take hours to plan.
        if str(record.case.params.get("machine")) not in find_shipped_files():
            continue
        try:
            problem = ConvProblem.of(record.case.params)
            if problem.conv.batch * problem.conv.height * problem.conv.width > MAX_EXAMPLE_PIXELS:
                continue
            plan = problem.plan()
        except (TesseraError, KeyError, TypeError, ValueError):
            continue  # a record of a different version of this package
        if best is None or _rank_example(plan) > _rank_example(best[1]):
            best = problem, plan
    return best


def _rank_example(plan: ConvPlan) -> tuple[bool, bool, int]:
    return plan.halo is not None and not plan.slices, plan.sharding.rows <= MAX_EXAMPLE_CORE_ROWS, -plan.conv.width


def _build_halo_section(plan: ConvPlan) -> Section | None:
    if plan.halo_runs is None:
        return None
    shape, hint = describe_plan(plan), "Hover over a run to see its sticks."
    drawn = Picture(draw_halos(plan, standalone=False), f"Shards and halos: {shape}", hint)
    return Section("Shards and halos", f"{shape}.", [drawn])


def _build_memory_section(plan: ConvPlan) -> Section:
    drawn = Picture(draw_memory(plan, standalone=False), f"Memory of a core: {plan.fit_summary}")
    return Section("Memory of a core", f"{plan.fit_summary}.", [drawn])


def _build_timeline_section(plan: ConvPlan) -> Section:
    when = predict_time(plan)
    caption = f"{format_seconds(when.seconds)} predicted, bound by the {when.bound}"
    drawn = Picture(draw_timeline(build_timeline(plan), standalone=False), caption)
    return Section("Timeline of the busiest core", f"{caption}.", [drawn])


def _build_candidate_section(problem: ConvProblem) -> Section:
    search = problem.search()
    intro = " ".join(f"{line[0].upper()}{line[1:]}." for line in search.explain())
    return Section("Candidates of the search", intro, [_build_candidate_table(search)])


def _build_candidate_table(search: ConvSearch) -> Table:
    numbers = (Column(name, "number") for name in ("memory per core", "bytes moved", "predicted"))
    columns: list[Heading] = ["setting", Column("fits", quick=True), *numbers]
    rows: list[Row] = [
        [
            str(candidate),
            Cell("yes" if candidate.fits else "no", tone="" if candidate.fits else "muted"),
            Cell(f"{candidate.plan.high_water / MIB:.2f} MiB", candidate.plan.high_water),
            Cell(format_bytes(candidate.plan.ledger.total), candidate.plan.ledger.total),
            Cell(format_seconds(candidate.seconds), candidate.seconds),
        ]
        for candidate in search.candidates[:MAX_CANDIDATE_ROWS]
    ]
    return Table(columns, rows, f"The first {len(rows)} of {len(search.candidates)}.")


def build_plan_page(plan: ConvPlan, search: ConvSearch | None = None) -> str:
    """Return an HTML page with the drawings of a plan and, if given, the candidates of a search."""
    shown = plan.slices[0].plan if plan.slices else plan
    title = describe_plan(plan)
    parts = [
        f"<h1>{escape(title)}</h1>\n<p>{escape(plan.fit_summary)}</p>",
        *([_format_figure("Shards and halos", draw_halos(shown, standalone=False))] if shown.halo_runs else []),
        _format_figure("Core grid", draw_core_grid(shown, standalone=False)),
        _format_figure("Memory of a core", draw_memory(plan, standalone=False)),
        _format_figure("Timeline of the busiest core", draw_timeline(build_timeline(plan), standalone=False)),
        *([f"<h2>Candidates</h2>{_format_candidates(search)}"] if search else []),
    ]
    return build_picture_page("\n".join(parts), title=title)


def build_network_page(plan: NetworkPlan) -> str:
    """Return an HTML page with the layers of a planned network and the memory of a core over the layers."""
    title = f"{plan.network.name}, batch {plan.network.batch}, {plan.machine.name}"
    parts = [
        f"<h1>{escape(title)}</h1>",
        _format_figure("Layers", draw_network(plan, standalone=False)),
        _format_figure("Memory of a core", draw_lifetimes(plan, standalone=False)),
    ]
    return build_picture_page("\n".join(parts), title=title)


def _format_figure(title: str, svg: str) -> str:
    return f"<h2>{escape(title)}</h2><figure>{svg}</figure>"


def _format_candidates(search: ConvSearch) -> str:
    rows = [
        (
            str(candidate),
            "yes" if candidate.fits else "no",
            format_seconds(candidate.seconds),
            f"{candidate.plan.high_water / MIB:.2f} MiB",
            format_bytes(candidate.plan.ledger.total),
        )
        for candidate in search.candidates[:MAX_PAGE_CANDIDATE_ROWS]
    ]
    omitted = len(search.candidates) - MAX_PAGE_CANDIDATE_ROWS
    rest = f"<p>and {omitted} more</p>" if omitted > 0 else ""
    return f"<figure>{build_picture_table(PAGE_HEADINGS, rows, numbers=(2, 3, 4))}</figure>{rest}"

"""Text output of `tessera conv`: single plans, tables of candidates, plans and records, and whole networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.convolution import SEARCH_LAYOUT
from tessera.coregrid.cost.timeline import predict_time
from tessera.coregrid.planning.plan import MIB, ConvPlan, describe_plan, explain_fit
from tessera.coregrid.problem import ConvProblem
from tessera.coregrid.search import ConvSearch
from tessera.errors import TesseraError
from tessera.report.blocks import Column
from tessera.report.figures import format_bytes, format_seconds
from tessera.report.record_tables import (
    RecordTable,
    build_table,
    format_param,
    make_chosen_column,
    make_metric_column,
    make_time_columns,
    split_params,
)
from tessera.report.tables import OutputFormat, write_json, write_rows, write_table
from tessera.results.record import Case, Record

PLAN_COLUMNS = (
    Column("layout"),
    Column("cores", "number"),
    Column("memory", "number"),
    Column("fits"),
    *(Column(name, "number") for name in ("local", "remote", "multicast", "global", "predicted")),
    Column("bound by"),
)
CANDIDATE_COLUMNS = (
    Column("layout"),
    Column("fits"),
    Column("time", "number"),
    Column("memory", "number"),
    *(Column(name) for name in ("grid", "block", "double buffers")),
    Column("bytes", "number"),
)


def print_conv_plan(problem: ConvProblem, rows: int, stream: TextIO) -> None:
    """Print the plan of one convolution as text, and the best candidates if the plan was searched."""
    search = problem.search() if problem.choice == SEARCH_LAYOUT else None
    plan = search.best.plan if search else problem.plan()
    stream.write("\n".join([describe_plan(plan), *_list_plan_lines(plan), ""]))
    if search:
        stream.writelines(f"{line}\n" for line in search.explain())
        print_candidates(search, rows, stream)


def _list_plan_lines(plan: ConvPlan) -> list[str]:
    """Describe shards, blocks, memory, bytes moved and predicted time of a plan, one line each."""
    sharding, blocks, ledger, when = plan.sharding, plan.blocks, plan.ledger, predict_time(plan)
    grid = f"{sharding.rows} x {max(sharding.columns, sharding.out_columns)}"
    buffers = ", ".join(f"{name} {format_bytes(size)}" for name, size in plan.footprint.get_buffer_sizes().items())
    lines = [
        f"  plan     {plan.layout} on {plan.machine.name}, {sharding.cores} cores ({grid})",
        f"  shards   {sharding.in_height} sticks x {sharding.in_width} channels in, "
        f"{sharding.out_height} x {sharding.out_width} out",
        f"  blocks   {blocks.height_blocks} x {blocks.inner_blocks} of {blocks.act_height} x {blocks.act_width} tiles, "
        f"output {blocks.out_width} tiles wide, sub-blocks {blocks.sub_height} x {blocks.sub_width}",
        f"  fit      {explain_fit(plan)}",
        f"  memory   {buffers}",
        f"  bytes    local {format_bytes(ledger.local)}, remote {format_bytes(ledger.remote)}, multicast "
        f"{format_bytes(ledger.multicast)}, global {format_bytes(ledger.global_bytes)}",
        f"  time     {format_seconds(when.seconds)} predicted, bound by the {when.bound}",
    ]
    if plan.conv.groups > 1:
        lines.append(
            f"  groups   {plan.conv.groups}, multiplied as dense weights with zeros between them: "
            f"{plan.conv.groups} times the arithmetic"
        )
    if plan.slices:
        axis = plan.slices[0].axis
        lines.append(f"  slices   {len(plan.slices)} of the {axis} through global memory; memory of the largest slice")
    return lines


def print_candidates(search: ConvSearch, rows: int, stream: TextIO) -> None:
    """Print the best candidates of a search, with at least one candidate of every layout."""
    shown = list(search.candidates[:rows])
    for candidate in search.candidates:
        if all(candidate.plan.layout != shown_candidate.plan.layout for shown_candidate in shown):
            shown.append(candidate)
    cells = [
        [
            layout,
            "yes" if candidate.fits else "no",
            format_seconds(candidate.seconds),
            f"{candidate.plan.high_water / MIB:.2f} MiB",
            *settings,
            format_bytes(candidate.plan.ledger.total),
        ]
        for candidate in shown
        for layout, *settings in [_format_candidate_cells(candidate.plan)]
    ]
    title = f"{len(search.candidates)} candidates, all with a split reader"
    write_rows(CANDIDATE_COLUMNS, cells, "terminal", stream, title=title)


def _format_candidate_cells(plan: ConvPlan) -> list[str]:
    """Return the table cells of a candidate: layout, grid, block size and double buffers."""
    config = plan.config
    transposed = " transposed" if plan.layout == ShardLayout.BLOCK and config.transpose_shards else ""
    slices = f" in {len(plan.slices)} slices" if plan.slices else ""
    block = "whole"
    if plan.layout == ShardLayout.WIDTH and config.act_block_w_div > 1:
        block = f"width / {config.act_block_w_div}"
    elif plan.layout != ShardLayout.WIDTH and config.act_block_h_override:
        block = f"height {config.act_block_h_override}"
    two = [name for name in ("act", "weights") if getattr(config, f"enable_{name}_double_buffer")]
    return [f"{plan.layout}{slices}", f"{plan.grid.rows}x{plan.grid.cols}{transposed}", block, ", ".join(two)]


def print_plans(
    cases: Sequence[Case], problems: Sequence[ConvProblem], output_format: OutputFormat, stream: TextIO
) -> None:
    """Print the plans of several convolutions, one line per convolution."""
    rows, plain = [], []
    varying, _ = split_params(cases)
    axes = [axis for axis in varying if axis != "layer"]
    layered = any("layer" in case.params for case in cases)
    for case, problem in zip(cases, problems, strict=True):
        try:
            plan = problem.plan()
        except TesseraError as error:
            plain.append({"case": case.key, "fits": False, "reason": str(error)})
            rows.append([*_format_case_cells(case, axes, layered), *[""] * 3, "no", *[""] * (len(PLAN_COLUMNS) - 4)])
            continue
        plain.append({"case": case.key, **build_plan_json(plan)})
        rows.append([*_format_case_cells(case, axes, layered), *_format_plan_cells(plan)])
    if output_format == "json":
        write_json(plain, stream)
        return
    names = [*(["layer"] if layered else []), *(axis.replace("_", " ") for axis in axes)]
    write_rows([*map(Column, names), *PLAN_COLUMNS], rows, output_format, stream)


def _format_case_cells(case: Case, axes: Sequence[str], layered: bool) -> list[str]:
    layer_name = [str(case.params.get("layer", "")).partition(":")[2]] if layered else []
    return layer_name + [format_param(case.params.get(axis, "")) for axis in axes]


def _format_plan_cells(plan: ConvPlan) -> list[str]:
    when, ledger = predict_time(plan), plan.ledger
    slices = f" in {len(plan.slices)} slices" if plan.slices else ""
    return [
        f"{plan.layout}{slices}",
        str(plan.sharding.cores),
        f"{plan.high_water / MIB:.2f} MiB",
        "yes" if plan.fits else "no",
        *(format_bytes(count) for count in (ledger.local, ledger.remote, ledger.multicast, ledger.global_bytes)),
        format_seconds(when.seconds),
        when.bound,
    ]


def build_plan_json(plan: ConvPlan) -> dict[str, object]:
    """Return a plan as a dict of plain values, for JSON output."""
    when, sharding, blocks = predict_time(plan), plan.sharding, plan.blocks
    return {
        "machine": plan.machine.name,
        "layout": str(plan.layout),
        "grid": f"{plan.grid.rows}x{plan.grid.cols}",
        "cores": sharding.cores,
        "rows": sharding.rows,
        "columns": sharding.columns,
        "out_columns": sharding.out_columns,
        "input_shard": [sharding.in_height, sharding.in_width],
        "output_shard": [sharding.out_height, sharding.out_width],
        "act_block_tiles": [blocks.act_height, blocks.act_width],
        "out_width_tiles": blocks.out_width,
        "height_blocks": blocks.height_blocks,
        "inner_blocks": blocks.inner_blocks,
        "sub_block_tiles": [blocks.sub_height, blocks.sub_width],
        "memory": plan.footprint.get_buffer_sizes(),
        "high_water": plan.high_water,
        "have": plan.capacity,
        "fits": plan.fits,
        "reason": explain_fit(plan),
        "slices": len(plan.slices),
        "bytes": asdict(plan.ledger),
        "seconds": when.seconds,
        "bound": when.bound,
    }


RECORD_TABLE = RecordTable(
    columns=(
        make_chosen_column("layout"),
        make_chosen_column("cores", number=True),
        make_metric_column("high_water", "memory"),
        make_metric_column("moved"),
        make_metric_column("chip_time", "chip", predicted=True),
        make_metric_column("pcc"),
        make_metric_column("max_error"),
        *make_time_columns("here"),
    ),
    title="conv",
)


def write_conv_records(records: Sequence[Record], output_format: OutputFormat, stream: TextIO) -> None:
    """Write the table of executed convolutions: agreement with torch, counted memory and bytes, predicted time."""
    write_table(build_table(records, RECORD_TABLE), output_format, stream)

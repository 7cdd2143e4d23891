"""What `tessera conv` prints: a plan in words, tables of plans and of records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TextIO

from tessera.cli.records_table import print_records
from tessera.coregrid.cases import SEARCH
from tessera.coregrid.cost.timeline import predicted
from tessera.coregrid.pictures.halos import describe
from tessera.coregrid.planning.knobs import advice
from tessera.coregrid.planning.plan import MB, ConvPlan
from tessera.coregrid.planning.search import Search
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.coregrid.problem import Problem
from tessera.errors import TesseraError
from tessera.report.destination import destination
from tessera.report.figures import format_bytes, format_percent, format_seconds, format_value
from tessera.report.generic import split_params
from tessera.report.measured import measured
from tessera.report.tables import Column, Form, render
from tessera.results.record import Case, Record
from tessera.results.run import Run

HEADS = ("layout", "cores", "memory", "fits", "local", "remote", "multicast", "global", "predicted", "bound by")
RIGHT = {"cores", "memory", "local", "remote", "multicast", "global", "predicted"}


def print_problem(problem: Problem, rows: int, stream: TextIO) -> None:
    """One convolution: its plan in words, and what the search found."""
    search = problem.search() if problem.choice == SEARCH else None
    plan = search.best.plan if search else problem.plan()
    stream.write("\n".join([describe(plan), *_said(plan), ""]))
    if search:
        stream.writelines(f"{line}\n" for line in search.explain())
        print_candidates(search, rows, stream)


def _said(plan: ConvPlan) -> list[str]:
    sharding, blocks, ledger, when = plan.sharding, plan.blocks, plan.ledger, predicted(plan)
    grid = f"{sharding.rows} x {max(sharding.columns, sharding.out_columns)}"
    lines = [
        f"  plan     {plan.layout} on {plan.machine.name}, {sharding.cores} cores ({grid})",
        f"  shards   {sharding.in_height} sticks x {sharding.in_width} channels in, "
        f"{sharding.out_height} x {sharding.out_width} out",
        f"  blocks   {blocks.height_blocks} x {blocks.inner_blocks} of {blocks.act_height} x {blocks.act_width} tiles, "
        f"output {blocks.out_width} tiles wide, sub-blocks {blocks.sub_height} x {blocks.sub_width}",
        f"  fit      {advice(plan)}",
        f"  memory   {', '.join(f'{name} {format_bytes(size)}' for name, size in plan.footprint.parts().items())}",
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
        lines.append(
            f"  slices   {len(plan.slices)} of the {axis} through global memory; the memory is that of the largest"
        )
    return lines


def print_candidates(search: Search, rows: int, stream: TextIO) -> None:
    """The best of the candidates, and of every layout at least one."""
    shown = list(search.candidates[:rows])
    for candidate in search.candidates:
        if all(candidate.plan.layout != other.plan.layout for other in shown):
            shown.append(candidate)
    heads = ("layout", "grid", "block", "double buffers", "memory", "fits", "bytes", "time")
    columns = [Column(head, "right" if head in ("memory", "bytes", "time") else "left") for head in heads]
    cells = [
        [
            *_setting(candidate.plan),
            f"{candidate.plan.high_water / MB:.2f} MB",
            "yes" if candidate.fits else "no",
            format_bytes(candidate.plan.ledger.total),
            format_seconds(candidate.seconds),
        ]
        for candidate in shown
    ]
    render(columns, cells, "terminal", stream, title=f"{len(search.candidates)} candidates, all with a split reader")


def _setting(plan: ConvPlan) -> list[str]:
    """What sets a candidate apart, in few words."""
    config = plan.config
    turned = " turned" if plan.layout == ShardLayout.BLOCK and not config.transpose_shards else ""
    slices = f" in {len(plan.slices)} slices" if plan.slices else ""
    block = "whole"
    if plan.layout == ShardLayout.WIDTH and config.act_block_w_div > 1:
        block = f"width / {config.act_block_w_div}"
    elif plan.layout != ShardLayout.WIDTH and config.act_block_h_override:
        block = f"height {config.act_block_h_override}"
    two = [name for name in ("act", "weights") if getattr(config, f"enable_{name}_double_buffer")]
    return [f"{plan.layout}{slices}", f"{plan.grid.rows}x{plan.grid.cols}{turned}", block, ", ".join(two)]


def print_plans(cases: Sequence[Case], problems: Sequence[Problem], form: str, stream: TextIO) -> None:
    """Many convolutions: a line for each."""
    rows, plain = [], []
    varying, _ = split_params(cases)
    axes = [axis for axis in varying if axis != "layer"]
    layered = any("layer" in case.params for case in cases)
    for case, problem in zip(cases, problems, strict=True):
        try:
            plan = problem.plan()
        except TesseraError as error:
            plain.append({"case": case.key, "fits": False, "reason": str(error)})
            rows.append([*_names(case, axes, layered), *[""] * 3, "no", *[""] * (len(HEADS) - 4)])
            continue
        plain.append({"case": case.key, **plain_plan(plan)})
        rows.append([*_names(case, axes, layered), *_figures(plan)])
    if form == "json":
        json.dump(plain, stream, indent=1)
        stream.write("\n")
        return
    shown: Form = "markdown" if form == "markdown" else "csv" if form == "csv" else "terminal"
    heads = [*(["layer"] if layered else []), *(axis.replace("_", " ") for axis in axes), *HEADS]
    render([Column(head, "right" if head in RIGHT else "left") for head in heads], rows, shown, stream)


def _names(case: Case, axes: Sequence[str], layered: bool) -> list[str]:
    own = [str(case.params.get("layer", "")).partition(":")[2]] if layered else []
    return own + [_word(case.params.get(axis, "")) for axis in axes]


def _word(value: object) -> str:
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def _figures(plan: ConvPlan) -> list[str]:
    when, ledger = predicted(plan), plan.ledger
    slices = f" in {len(plan.slices)} slices" if plan.slices else ""
    return [
        f"{plan.layout}{slices}",
        str(plan.sharding.cores),
        f"{plan.high_water / MB:.2f} MB",
        "yes" if plan.fits else "no",
        *(format_bytes(count) for count in (ledger.local, ledger.remote, ledger.multicast, ledger.global_bytes)),
        format_seconds(when.seconds),
        when.bound,
    ]


def plain_plan(plan: ConvPlan) -> dict[str, object]:
    """A plan as plain values."""
    when, sharding, blocks, ledger = predicted(plan), plan.sharding, plan.blocks, plan.ledger
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
        "memory": plan.footprint.parts(),
        "high_water": plan.high_water,
        "have": plan.have,
        "fits": plan.fits,
        "reason": advice(plan),
        "slices": len(plan.slices),
        "bytes": {
            "local": ledger.local,
            "remote": ledger.remote,
            "multicast": ledger.multicast,
            "global_read": ledger.global_read,
            "global_written": ledger.global_written,
        },
        "seconds": when.seconds,
        "bound": when.bound,
    }


def print_conv(run: Run, records: Sequence[Record], form: Form, output: str | None) -> None:
    """What was executed: numbers against torch, memory and bytes as counted, the predicted time."""
    if form in ("json", "csv"):
        print_records(run, records, form, output)
        return
    varying, fixed = split_params([record.case for record in records])
    columns = [
        *(Column(axis.replace("_", " ")) for axis in varying),
        *(Column(head) for head in ("layout",)),
        *(Column(head, "right") for head in ("cores", "memory", "moved", "chip", "PCC", "max error", "here", "±")),
        Column("status"),
    ]
    rows = [
        [
            *(_word(record.case.params.get(axis, "")) for axis in varying),
            str(record.conditions.get("layout", "")),
            str(record.conditions.get("cores", "")),
            _metric(record, "high_water"),
            _metric(record, "moved"),
            _metric(record, "chip_time", predicted=True),
            f"{record.metrics['pcc'].value:.6f}" if "pcc" in record.metrics else "",
            f"{record.metrics['max_error'].value:.1e}" if "max_error" in record.metrics else "",
            *_time(record),
            record.status.replace("_", " "),
        ]
        for record in records
    ]
    said = ", ".join(f"{axis.replace('_', ' ')} {value}" for axis, value in fixed.items())
    with destination(output) as stream:
        render(columns, rows, form, stream, title=f"conv: {said}")


def _metric(record: Record, name: str, *, predicted: bool = False) -> str:
    metric = (record.predicted if predicted else record.metrics).get(name)
    return "" if metric is None else format_value(metric.value, metric.unit)


def _time(record: Record) -> tuple[str, str]:
    found = measured(record)
    if found is None:
        return "", ""
    spread = "?" if found.relative is None else format_percent(found.relative)
    return format_value(found.median, record.unit), spread

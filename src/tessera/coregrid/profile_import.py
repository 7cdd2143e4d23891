"""Measured times of a chip from a CSV file, beside the predicted times.

Two files are read: the device profiler's table of operations (`ops_perf_results_*.csv`), whose attributes describe
every convolution, and the table that tt-perf-report makes of it, whose operations are matched with the layers of a
network in order."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, TextIO

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, ShardLayout
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.cost.timeline import predict_time
from tessera.coregrid.formats import DTYPES, Layout
from tessera.coregrid.networks.plan import NetworkPlan
from tessera.coregrid.planning.plan import plan_one
from tessera.errors import TesseraError
from tessera.machine.machine import Machine
from tessera.report.blocks import Column
from tessera.report.figures import format_percent, format_seconds
from tessera.report.tables import OutputFormat, write_json, write_rows

PROFILER_CODE, PROFILER_TIME = "OP CODE", "DEVICE KERNEL DURATION [ns]"
REPORT_CODE, REPORT_TIME = "OP Code", "Device Time"  # microseconds
# Families of operations by a part of their code, in order of precedence.
FAMILIES = (
    ("halo", "halo"),
    ("conv", "conv"),
    ("matmul", "conv"),
    ("linear", "conv"),
    ("pool", "pool"),
    ("binary", "elementwise"),
    ("add", "elementwise"),
    ("mul", "elementwise"),
    ("concat", "concat"),
    ("upsample", "upsample"),
    ("norm", "norm"),
    ("reduce", "pool"),
)
KIND_FAMILIES = {
    "conv": "conv",
    "conv_transpose": "conv",
    "linear": "conv",
    "max_pool": "pool",
    "avg_pool": "pool",
    "global_pool": "pool",
    "add": "elementwise",
    "mul": "elementwise",
    "elementwise": "elementwise",
    "concat": "concat",
    "upsample": "upsample",
    "norm": "norm",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOperation:
    """One operation of a profile: its code, its kernel time in seconds, and its row of the file."""

    code: str
    seconds: float
    row: Mapping[str, str]

    @property
    def family(self) -> str:
        """Family of the operation (`FAMILIES`), or an empty string."""
        code = self.code.lower()
        return next((family for part, family in FAMILIES if part in code), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedOperation:
    """An operation with its measured and its predicted time in seconds."""

    name: str
    code: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return self.predicted / self.measured - 1


def read_profile(path: Path) -> list[MeasuredOperation]:
    """Read the operations of a profile. Raises an error if the file has neither format."""
    try:
        with path.open(newline="", encoding="utf-8", errors="replace") as stream:
            reader = csv.DictReader(stream)
            headings = reader.fieldnames or []
            rows = list(reader)
    except OSError as error:
        raise TesseraError("the profile cannot be read", got=error.strerror or str(path)) from None
    formats = ((PROFILER_CODE, PROFILER_TIME, 1e-9), (REPORT_CODE, REPORT_TIME, 1e-6))
    for code, time, unit in formats:
        if code in headings and time in headings:
            return [
                MeasuredOperation(code=row[code] or "", seconds=seconds * unit, row=row)
                for row in rows
                if (seconds := _parse_number(row.get(time))) is not None
            ]
    raise TesseraError(
        f"{path} is not a profile of a device",
        got=", ".join(headings[:4]) or "no headings",
        allowed=f"a CSV file with the columns {PROFILER_CODE!r} and {PROFILER_TIME!r}, or {REPORT_CODE!r} and "
        f"{REPORT_TIME!r}",
    )


def _parse_number(text: str | None) -> float | None:
    match = re.match(r"\s*([0-9.]+(?:e[+-]?\d+)?)", text or "")
    number = float(match[1]) if match and match[1].strip(".") else 0.0
    return number if number > 0 else None


def compare_convolutions(operations: Sequence[MeasuredOperation], machine: Machine) -> list[ComparedOperation]:
    """Predict every convolution whose attributes describe it, and its halo exchange, and compare both."""
    compared = []
    for operation in operations:
        problem = _parse_convolution(operation)
        if problem is None:
            continue
        conv, config, compute = problem
        try:
            plan = plan_one(conv, machine, config, compute, input_layout=Layout.TILE, bias=True)
        except TesseraError:
            continue
        predicted = predict_time(plan)
        name = (
            f"{conv.batch} x {conv.height}x{conv.width}, {conv.in_channels} to {conv.out_channels}, "
            f"{conv.kernel[0]}x{conv.kernel[1]}, {plan.layout}"
        )
        compared.append(
            ComparedOperation(
                name=name,
                code=operation.code,
                measured=operation.seconds,
                predicted=predicted.seconds - predicted.busy["halo"],
            )
        )
    return _sort_by_error(compared)


def compare_network(operations: Sequence[MeasuredOperation], plan: NetworkPlan) -> list[ComparedOperation]:
    """Match the operations of a profile with the layers of a planned network in order, and compare their times.

    The halo exchange that precedes a convolution or a pool is added to its time.
    """
    joined: list[MeasuredOperation] = []
    pending = 0.0
    for operation in operations:
        if operation.family == "halo":
            pending += operation.seconds
        elif operation.family:
            total = operation.seconds + (pending if operation.family in ("conv", "pool") else 0.0)
            joined.append(MeasuredOperation(code=operation.code, seconds=total, row=operation.row))
            pending = 0.0
    steps = [step for step in plan.steps if step.kind in KIND_FAMILIES]
    families = [KIND_FAMILIES[step.kind] for step in steps]
    matcher = SequenceMatcher(None, families, [operation.family for operation in joined], autojunk=False)
    compared = []
    for first, second, size in matcher.get_matching_blocks():
        for step, operation in zip(steps[first : first + size], joined[second : second + size], strict=True):
            compared.append(
                ComparedOperation(
                    name=step.name, code=operation.code, measured=operation.seconds, predicted=step.seconds
                )
            )
    return _sort_by_error(compared)


def _sort_by_error(compared: list[ComparedOperation]) -> list[ComparedOperation]:
    return sorted(compared, key=lambda each: -abs(each.predicted - each.measured))


def _parse_convolution(operation: MeasuredOperation) -> tuple[Convolution, Conv2dConfig, ComputeConfig] | None:
    """Return the convolution that the attributes of an operation describe, or None."""
    attributes = operation.row.get("ATTRIBUTES") or ""
    if operation.family != "conv" or "SlidingWindowConfig(" not in attributes:
        return None
    window = attributes.partition("SlidingWindowConfig(")[2]
    outputs = _find_numbers(attributes, r"'output_channels': '(\d+)'")
    batch = _find_numbers(window, r"batch_size=(\d+)")
    image, kernel, stride, dilation = (
        _find_numbers(window, rf"{name}=\((\d+)[;,]\s*(\d+)\)")
        for name in ("input_hw", "window_hw", "stride_hw", "dilation_hw")
    )
    sides = _find_numbers(window, r"padding=\(\((\d+)[;,]\s*(\d+)\)[;,]\s*\((\d+)[;,]\s*(\d+)\)\)")
    if not sides:
        pair = _find_numbers(window, r"pad_hw=\((\d+)[;,]\s*(\d+)\)") or [0, 0]
        sides = [pair[0], pair[0], pair[1], pair[1]]
    channels = _find_channels(operation.row)
    layout = re.search(r"(HEIGHT|WIDTH|BLOCK)_SHARDED", attributes)
    if not (outputs and batch and image and kernel and stride and channels and layout):
        return None
    groups = (_find_numbers(attributes, r"'groups': '(\d+)'") or [1])[0]
    rows = (_find_numbers(attributes, r"act_block_h_ntiles=(\d+)") or [0])[0]
    settings: dict[str, Any] = {
        name: f"'{name}': 'true'" in attributes or f"'{name}': '1'" in attributes
        for name in (
            "enable_act_double_buffer",
            "enable_weights_double_buffer",
            "enable_activation_reuse",
            "full_inner_dim",
        )
    }
    try:
        conv = Convolution(
            batch=batch[0],
            height=image[0],
            width=image[1],
            in_channels=channels,
            out_channels=outputs[0],
            kernel=(kernel[0], kernel[1]),
            stride=(stride[0], stride[1]),
            padding=((sides[0], sides[1]), (sides[2], sides[3])),
            dilation=(dilation[0], dilation[1]) if dilation else (1, 1),
            groups=groups,
        )
    except TesseraError:
        return None
    config = Conv2dConfig(
        dtype=_find_dtype(operation.row, "OUTPUT_0_DATATYPE"),
        weights_dtype=_find_dtype(operation.row, "INPUT_1_DATATYPE"),
        shard_layout=ShardLayout(layout[1]),
        act_block_h_override=rows * 32,
        enable_split_reader=layout[1] != "WIDTH",
        **settings,
    )
    fidelity = operation.row.get("MATH FIDELITY") or "HiFi4"
    compute = ComputeConfig(
        math_fidelity=fidelity if fidelity in ("LoFi", "HiFi2", "HiFi3", "HiFi4") else "HiFi4",  # type: ignore[arg-type]
        fp32_dest_acc_en="fp32_dest_acc_en=true" in attributes or "fp32_dest_acc_en=1" in attributes,
        packer_l1_acc="packer_l1_acc=true" in attributes or "packer_l1_acc=1" in attributes,
    )
    return conv, config, compute


def _find_numbers(text: str, pattern: str) -> list[int]:
    match = re.search(pattern, text)
    return [int(group) for group in match.groups()] if match else []


def _find_channels(row: Mapping[str, str]) -> int:
    """Return the input channels: the last dim of the first input, with its padding."""
    text = row.get("INPUT_0_X_PAD[LOGICAL]") or row.get("INPUT_0_X") or ""
    match = re.match(r"(\d+)", text)
    return int(match[1]) if match else 0


def _find_dtype(row: Mapping[str, str], column: str) -> Any:
    return DTYPES.get((row.get(column) or "").lower(), DTYPES["bfloat16"])


COLUMNS = (
    Column("operation"),
    *(Column(name, "number") for name in ("measured", "predicted", "difference", "error")),
)


def print_comparison(
    operations: Sequence[MeasuredOperation],
    compared: Sequence[ComparedOperation],
    output_format: OutputFormat,
    stream: TextIO,
) -> None:
    """Print predicted beside measured times, the largest differences first, and the operations without a prediction."""
    if output_format == "json":
        rows = [
            {
                "name": each.name,
                "code": each.code,
                "measured": each.measured,
                "predicted": each.predicted,
                "error": each.error,
            }
            for each in compared
        ]
        write_json(rows, stream)
        return
    cells = [
        [
            each.name,
            format_seconds(each.measured),
            format_seconds(each.predicted),
            ("+" if each.predicted > each.measured else "-") + format_seconds(abs(each.predicted - each.measured)),
            format_percent(each.error, signed=True),
        ]
        for each in compared
    ]
    write_rows(
        COLUMNS, cells, output_format, stream, title="predicted and measured kernel times, largest difference first"
    )
    if output_format == "terminal":
        measured = sum(operation.seconds for operation in operations)
        covered = sum(each.measured for each in compared)
        predicted = sum(each.predicted for each in compared)
        stream.write(
            f"{len(compared)} of {len(operations)} operations predicted, {format_percent(covered / measured)} of "
            f"{format_seconds(measured)} measured\n"
        )
        if compared:
            stream.write(
                f"their sum: {format_seconds(predicted)} predicted, {format_seconds(covered)} measured, "
                f"{format_percent(predicted / covered - 1, signed=True)}\n"
            )

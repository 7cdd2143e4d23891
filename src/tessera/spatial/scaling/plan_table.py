"""The text and the plain values of a split plan: its table, the fastest and the smallest split, and the reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tessera.report.blocks import Column
from tessera.report.figures import format_bytes, format_rate, format_seconds
from tessera.spatial.scaling.planner import SplitPlan, describe_split
from tessera.spatial.scaling.prediction import ScalingPoint, StepTimes, format_size

# Columns of a narrow terminal: sums of the parts, and no notes.
NARROW_PARTS = {
    "compute": ("compute",),
    "overhead": ("launches", "messages"),
    "moved": ("exchange", "statistics", "gradients"),
}
WIDE_PARTS = {name: (name,) for name, _ in StepTimes().list_parts()}


def get_columns(narrow: bool = False) -> list[Column]:
    """Return the columns of the table."""
    names = NARROW_PARTS if narrow else WIDE_PARTS
    return [
        Column("split"),
        Column("step", "number"),
        *(Column(name, "number") for name in names),
        Column("memory", "number"),
        *([] if narrow else [Column("note")]),
    ]


def build_plan_rows(plan: SplitPlan, narrow: bool = False) -> list[list[str]]:
    """Return a row for every split, fastest first."""
    rows = []
    for split in plan.splits:
        times = dict(split.times.list_parts())
        sums = [sum(times[part] for part in parts) for parts in (NARROW_PARTS if narrow else WIDE_PARTS).values()]
        rows.append(
            [
                describe_split(split),
                *map(format_seconds, (split.seconds, *sums)),
                format_bytes(split.memory),
                *([] if narrow else [_make_note(plan, split)]),
            ]
        )
    return rows


def _make_note(plan: SplitPlan, split: ScalingPoint) -> str:
    notes = [name for name, best in (("fastest", plan.fastest), ("smallest", plan.smallest)) if split is best]
    if not split.fits:
        notes.append("does not fit")
    return ", ".join(notes)


def describe_plan(plan: SplitPlan) -> str:
    """Return the title of a plan."""
    return (
        f"{plan.step.describe()}, {format_size(plan.image)} image, "
        f"{plan.workers} worker{'s' if plan.workers > 1 else ''} of {plan.machine.title}"
    )


def list_plan_lines(plan: SplitPlan) -> Sequence[str]:
    """Return the fastest and the smallest split in words, each with its reason."""
    named = [("fastest", plan.fastest, [plan.explain_fastest()])]
    if plan.smallest is plan.fastest:
        named = [("fastest and smallest", plan.fastest, [plan.explain_fastest(), plan.explain_smallest()])]
    else:
        named.append(("smallest", plan.smallest, [plan.explain_smallest()]))
    lines = []
    for name, split, reasons in named:
        rate = format_rate(split.batch / split.seconds, "images/s")
        lines += [
            f"{name}: {describe_split(split)}, {format_seconds(split.seconds)} per step ({rate}), "
            f"{format_bytes(split.memory)} per worker",
            *(f"  why: {reason}" for reason in reasons),
            f"  memory: {', '.join(f'{part} {format_bytes(n)}' for part, n in split.bytes.list_parts() if n)}",
        ]
    if not plan.fastest.fits:
        lines.append(f"no split fits: a worker has {format_bytes(plan.fastest.available_memory)}")
    return lines


def dump_plan(plan: SplitPlan) -> dict[str, Any]:
    """Return the plan as plain values for JSON, in seconds and bytes."""
    return {
        "step": plan.step.describe(),
        "image": list(plan.image),
        "workers": plan.workers,
        "machine": plan.machine.name,
        "fastest": describe_split(plan.fastest),
        "why_fastest": plan.explain_fastest(),
        "smallest": describe_split(plan.smallest),
        "why_smallest": plan.explain_smallest(),
        "splits": [
            {
                "split": describe_split(split),
                "replicas": split.replicas,
                "mesh": list(split.mesh),
                "tile": list(split.tile),
                "step": split.seconds,
                **dict(split.times.list_parts()),
                "memory": split.memory,
                **{f"memory_{part}": count for part, count in split.bytes.list_parts()},
                "room": split.available_memory,
                "fits": split.fits,
            }
            for split in plan.splits
        ],
    }

"""The planner: the fastest and the smallest way to divide a step among workers.

A split is a number of replicas, which divide the batch (data parallel), times a mesh of tiles, which divide every image
(spatial parallel). Every split is predicted from a dry run, so that all that `parallelize` moves or computes whole is
included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from tessera.errors import Refused, TesseraError
from tessera.machine.machine import Machine
from tessera.report.figures import format_bytes, format_percent, format_seconds
from tessera.spatial.scaling.prediction import (
    ScalingPoint,
    SplitStep,
    format_size,
    get_mesh,
    list_meshes,
    predict_step,
)
from tessera.spatial.scaling.study import check_ranks

MAX_MESHES = 4  # meshes that are tried for a number of tiles, shortest tile boundaries first
SAME_TIME = 0.02  # times that differ by less are called equal
TIME_TEXTS = {
    "compute": "computation",
    "launches": "the overhead of launches",
    "exchange": "exchanged bytes",
    "messages": "the overhead of messages",
    "statistics": "sums of statistics",
    "gradients": "the sum of gradients",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """All predicted splits of a step over a number of workers, fastest first."""

    step: SplitStep
    image: tuple[int, ...]
    workers: int
    machine: Machine
    splits: Sequence[ScalingPoint]

    @property
    def fastest(self) -> ScalingPoint:
        """The fastest split that fits the memory of a worker; the fastest of all if none fits."""
        fitting = [split for split in self.splits if split.fits]
        return min(fitting or self.splits, key=lambda split: split.seconds)

    @property
    def smallest(self) -> ScalingPoint:
        return min(self.splits, key=lambda split: (split.memory, split.seconds))

    def explain_fastest(self) -> str:
        """Explain the fastest split: its largest part, and the part that decides against the next split."""
        best = self.fastest
        name, seconds = max(best.times.list_parts(), key=lambda part: part[1])
        text = f"{TIME_TEXTS[name]} takes {format_percent(seconds / best.seconds)} of the step"
        others = [split for split in self.splits if split is not best]
        if not others:
            return f"{text}; it is the only split"
        faster = [split for split in others if split.seconds < best.seconds]
        if faster:
            first = min(faster, key=lambda split: split.seconds)
            return f"{text}; {describe_split(first)} is faster, but needs {format_bytes(first.memory)} a worker"
        other = min(others, key=lambda split: split.seconds)
        gap = other.seconds / best.seconds - 1
        if gap < SAME_TIME:
            return f"{text}; {describe_split(other)} takes as long within {format_percent(SAME_TIME)}"
        part, more = _find_deciding_part(best, other)
        return (
            f"{text}; {describe_split(other)} takes {format_percent(gap)} longer, "
            f"mostly for {TIME_TEXTS[part]} ({format_seconds(more)} more)"
        )

    def explain_smallest(self) -> str:
        """Explain the smallest split: its largest part, and the part of which the fastest split needs more."""
        best = self.smallest
        name, count = max(best.bytes.list_parts(), key=lambda part: part[1])
        text = f"{name} {'take' if name.endswith('s') else 'takes'} {format_percent(count / best.memory)} of the memory"
        if best is self.fastest:
            return text
        gaps = zip(self.fastest.bytes.list_parts(), best.bytes.list_parts(), strict=True)
        part, saved = max(((mine[0], theirs[1] - mine[1]) for theirs, mine in gaps), key=lambda gap: gap[1])
        return f"{text}; the fastest split needs {format_bytes(saved)} more for {part}"


def _find_deciding_part(best: ScalingPoint, other: ScalingPoint) -> tuple[str, float]:
    """Return the part of the time in which two splits differ most, and the difference."""
    pairs = zip(best.times.list_parts(), other.times.list_parts(), strict=True)
    return max(((mine[0], theirs[1] - mine[1]) for mine, theirs in pairs), key=lambda gap: gap[1])


def describe_split(point: ScalingPoint) -> str:
    """Return a split as text, such as `2 replicas x 2x2 tiles`."""
    parts = []
    if point.replicas > 1:
        parts.append(f"{point.replicas} replicas")
    if prod(point.mesh) > 1:
        parts.append(f"{format_size(point.mesh)} tiles")
    return " x ".join(parts) or "not split"


def plan_splits(
    step: SplitStep,
    image: Sequence[int],
    workers: int,
    machine: Machine,
    *,
    mesh: Sequence[int] | None = None,
    report: Callable[[str], None] = lambda _: None,
) -> SplitPlan:
    """Predict the splits of a step over a number of workers; with `mesh`, only splits with this mesh of tiles."""
    check_ranks(machine, workers)
    candidates = _list_candidates(step, tuple(image), workers, tuple(mesh) if mesh is not None else None)
    splits = []
    for number, (replicas, tiles) in enumerate(candidates, 1):
        report(f"predicting split {number} of {len(candidates)}: {replicas} x {format_size(tiles)}")
        splits.append(predict_step(step.run_dry(image, tiles, replicas), machine, step, replicas=replicas))
    return SplitPlan(
        step=step,
        image=tuple(image),
        workers=workers,
        machine=machine,
        splits=sorted(splits, key=lambda split: split.seconds),
    )


def _list_candidates(
    step: SplitStep, image: tuple[int, ...], workers: int, mesh: tuple[int, ...] | None
) -> list[tuple[int, tuple[int, ...]]]:
    """Return (replicas, mesh) of the splits to predict."""
    if mesh is not None:
        if len(mesh) > len(image):
            raise TesseraError(
                "the mesh has more dims than the image",
                got=f"{format_size(mesh)} for {format_size(image)} pixels",
                do="give --image-size with as many dims, for example 96x96x96",
            )
        if workers % prod(mesh):
            counts = ", ".join(str(n) for n in range(1, workers + 1) if workers % n == 0)
            raise TesseraError(
                f"--mesh {format_size(mesh)} has {prod(mesh)} tiles, which does not divide {workers} workers",
                allowed=f"meshes of {counts} tiles",
            )
        mesh = (1,) * (len(image) - len(mesh)) + mesh
    candidates = []
    for replicas in [n for n in range(1, min(step.batch, workers) + 1) if workers % n == 0]:
        tiles = workers // replicas
        meshes = list_meshes(tiles, image) if mesh is None else [mesh] * (prod(mesh) == tiles)
        meshes = [m for m in meshes if all(parts <= size for parts, size in zip(m, image, strict=True))]
        candidates += [(replicas, tried) for tried in meshes[:MAX_MESHES]]
    if not candidates:
        if mesh is None:
            get_mesh(workers // min(step.batch, workers), "nearest", image)  # raises: the image is too small
        raise Refused(
            "the workers cannot be used: too few images or pixels",
            got=f"{workers} workers, batch {step.batch}, {format_size(image)} pixels",
            do="use fewer workers, a larger batch, or a larger image",
        )
    return candidates

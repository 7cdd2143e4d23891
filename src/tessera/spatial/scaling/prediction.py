"""Predicted time of a training step on ranks, for strong scaling (fixed image) and weak scaling (fixed tile).

The time of a step is the sum of: its operations on the largest tile (roofline model); the exchanges, forward and
adjoint, minus the part hidden behind convolutions; the all-reduces over the whole image (normalisation statistics,
global means); and the all-reduce of the weight gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

from tessera.errors import TesseraError
from tessera.geometry import Box, Mesh
from tessera.geometry.partition import build_mesh
from tessera.machine.machine import Machine
from tessera.spatial.cost import (
    compute_grid_traffic,
    compute_interior_share,
    predict_all_reduce,
    predict_compute,
    predict_exchange_traffic,
)
from tessera.spatial.scaling.training_step import MemoryPiece, OperationHalo, Plane, TrainingStep

NEAREST = "nearest"  # slice method: the mesh nearest to a square, for any number of ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPoint:
    """The prediction of one step on a number of ranks: seconds of its parts, and bytes of the largest rank."""

    ranks: int
    mesh: Mesh
    plane: Plane
    compute: float
    exchange: float
    hidden: float
    statistics: float
    weights: float
    activations: int
    state: int
    available_memory: int

    @property
    def seconds(self) -> float:
        return self.compute + self.exchange - self.hidden + self.statistics + self.weights

    @property
    def memory(self) -> int:
        """Bytes of activations, weights and gradients."""
        return self.activations + self.state

    @property
    def fits(self) -> bool:
        return self.memory <= self.available_memory

    @property
    def tile(self) -> Plane:
        return _get_tile_size(self.plane, self.mesh)


def get_mesh(ranks: int, slice_method: str, plane: Plane) -> Mesh:
    """Return the mesh of a number of ranks; refuse a mesh with more rows or columns than the image has pixels.

    >>> get_mesh(8, "nearest", (64, 64)), get_mesh(8, "vertical", (64, 64))
    (Mesh(2x4), Mesh(1x8))
    """
    try:
        mesh = find_squarest_mesh(ranks) if slice_method == NEAREST else build_mesh(slice_method, ranks)
    except ValueError as error:
        raise TesseraError(str(error)) from None
    if mesh.rows > plane[0] or mesh.cols > plane[1]:
        raise TesseraError(
            "the image is smaller than the mesh",
            got=f"{plane[0]}x{plane[1]} pixels for {mesh.rows}x{mesh.cols} ranks",
            do="use a larger image, or fewer ranks",
        )
    return mesh


def find_squarest_mesh(ranks: int) -> Mesh:
    """Return the mesh of `ranks` workers that is nearest to a square, which has the shortest tile boundaries.

    >>> find_squarest_mesh(4096), find_squarest_mesh(6), find_squarest_mesh(7)
    (Mesh(64x64), Mesh(2x3), Mesh(1x7))
    """
    rows = max(row for row in range(1, isqrt(ranks) + 1) if ranks % row == 0)
    return Mesh(rows, ranks // rows)


def predict_step(
    work: TrainingStep, mesh: Mesh, machine: Machine, dtype: str, *, machines: int | None = None
) -> ScalingPoint:
    """Predict one training step that is split over a mesh.

    Each rank is a worker of the machine. By default the ranks fill as many machines as they need; `machines` sets the
    number of machines over which they are divided.
    """
    ranks_per_machine = machine.workers.size if machines is None else -(-mesh.size // machines)
    sharing = min(mesh.size, ranks_per_machine)
    compute = exchange = hidden = statistics = 0.0
    frames = 0
    for operation in work.operations:
        flops = operation.flops * _compute_share(operation.plane, mesh)
        byte_count = sum(_split_bytes(piece, mesh) for piece in operation.pieces)
        took = predict_compute(machine, flops, byte_count, dtype, sharing=sharing)
        compute += took
        if operation.halo is not None:
            seconds, covered, buffer = _predict_exchange(operation.halo, mesh, machine, ranks_per_machine, behind=took)
            exchange, hidden, frames = exchange + seconds, hidden + covered, frames + buffer
        if operation.summed:
            statistics += predict_all_reduce(operation.summed, mesh.size, machine, per_machine=ranks_per_machine)
    saved = {piece.key for piece in work.saved}
    passing = max(
        (
            sum(_split_bytes(p, mesh) for p in operation.pieces if p.plane and p.key not in saved)
            for operation in work.operations
        ),
        default=0,
    )
    return ScalingPoint(
        ranks=mesh.size,
        mesh=mesh,
        plane=work.plane,
        compute=compute,
        exchange=exchange,
        hidden=hidden,
        statistics=statistics,
        weights=predict_all_reduce(work.gradient_bytes, mesh.size, machine, per_machine=ranks_per_machine),
        activations=sum(_split_bytes(piece, mesh) for piece in work.saved) + frames + passing,
        state=work.weight_bytes + work.gradient_bytes,
        available_memory=max(machine.local_memory, machine.global_memory // sharing),
    )


def _predict_exchange(
    halo: OperationHalo, mesh: Mesh, machine: Machine, ranks_per_machine: int, *, behind: float
) -> tuple[float, float, int]:
    """Return the seconds of an operation's exchanges, the seconds hidden by overlap, and the bytes of its frame.

    Forward, the exchange overlaps with the interior. Backward, the adjoint overlaps with the gradient of the weights,
    which takes as long as the forward pass.
    """
    traffic = compute_grid_traffic(halo.sizes, halo.window, mesh)
    once = predict_exchange_traffic(traffic, halo.pixel_bytes, machine, per_machine=ranks_per_machine)
    if not once:
        return 0.0, 0.0, 0
    hidden = 0.0
    if halo.hides:
        hidden = min(once, behind * compute_interior_share(halo.sizes[1:], halo.window, mesh))
        hidden += min(once, behind) if halo.adjoint else 0.0
    return once * (1 + halo.adjoint), hidden, _count_frame_bytes(halo, mesh)


def compute_efficiencies(points: Sequence[ScalingPoint]) -> list[float]:
    """Return the efficiency of each point: pixels per second and rank, relative to the first point."""
    rates = [p.plane[0] * p.plane[1] / (p.seconds * p.ranks) for p in points]
    return [rate / rates[0] for rate in rates]


def _compute_share(plane: Plane | None, mesh: Mesh) -> float:
    """Return the fraction of an image's pixels that its largest tile has."""
    if plane is None:
        return 1.0
    height, width = _get_tile_size(plane, mesh)
    return height * width / (plane[0] * plane[1])


def _get_tile_size(plane: Plane, mesh: Mesh) -> Plane:
    return -(-plane[0] // mesh.rows), -(-plane[1] // mesh.cols)


def _split_bytes(piece: MemoryPiece, mesh: Mesh) -> int:
    return round(piece.bytes * _compute_share(piece.plane, mesh))


def _count_frame_bytes(halo: OperationHalo, mesh: Mesh) -> int:
    """Return the bytes of the largest tile's frame: all pixels that its output reads."""
    height, width = halo.window.compute_output_size(halo.sizes[1:])
    tile = Box.from_sizes((halo.sizes[0], *_get_tile_size((height, width), mesh)))
    return halo.window.compute_input_box(tile).size * halo.pixel_bytes

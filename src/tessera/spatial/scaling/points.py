"""How a training step scales with the number of ranks, predicted: strong (the same image) and weak (the same tile).

A step is the sum of its operations on the largest tile (each by its roofline), of the exchanges before them, forward
and adjoint, less what is hidden behind convolutions, of the sums that normalisations take over the whole image, and
of the sum of the weight gradients at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt

from tessera.errors import TesseraError
from tessera.geometry import Box, Mesh
from tessera.geometry.partition import mesh_of
from tessera.machine.machine import Machine
from tessera.spatial.network_cost import all_reduce_seconds, exchange_seconds, grid_traffic
from tessera.spatial.predict import interior_share, worker_seconds
from tessera.spatial.scaling.work import Halo, Piece, Plane, Work

NEAREST = "nearest"  # the mesh that is nearest to a square, for any number of ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One step on some ranks: seconds of its parts, and bytes of the rank that has most."""

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
    room: int

    @property
    def seconds(self) -> float:
        return self.compute + self.exchange - self.hidden + self.statistics + self.weights

    @property
    def memory(self) -> int:
        """Activations of both passes, weights and gradients."""
        return self.activations + self.state

    @property
    def fits(self) -> bool:
        return self.memory <= self.room

    @property
    def tile(self) -> Plane:
        return _tile(self.plane, self.mesh)


def mesh_for(ranks: int, slice_method: str, plane: Plane) -> Mesh:
    """The mesh of some ranks, refused where the image has fewer pixels than the mesh has rows or columns.

    >>> mesh_for(8, "nearest", (64, 64)), mesh_for(8, "vertical", (64, 64))
    (Mesh(2x4), Mesh(1x8))
    """
    try:
        mesh = nearest_square(ranks) if slice_method == NEAREST else mesh_of(slice_method, ranks)
    except ValueError as error:
        raise TesseraError(str(error)) from None
    if mesh.rows > plane[0] or mesh.cols > plane[1]:
        raise TesseraError(
            "the image is smaller than the mesh",
            got=f"{plane[0]}x{plane[1]} pixels for {mesh.rows}x{mesh.cols} ranks",
            do="take a larger image, or fewer ranks",
        )
    return mesh


def nearest_square(ranks: int) -> Mesh:
    """The mesh with the shortest cuts.

    >>> nearest_square(4096), nearest_square(6), nearest_square(7)
    (Mesh(64x64), Mesh(2x3), Mesh(1x7))
    """
    rows = max(row for row in range(1, isqrt(ranks) + 1) if ranks % row == 0)
    return Mesh(rows, ranks // rows)


def predict_step(work: Work, mesh: Mesh, machine: Machine, dtype: str, *, machines: int | None = None) -> Point:
    """One step of the work, cut by a mesh.

    Ranks are workers of the machine, and fill as many machines as it takes; with `machines` they share so many.
    """
    each = machine.workers.size if machines is None else -(-mesh.size // machines)
    sharing = min(mesh.size, each)
    compute = exchange = hidden = statistics = 0.0
    frames = 0
    for operation in work.operations:
        flops = operation.flops * _share(operation.plane, mesh)
        moved = sum(_cut(piece, mesh) for piece in operation.pieces)
        took = worker_seconds(machine, flops, moved, dtype, sharing=sharing)
        compute += took
        if operation.halo is not None:
            seconds, covered, buffer = _exchanged(operation.halo, mesh, machine, each, behind=took)
            exchange, hidden, frames = exchange + seconds, hidden + covered, frames + buffer
        if operation.summed:
            statistics += all_reduce_seconds(operation.summed, mesh.size, machine, per_machine=each)
    saved = {piece.key for piece in work.saved}
    passing = max(
        (
            sum(_cut(p, mesh) for p in operation.pieces if p.plane and p.key not in saved)
            for operation in work.operations
        ),
        default=0,
    )
    return Point(
        ranks=mesh.size,
        mesh=mesh,
        plane=work.plane,
        compute=compute,
        exchange=exchange,
        hidden=hidden,
        statistics=statistics,
        weights=all_reduce_seconds(work.gradient_bytes, mesh.size, machine, per_machine=each),
        activations=sum(_cut(piece, mesh) for piece in work.saved) + frames + passing,
        state=work.weight_bytes + work.gradient_bytes,
        room=max(machine.local_memory, machine.global_memory // sharing),
    )


def _exchanged(halo: Halo, mesh: Mesh, machine: Machine, each: int, *, behind: float) -> tuple[float, float, int]:
    """Seconds of an operation's exchanges, how many of them are hidden, and the bytes of its frame.

    Forward the interior is computed meanwhile. Backward the adjoint travels while the gradient of the weights is
    computed, which takes as long as the forward pass.
    """
    traffic = grid_traffic(halo.sizes, halo.window, mesh)
    once = exchange_seconds(traffic, halo.pixel_bytes, machine, per_machine=each)
    if not once:
        return 0.0, 0.0, 0
    hidden = 0.0
    if halo.hides:
        hidden = min(once, behind * interior_share(halo.sizes[1:], halo.window, mesh))
        hidden += min(once, behind) if halo.adjoint else 0.0
    return once * (1 + halo.adjoint), hidden, _frame_bytes(halo, mesh)


def efficiencies(points: Sequence[Point]) -> list[float]:
    """Pixels per second and rank, as a share of the first point's: of one rank, where that is the first."""
    rates = [p.plane[0] * p.plane[1] / (p.seconds * p.ranks) for p in points]
    return [rate / rates[0] for rate in rates]


def _share(plane: Plane | None, mesh: Mesh) -> float:
    """The share of an image that the largest tile is."""
    if plane is None:
        return 1.0
    height, width = _tile(plane, mesh)
    return height * width / (plane[0] * plane[1])


def _tile(plane: Plane, mesh: Mesh) -> Plane:
    return -(-plane[0] // mesh.rows), -(-plane[1] // mesh.cols)


def _cut(piece: Piece, mesh: Mesh) -> int:
    return round(piece.bytes * _share(piece.plane, mesh))


def _frame_bytes(halo: Halo, mesh: Mesh) -> int:
    """The buffer in which a tile and its borders lie: what the largest tile of the output reads."""
    height, width = halo.window.output_size(halo.sizes[1:])
    tile = Box.whole((halo.sizes[0], *_tile((height, width), mesh)))
    return halo.window.needs(tile).size * halo.pixel_bytes

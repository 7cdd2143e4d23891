"""Predicted time and memory of a step on ranks, from a dry run of one rank and a machine.

The time of a step is the sum of its parts: the local operations (roofline model), their launches and dispatches, the
bytes and latencies of the transfers, the software of their messages, the all-reduces that the operations need, and the
all-reduces of the weight gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from math import isqrt, prod

from tessera.errors import TesseraError
from tessera.geometry.partition import build_mesh
from tessera.machine.machine import Machine
from tessera.spatial.cost import predict_all_reduce, predict_compute, predict_exchange_traffic
from tessera.spatial.scaling.dry_run import DryRun, run_model_dry

NEAREST = "nearest"  # slice method: the mesh with the shortest tile boundaries, for any number of ranks
# Bytes of optimizer state per byte of trained weights.
OPTIMIZERS = {"none": 0, "sgd": 0, "momentum": 1, "adam": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitStep:
    """The step that is predicted: the network, the batch, the format, and training or inference."""

    model: str
    batch: int = 1
    channels: int = 3
    dtype: str = "float32"
    training: bool = True
    optimizer: str = "none"

    def __post_init__(self) -> None:
        if self.optimizer not in OPTIMIZERS:
            raise TesseraError("unknown optimizer", got=self.optimizer, allowed=OPTIMIZERS)

    def run_dry(self, image: Sequence[int], mesh: Sequence[int], replicas: int = 1) -> DryRun:
        """Run the step of one replica on shapes alone; the largest replica has ceil(batch / replicas) images."""
        return run_model_dry(
            self.model,
            tuple(image),
            tuple(mesh),
            batch=-(-self.batch // replicas),
            channels=self.channels,
            dtype=self.dtype,
            training=self.training,
        )

    def describe(self) -> str:
        return f"{self.model}, batch {self.batch}, {self.dtype}, {'training' if self.training else 'inference'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Predicted seconds of the parts of a step."""

    compute: float = 0.0
    launches: float = 0.0
    exchange: float = 0.0
    messages: float = 0.0
    statistics: float = 0.0
    gradients: float = 0.0

    @property
    def total(self) -> float:
        return sum(seconds for _, seconds in self.list_parts())

    def list_parts(self) -> list[tuple[str, float]]:
        return [(part.name, getattr(self, part.name)) for part in fields(self)]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """Predicted bytes of the parts of a worker's memory at the peak of a step."""

    weights: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    halos: int = 0
    temporary: int = 0

    @property
    def total(self) -> int:
        return sum(count for _, count in self.list_parts())

    def list_parts(self) -> list[tuple[str, int]]:
        return [(part.name, getattr(self, part.name)) for part in fields(self)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingPoint:
    """The prediction of one step on a number of replicas, each of which is split over a mesh."""

    mesh: tuple[int, ...]
    image: tuple[int, ...]
    tile: tuple[int, ...]
    replicas: int
    batch: int  # images of all replicas
    times: StepTimes
    bytes: StepMemory
    available_memory: int

    @property
    def ranks(self) -> int:
        return self.replicas * prod(self.mesh)

    @property
    def seconds(self) -> float:
        return self.times.total

    @property
    def memory(self) -> int:
        return self.bytes.total

    @property
    def fits(self) -> bool:
        return self.memory <= self.available_memory


def get_mesh(ranks: int, slice_method: str, image: Sequence[int]) -> tuple[int, ...]:
    """Choose the mesh for a number of ranks with a slice method.

    Raises TesseraError if the mesh has more parts than the image has pixels along a dim.


    >>> get_mesh(8, "nearest", (64, 64)), get_mesh(8, "vertical", (64, 64)), get_mesh(8, "nearest", (32, 64, 64))
    ((2, 4), (1, 8), (2, 2, 2))
    """
    if slice_method == NEAREST:
        meshes = list_meshes(ranks, image)
        if meshes:
            return meshes[0]
        mesh = (*(1 for _ in image[1:]), ranks)
    elif len(image) != 2:
        raise TesseraError("slice methods apply only to images with two dims", got=slice_method, allowed=NEAREST)
    else:
        try:
            plane = build_mesh(slice_method, ranks)
        except ValueError as error:
            raise TesseraError(str(error)) from None
        mesh = plane.rows, plane.cols
    if any(parts > size for parts, size in zip(mesh, image, strict=True)):
        raise TesseraError(
            "the mesh has more parts than the image has pixels along a dim",
            got=f"{format_size(image)} pixels for {format_size(mesh)} ranks",
            do="use a larger image, or fewer ranks",
        )
    return mesh


def list_meshes(ranks: int, image: Sequence[int]) -> list[tuple[int, ...]]:
    """Return all meshes of `ranks` workers that fit an image, shortest tile boundaries first.

    >>> list_meshes(6, (64, 64)), list_meshes(4, (2, 64))
    ([(2, 3), (3, 2), (1, 6), (6, 1)], [(1, 4), (2, 2)])
    """

    def count_cut_pixels(mesh: tuple[int, ...]) -> int:
        whole = prod(image)
        return sum((parts - 1) * (whole // size) for parts, size in zip(mesh, image, strict=True))

    fitting = [m for m in _factorise(ranks, len(image)) if all(p <= s for p, s in zip(m, image, strict=True))]
    return sorted(fitting, key=lambda mesh: (count_cut_pixels(mesh), max(mesh), mesh))


def _factorise(number: int, factors: int) -> Iterator[tuple[int, ...]]:
    """Yield all ways to write a number as an ordered product."""
    if factors == 1:
        yield (number,)
        return
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    for first in sorted({*small, *(number // d for d in small)}):
        yield from ((first, *rest) for rest in _factorise(number // first, factors - 1))


def predict_step(
    run: DryRun,
    machine: Machine,
    step: SplitStep,
    *,
    replicas: int = 1,
    machines: int | None = None,
) -> ScalingPoint:
    """Predict the step of a dry run on `replicas` meshes.

    Each rank is a worker of the machine. By default the ranks fill as many machines as they need, the ranks of a mesh
    side by side; `machines` sets the number of machines over which they are divided.
    """
    tiles = prod(run.mesh)
    ranks = tiles * replicas
    per_machine = machine.workers.size if machines is None else -(-ranks // machines)
    sharing = min(ranks, per_machine)
    optimizer = OPTIMIZERS[step.optimizer] * run.gradient_bytes
    return ScalingPoint(
        mesh=run.mesh,
        image=run.image,
        tile=run.tile,
        replicas=replicas,
        batch=step.batch,
        times=_predict_times(run, machine, step, replicas, per_machine, sharing),
        bytes=StepMemory(
            weights=run.weight_bytes,
            gradients=run.gradient_bytes,
            optimizer=optimizer,
            activations=run.activation_bytes,
            halos=run.halo_bytes,
            temporary=run.temporary_bytes,
        ),
        available_memory=max(machine.local_memory, machine.global_memory // sharing),
    )


def _predict_times(
    run: DryRun, machine: Machine, step: SplitStep, replicas: int, per_machine: int, sharing: int
) -> StepTimes:
    tiles = prod(run.mesh)
    message = machine.get_overhead("message")
    compute = sum(
        predict_compute(machine, operation.flops, operation.bytes, step.dtype, sharing=sharing)
        for operation in run.operations
    )
    launches = len(run.operations) * machine.get_overhead("launch")
    if tiles > 1:  # a network that is not split runs on ordinary tensors
        launches += run.dispatches * machine.get_overhead("dispatch")
    exchange = messages = 0.0
    for transfer in run.transfers:
        bare, full = (
            predict_exchange_traffic(
                transfer.traffic, transfer.item_bytes, machine, per_machine=per_machine, overhead=overhead
            )
            for overhead in (0.0, message)
        )
        exchange, messages = exchange + bare, messages + full - bare
    statistics = sum(predict_all_reduce(n, tiles, machine, per_machine=per_machine, overhead=0) for n in run.statistics)
    gradients = sum(predict_all_reduce(n, tiles, machine, per_machine=per_machine, overhead=0) for n in run.gradients)
    if tiles > 1:
        messages += message * (len(run.statistics) + len(run.gradients))
    if run.training and replicas > 1:
        messages += message
        gradients += predict_all_reduce(
            run.gradient_bytes,
            replicas,
            machine,
            per_machine=max(1, per_machine // tiles),
            overhead=0,
            concurrent=min(tiles, per_machine),
        )
    return StepTimes(
        compute=compute,
        launches=launches * max(1.0, sharing / machine.workers.size),  # workers that share a core take turns
        exchange=exchange,
        messages=messages,
        statistics=statistics,
        gradients=gradients,
    )


def compute_efficiencies(points: Sequence[ScalingPoint]) -> list[float]:
    """Return the efficiency of each point: pixels per second and rank, relative to the first point."""
    rates = [prod(p.image) / (p.seconds * p.ranks) for p in points]
    return [rate / rates[0] for rate in rates]


def format_size(sizes: Sequence[int]) -> str:
    """Return sizes as text.

    >>> format_size((64, 128))
    '64x128'
    """
    return "x".join(map(str, sizes))

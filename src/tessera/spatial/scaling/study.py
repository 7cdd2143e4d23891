"""Scaling of a training step with the number of ranks: predicted for a machine, and measured on this host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isqrt

from tessera.errors import TesseraError
from tessera.machine import Link, Machine, load_machine
from tessera.measure.environment import compute_host_fingerprint, describe_environment
from tessera.spatial.bench.prediction import get_machine_with_link
from tessera.spatial.scaling.measure import QUICK, SAMPLING, measure_step
from tessera.spatial.scaling.prediction import get_mesh, predict_step
from tessera.spatial.scaling.table import MeasuredStep, Scaling
from tessera.spatial.scaling.training_step import TrainingStep, count_training_step


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingStudy:
    """The training step and the numbers of ranks of a study.

    `image_size` is the image size for strong scaling, `tile_size` the size of each rank's tile for weak scaling, in
    pixels. `network` is (bandwidth in bytes per second, latency in seconds) between machines; it replaces the network
    of the machine description.
    """

    model: str
    machine: str
    ranks: Sequence[int]
    image_size: int
    tile_size: int
    batch_size: int = 1
    dtype: str = "float32"
    slice_method: str = "nearest"
    network: tuple[float, float] | None = None

    def predict(self) -> Scaling:
        """Return the predicted strong and weak scaling."""
        machine = self._load_machine()
        ranks = [count for count in self.ranks if self.slice_method != "square" or isqrt(count) ** 2 == count]
        if not ranks:
            raise TesseraError("no number of ranks is a square", got=self.ranks, do="use --slice-method nearest")
        image = (self.image_size, self.image_size)
        meshes = [get_mesh(count, self.slice_method, image) for count in ranks]
        work = self._count_work(image)
        sizes = [(self.tile_size * mesh.rows, self.tile_size * mesh.cols) for mesh in meshes]
        return Scaling(
            step=f"{self.model}, batch {self.batch_size}, {self.dtype}, on {machine.title}",
            strong=[predict_step(work, mesh, machine, self.dtype) for mesh in meshes],
            weak=[
                predict_step(self._count_work(size), mesh, machine, self.dtype)
                for size, mesh in zip(sizes, meshes, strict=True)
            ],
            measured=(),
        )

    def measure(
        self, ranks: Sequence[int], image_size: int, *, quick: bool, report: Callable[[str], None]
    ) -> list[MeasuredStep]:
        """Run the step on ranks of this host; return the measured times with their predictions."""
        host = load_machine("host", compute_host_fingerprint(describe_environment()))
        image = (image_size, image_size)
        work = self._count_work(image)
        measured = []
        for mesh in [get_mesh(count, self.slice_method, image) for count in ranks]:
            report(f"measuring a step on {mesh.size} ranks")
            seconds, memory, transport = measure_step(
                self.model,
                image,
                mesh,
                batch=self.batch_size,
                dtype=self.dtype,
                sampling=QUICK if quick else SAMPLING,
            )
            machine = get_machine_with_link(host, transport, mesh.size) or host
            predicted = predict_step(work, mesh, machine, self.dtype, machines=1)  # all ranks are on this host
            measured.append(MeasuredStep(predicted=predicted, seconds=seconds, memory=memory))
        return measured

    def _load_machine(self) -> Machine:
        machine = load_machine(self.machine, compute_host_fingerprint(describe_environment()))
        if self.network is not None:
            bandwidth, latency = self.network
            link = Link(bandwidth=(bandwidth,), latency=latency)
            sources = {**machine.sources, "links.network": "given on the command line"}
            machine = replace(machine, links={**machine.links, "network": link}, sources=sources)
        if max(self.ranks) > machine.workers.size and "network" not in machine.links:
            raise TesseraError(
                f"{machine.name} has {machine.workers.size} workers, and no rate of a network between machines",
                got=f"{max(self.ranks)} ranks",
                do="give --network BYTES/S,SECONDS, or [links.network] in the machine's file",
            )
        return machine

    def _count_work(self, image: tuple[int, int]) -> TrainingStep:
        return count_training_step(self.model, image, batch=self.batch_size, dtype=self.dtype)

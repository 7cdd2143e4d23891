"""Scaling of a step with the number of ranks: predicted for a machine, and measured on this host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isqrt

from tessera.errors import TesseraError
from tessera.machine import Link, Machine, load_machine
from tessera.measure.environment import compute_host_fingerprint, describe_environment
from tessera.spatial.bench.prediction import get_machine_with_link
from tessera.spatial.scaling.measure import QUICK, SAMPLING, measure_step
from tessera.spatial.scaling.prediction import SplitStep, get_mesh, predict_step
from tessera.spatial.scaling.table import MeasuredStep, ScalingResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingStudy:
    """The step and the numbers of ranks of a study.

    `image` is the image size for strong scaling in pixels, `tile_size` the length of each rank's tile for weak scaling
    along every dim.
    """

    step: SplitStep
    machine: Machine
    ranks: Sequence[int]
    image: tuple[int, ...]
    tile_size: int
    slice_method: str = "nearest"

    def predict(self) -> ScalingResult:
        """Return the predicted strong and weak scaling."""
        machine, step = self.machine, self.step
        check_ranks(machine, max(self.ranks))
        ranks = [count for count in self.ranks if self.slice_method != "square" or isqrt(count) ** 2 == count]
        if not ranks:
            raise TesseraError("no number of ranks is a square", got=self.ranks, do="use --slice-method nearest")
        meshes = [get_mesh(count, self.slice_method, self.image) for count in ranks]
        sizes = [tuple(self.tile_size * parts for parts in mesh) for mesh in meshes]
        return ScalingResult(
            step=f"{step.describe()}, on {machine.title}",
            strong=[predict_step(step.run_dry(self.image, mesh), machine, step) for mesh in meshes],
            weak=[
                predict_step(step.run_dry(size, mesh), machine, step) for size, mesh in zip(sizes, meshes, strict=True)
            ],
            measured=(),
        )

    def measure(
        self, ranks: Sequence[int], image_size: int, *, quick: bool, report: Callable[[str], None]
    ) -> list[MeasuredStep]:
        """Run the step on ranks of this host; return the measured times with their predictions."""
        host = load_machine("host", compute_host_fingerprint(describe_environment()))
        image = (image_size,) * len(self.image)
        measured = []
        for mesh in [get_mesh(count, self.slice_method, image) for count in ranks]:
            count = 1
            for parts in mesh:
                count *= parts
            report(f"measuring a step on {count} ranks")
            seconds, memory, transport = measure_step(self.step, image, mesh, sampling=QUICK if quick else SAMPLING)
            machine = get_machine_with_link(host, transport, count) or host
            predicted = predict_step(self.step.run_dry(image, mesh), machine, self.step, machines=1)
            measured.append(MeasuredStep(predicted=predicted, seconds=seconds, memory=memory))
        return measured


def load_target(name: str, network: tuple[float, float] | None) -> Machine:
    """Load a machine; `network` is (bandwidth in bytes per second, latency in seconds) between machines, if given."""
    machine = load_machine(name, compute_host_fingerprint(describe_environment()))
    if network is None:
        return machine
    link = Link(bandwidth=network[:1], latency=network[1])
    sources = {**machine.sources, "links.network": "given on the command line"}
    return replace(machine, links={**machine.links, "network": link}, sources=sources)


def check_ranks(machine: Machine, ranks: int) -> None:
    """Refuse more ranks than a machine has workers if the link between machines is unknown."""
    if ranks > machine.workers.size and "network" not in machine.links:
        raise TesseraError(
            f"{machine.name} has {machine.workers.size} workers, and the bandwidth between machines is unknown",
            got=f"{ranks} ranks",
            do="give --network BYTES/S,SECONDS, or [links.network] in the machine's file",
        )

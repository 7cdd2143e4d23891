"""A whole network on the grid: how every layer lies, chosen so that layers and resharding together take least time.

Every layer has a few ways to lie; between two layers that lie differently a tensor is resharded. The cheapest way
through is a shortest path, found layer by layer: for every way in which a tensor can lie, the least time in which it
can be there. A residual block is a step of its own: both its ways begin where its input lies and end where its sum
does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, MathFidelity
from tessera.coregrid.cost.moves import Lying, reshard
from tessera.coregrid.cost.rates import Rates, rates_of
from tessera.coregrid.formats import Layout, bfloat8_b
from tessera.coregrid.networks.layers import Layer, Network, Residual
from tessera.coregrid.networks.options import Option, added, averaged, chips_own, options, shard_bytes
from tessera.coregrid.networks.published import Published, published
from tessera.coregrid.planning.plan import Setup
from tessera.errors import TesseraError
from tessera.machine.machine import Machine

# How the published figures were taken: block formats, the fastest arithmetic, sums in the packer.
CONFIG = Conv2dConfig(dtype=bfloat8_b, weights_dtype=bfloat8_b, activation="relu", deallocate_activation=True)
COMPUTE = ComputeConfig(math_fidelity=MathFidelity.LoFi, packer_l1_acc=True)

Ways = Callable[[Layer, Setup], list[Option]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One operation of a planned network: its own time, and that of resharding its input before it."""

    name: str
    kind: str
    seconds: float
    resharding: float = 0.0
    option: Option | None = None


@dataclass(frozen=True, slots=True)
class Path:
    """The least time in which a tensor can lie in a certain way, and the steps that lead there."""

    seconds: float
    steps: tuple[Step, ...] = ()

    def then(self, *steps: Step) -> Path:
        return Path(self.seconds + sum(step.seconds + step.resharding for step in steps), self.steps + steps)


Paths = Mapping[Lying | None, Path]  # None: before the first layer, a tensor lies as that one wants it


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlan:
    """A network on a machine, step by step."""

    network: Network
    machine: Machine
    steps: tuple[Step, ...]

    @property
    def seconds(self) -> float:
        return sum(step.seconds + step.resharding for step in self.steps)

    @property
    def resharding(self) -> float:
        """Seconds that go into resharding."""
        return sum(step.resharding for step in self.steps)

    @property
    def images_per_second(self) -> float:
        return self.network.batch / self.seconds

    @property
    def published(self) -> Published | None:
        """The figures for this very batch of images, if there are any."""
        return published(self.network.name, self.machine.name, self.network.batch, self.network.image)

    @property
    def error(self) -> float | None:
        """How far the prediction is above (positive) or below what was published, as a fraction."""
        known = self.published
        return None if known is None else self.images_per_second / known.compared - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSearch:
    """The shortest path, and what it is held against: every layer at its own best, and the chip's own choices.

    Those are None where they end in a layer that does not fit beside what they left on the cores.
    """

    best: NetworkPlan
    greedy: NetworkPlan | None
    auto: NetworkPlan | None

    @property
    def gain(self) -> float | None:
        """How many times as long it takes if every layer is chosen for itself."""
        return None if self.greedy is None else self.greedy.seconds / self.best.seconds


def plan_network(
    network: Network, machine: Machine, config: Conv2dConfig = CONFIG, compute: ComputeConfig = COMPUTE
) -> NetworkSearch:
    """Choose how every layer of a network lies."""
    _check_beginning(network)
    setup = Setup(machine=machine, config=replace(config), compute=replace(compute), bias=True)
    known: dict[object, list[Option]] = {}

    def ways(layer: Layer, setup: Setup) -> list[Option]:
        key = layer.kind, layer.conv, setup.config, setup.input_layout
        if key not in known:
            known[key] = options(layer, setup)
        return known[key]

    return NetworkSearch(
        best=_Walk(setup, ways).through(network),
        greedy=_or_none(_Walk(setup, ways, greedy=True), network),
        auto=_or_none(_Walk(setup, chips_own), network),
    )


def _check_beginning(network: Network) -> None:
    """The first layer decides how images come to lie; a sum or a mean takes them as they are."""
    first = network.parts[0] if network.parts else None
    if not isinstance(first, Layer) or first.kind == "global_pool":
        raise TesseraError(
            "a network that begins so is not planned",
            got=first.name if first else "no layers",
            allowed="a convolution, a maximum pool or a linear layer first",
            do="plan its convolutions one by one (--table)",
        )


def _or_none(walk: _Walk, network: Network) -> NetworkPlan | None:
    try:
        return walk.through(network)
    except TesseraError:
        return None


class _Walk:
    """One pass through a network with a choice of ways for every layer; a greedy one takes the fastest that fits."""

    def __init__(self, setup: Setup, ways: Ways, *, greedy: bool = False) -> None:
        self.setup, self.ways, self.greedy = setup, ways, greedy
        self.rates: Rates = rates_of(setup.machine, setup.compute, setup.dtype)

    def through(self, network: Network) -> NetworkPlan:
        paths: Paths = {None: Path(0.0)}
        for number, part in enumerate(network.parts):
            if isinstance(part, Residual):
                paths = self._block(paths, part)
            elif part.kind == "global_pool":
                paths = self._average(paths, part, network.batch)
            else:
                # images come row by row, everything after the first layer lies in tiles
                setup = replace(self.setup, input_layout=Layout.ROW_MAJOR) if number == 0 else self.setup
                paths = self._layer(paths, part, setup)
            if not paths:
                raise TesseraError(
                    f"{part.name} of {network.name} does not fit {self.setup.machine.name}",
                    got=f"a batch of {network.batch} in {self.setup.config.dtype}",
                    do="use a smaller batch or a shorter format",
                )
        best = min(paths.values(), key=lambda path: path.seconds)
        return NetworkPlan(network=network, machine=self.setup.machine, steps=best.steps)

    def _layer(self, paths: Paths, layer: Layer, setup: Setup, beside: int = 0, unless: Lying | None = None) -> Paths:
        """Go through one layer; nowhere if none of its ways fits.

        So many bytes of every core are taken by a tensor that waits, `unless` the layer itself reads it where it lies.
        """
        found: dict[Lying | None, Path] = {}
        nearest: dict[Lying, tuple[Path, float]] = {}  # how a tensor comes to lie as an option wants it
        done: set[tuple[Lying, Lying]] = set()
        for option in self.ways(layer, setup) if paths else ():
            ends = option.source, option.target
            taken = option.memory + (0 if option.source == unless else beside)
            if taken > setup.machine.local_memory or ends in done:
                continue
            done.add(ends)
            if option.source not in nearest:
                nearest[option.source] = self._nearest(paths, option.source)
            path, moving = nearest[option.source]
            step = Step(name=layer.name, kind=layer.kind, seconds=option.seconds, resharding=moving, option=option)
            _keep(found, option.target, path.then(step))
            if self.greedy:
                break
        return found

    def _nearest(self, paths: Paths, source: Lying) -> tuple[Path, float]:
        """The path from which a tensor comes to lie in a way the soonest, and the resharding that takes."""
        ways = ((path, self._resharded(lying, source)) for lying, path in paths.items())
        return min(ways, key=lambda way: way[0].seconds + way[1])

    def _block(self, paths: Paths, block: Residual) -> Paths:
        """The body while the input waits, then the shortcut while the body's output waits, then their sum."""
        found: dict[Lying | None, Path] = {}
        # the first layer of the body reads the very tensor that the shortcut needs again
        kept = replace(self.setup, config=replace(self.setup.config, deallocate_activation=False))
        for lying, path in paths.items():
            assert lying is not None
            waiting = shard_bytes(lying, self.setup)
            body: Paths = {lying: Path(0.0)}
            for number, layer in enumerate(block.body):
                own, unless = (self.setup, None) if number else (kept, lying)
                body = self._layer(body, layer, own, waiting, unless)
            for target, way in body.items():
                assert target is not None
                shortcut: Paths = {lying: Path(0.0)}
                for layer in block.shortcut:
                    shortcut = self._layer(shortcut, layer, self.setup, shard_bytes(target, self.setup))
                if shortcut:
                    summed = self._sum(shortcut, target, block.name)
                    _keep(found, target, path.then(*way.steps, *summed.steps))
        return found

    def _sum(self, shortcut: Paths, target: Lying, name: str) -> Path:
        """The cheapest way for a shortcut to come to lie where the sum is taken, and the addition."""

        def summed(lying: Lying | None, path: Path) -> Path:
            moving = self._resharded(lying, target)
            return path.then(Step(name=name, kind="add", seconds=added(target, self.setup), resharding=moving))

        return min((summed(*way) for way in shortcut.items()), key=lambda path: path.seconds)

    def _average(self, paths: Paths, layer: Layer, batch: int) -> Paths:
        found: dict[Lying | None, Path] = {}
        for lying, path in paths.items():
            assert lying is not None
            target, seconds = averaged(lying, self.setup, batch)
            _keep(found, target, path.then(Step(name=layer.name, kind=layer.kind, seconds=seconds)))
        return found

    def _resharded(self, source: Lying | None, target: Lying) -> float:
        if source is None or source == target:
            return 0.0
        if source.sticks != target.sticks:  # images that become rows of numbers do so in global memory
            count = source.sticks * self.setup.config.dtype.row_bytes(source.channels)
            return 2 * (self.rates.launch + count / self.rates.globally)
        return self.rates.launch + reshard(source, target).seconds(self.rates, self.setup.config.dtype)


def _keep(paths: dict[Lying | None, Path], lying: Lying, path: Path) -> None:
    if lying not in paths or path.seconds < paths[lying].seconds:
        paths[lying] = path

"""Plan a whole network: choose the layouts that minimise the time of layers and resharding together.

Every layer has a few options. A tensor is resharded between layers with different placements. The best plan is a
shortest path (dynamic programming): for every layer and every placement of the layer's output, the planner stores the
fastest sequence of steps. Both branches of a residual block start at the placement of the block's input and end at the
placement of the sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, MathFidelity
from tessera.coregrid.cost.durations import CoreRates, get_core_rates
from tessera.coregrid.cost.resharding import ShardPlacement, compute_reshard_cost
from tessera.coregrid.formats import Layout, bfloat8_b
from tessera.coregrid.networks.layer_options import (
    LayerOption,
    count_shard_bytes,
    list_default_options,
    list_options,
    plan_global_pool,
    predict_addition_seconds,
)
from tessera.coregrid.networks.layers import GridLayer, GridNetwork, ResidualBlock
from tessera.coregrid.planning.setup import ConvSetup
from tessera.errors import TesseraError
from tessera.machine.machine import Machine

SOURCE_MODEL_TABLES = "tt-metal, models/README.md"
# Other commits of this test expect between 10,113 and 11,864 images/s; at batch 32, between 12,960 and 15,480.
SOURCE_BLACKHOLE_TEST = "tt-metal, models/demos/blackhole/resnet50/tests/test_perf_device_resnet50.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRate:
    """Published images per second of a network on a device, excluding transfers from and to the host."""

    network: str
    machine: str
    batch: int
    image_size: int = 224
    rate: float
    source: str


PUBLISHED_RATES = (
    PublishedRate(network="resnet50", machine="grayskull-e150", batch=20, rate=7_700, source=SOURCE_MODEL_TABLES),
    PublishedRate(network="resnet50", machine="wormhole-n150", batch=16, rate=6_335, source=SOURCE_MODEL_TABLES),
    PublishedRate(network="resnet50", machine="blackhole-p150", batch=16, rate=10_610, source=SOURCE_BLACKHOLE_TEST),
)


def find_published_rate(network: str, machine: str, batch: int, image: tuple[int, int]) -> PublishedRate | None:
    """Return the published images/s for a network, machine, batch size and image size, or None."""
    for row in PUBLISHED_RATES:
        if (row.network, row.machine, row.batch) == (network, machine, batch) and image == (row.image_size,) * 2:
            return row
    return None


# Settings of the published throughput: block formats, lowest fidelity, accumulation in the packer.
DEFAULT_CONV_CONFIG = Conv2dConfig(
    dtype=bfloat8_b, weights_dtype=bfloat8_b, activation="relu", deallocate_activation=True
)
DEFAULT_COMPUTE_CONFIG = ComputeConfig(math_fidelity=MathFidelity.LoFi, packer_l1_acc=True)

OptionLister = Callable[[GridLayer, ConvSetup], list[LayerOption]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlanStep:
    """One operation of a planned network: seconds of the operation, and seconds to reshard the input."""

    name: str
    kind: str
    seconds: float
    resharding: float = 0.0
    option: LayerOption | None = None


@dataclass(frozen=True, slots=True)
class PlanPath:
    """The fastest sequence of steps that produces a tensor in a placement, and its time in seconds."""

    seconds: float
    steps: tuple[NetworkPlanStep, ...] = ()

    def extend(self, *steps: NetworkPlanStep) -> PlanPath:
        return PlanPath(self.seconds + sum(step.seconds + step.resharding for step in steps), self.steps + steps)


PlanPaths = Mapping[ShardPlacement | None, PlanPath]  # key None: the input images, whose placement is not fixed


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlan:
    """A planned network on a machine, step by step."""

    network: GridNetwork
    machine: Machine
    steps: tuple[NetworkPlanStep, ...]

    @property
    def seconds(self) -> float:
        return sum(step.seconds + step.resharding for step in self.steps)

    @property
    def resharding(self) -> float:
        """Seconds spent on resharding."""
        return sum(step.resharding for step in self.steps)

    @property
    def images_per_second(self) -> float:
        return self.network.batch / self.seconds

    @property
    def published(self) -> PublishedRate | None:
        """The published images/s of this network, machine, batch and image size, or None."""
        return find_published_rate(self.network.name, self.machine.name, self.network.batch, self.network.image)

    @property
    def error(self) -> float | None:
        """Relative error of the predicted images/s compared with the published images/s."""
        published = self.published
        return None if published is None else self.images_per_second / published.rate - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSearch:
    """The fastest plan of a network, and two baselines: `greedy` and the chip's default rule (`auto`).

    `greedy` takes the fastest option of every layer without regard to resharding. A baseline is None if a layer does
    not fit.
    """

    best: NetworkPlan
    greedy: NetworkPlan | None
    auto: NetworkPlan | None


def plan_network(
    network: GridNetwork,
    machine: Machine,
    config: Conv2dConfig = DEFAULT_CONV_CONFIG,
    compute: ComputeConfig = DEFAULT_COMPUTE_CONFIG,
) -> NetworkSearch:
    """Choose the layout of every layer of a network, so that the total time with resharding is minimal."""
    _check_first_layer(network)
    setup = ConvSetup(machine=machine, config=replace(config), compute=replace(compute), bias=True)
    cache: dict[object, list[LayerOption]] = {}

    def get_options(layer: GridLayer, setup: ConvSetup) -> list[LayerOption]:
        key = layer.kind, layer.conv, setup.config, setup.input_layout
        if key not in cache:
            cache[key] = list_options(layer, setup)
        return cache[key]

    return NetworkSearch(
        best=_NetworkPlanner(setup, get_options).plan_all(network),
        greedy=_plan_or_none(_NetworkPlanner(setup, get_options, greedy=True), network),
        auto=_plan_or_none(_NetworkPlanner(setup, list_default_options), network),
    )


def _check_first_layer(network: GridNetwork) -> None:
    """Raise an error if the first part is a residual block or a global pool, which do not place the input images."""
    first = network.parts[0] if network.parts else None
    if not isinstance(first, GridLayer) or first.kind == "global_pool":
        raise TesseraError(
            "the network begins with an unsupported layer",
            got=first.name if first else "no layers",
            allowed="a convolution, a maximum pool or a linear layer",
            do="plan its convolutions one by one (--table)",
        )


def _plan_or_none(planner: _NetworkPlanner, network: GridNetwork) -> NetworkPlan | None:
    try:
        return planner.plan_all(network)
    except TesseraError:
        return None


class _NetworkPlanner:
    """Planner of a network from the options of every layer. With `greedy`, take the fastest option that fits."""

    def __init__(self, setup: ConvSetup, list_layer_options: OptionLister, *, greedy: bool = False) -> None:
        self.setup, self.list_layer_options, self.greedy = setup, list_layer_options, greedy
        self.rates: CoreRates = get_core_rates(setup.machine, setup.compute, setup.dtype)

    def plan_all(self, network: GridNetwork) -> NetworkPlan:
        """Plan all parts of a network and return the fastest plan."""
        paths: PlanPaths = {None: PlanPath(0.0)}
        for number, part in enumerate(network.parts):
            if isinstance(part, ResidualBlock):
                paths = self._plan_block(paths, part)
            elif part.kind == "global_pool":
                paths = self._plan_global_average(paths, part, network.batch)
            else:
                # images are row-major, all tensors after the first layer are tiled
                setup = replace(self.setup, input_layout=Layout.ROW_MAJOR) if number == 0 else self.setup
                paths = self._plan_layer(paths, part, setup)
            if not paths:
                raise TesseraError(
                    f"no layout of {part.name} of {network.name} fits the core memory of {self.setup.machine.name}",
                    got=f"a batch of {network.batch} in {self.setup.config.dtype}",
                    do="use a smaller batch or a shorter format",
                )
        best = min(paths.values(), key=lambda path: path.seconds)
        return NetworkPlan(network=network, machine=self.setup.machine, steps=best.steps)

    def _plan_layer(
        self,
        paths: PlanPaths,
        layer: GridLayer,
        setup: ConvSetup,
        waiting_bytes: int = 0,
        shared_input: ShardPlacement | None = None,
    ) -> PlanPaths:
        """Extend all paths by one layer. Returns no paths if no option of the layer fits.

        A tensor that a later layer reads occupies `waiting_bytes` of every core, except if this layer reads the tensor
        too, in the placement `shared_input`.
        """
        extended: dict[ShardPlacement | None, PlanPath] = {}
        nearest: dict[ShardPlacement, tuple[PlanPath, float]] = {}  # fastest path to an input placement
        done: set[tuple[ShardPlacement, ShardPlacement]] = set()
        for option in self.list_layer_options(layer, setup) if paths else ():
            ends = option.source, option.target
            peak = option.memory + (0 if option.source == shared_input else waiting_bytes)
            if peak > setup.machine.local_memory or ends in done:
                continue
            done.add(ends)
            if option.source not in nearest:
                nearest[option.source] = self._find_fastest_path(paths, option.source)
            path, resharding = nearest[option.source]
            step = NetworkPlanStep(
                name=layer.name, kind=layer.kind, seconds=option.seconds, resharding=resharding, option=option
            )
            _keep_faster_path(extended, option.target, path.extend(step))
            if self.greedy:
                break
        return extended

    def _find_fastest_path(self, paths: PlanPaths, source: ShardPlacement) -> tuple[PlanPath, float]:
        """Return the path with the least time including resharding to placement `source`, and the resharding time."""
        paths_and_times = (
            (path, self._predict_resharding_seconds(placement, source)) for placement, path in paths.items()
        )
        return min(paths_and_times, key=lambda path_and_time: path_and_time[0].seconds + path_and_time[1])

    def _plan_block(self, paths: PlanPaths, block: ResidualBlock) -> PlanPaths:
        """Plan a residual block: the body, then the shortcut, then the sum.

        The block's input stays allocated during the body, and the body's output during the shortcut.
        """
        extended: dict[ShardPlacement | None, PlanPath] = {}
        # the body's first layer must not free its input, which the shortcut reads again
        setup_keeping_input = replace(self.setup, config=replace(self.setup.config, deallocate_activation=False))
        for placement, path in paths.items():
            assert placement is not None
            waiting = count_shard_bytes(placement, self.setup)
            body: PlanPaths = {placement: PlanPath(0.0)}
            for number, layer in enumerate(block.body):
                setup, shared_input = (self.setup, None) if number else (setup_keeping_input, placement)
                body = self._plan_layer(body, layer, setup, waiting, shared_input)
            for target, body_path in body.items():
                assert target is not None
                shortcut: PlanPaths = {placement: PlanPath(0.0)}
                for layer in block.shortcut:
                    shortcut = self._plan_layer(shortcut, layer, self.setup, count_shard_bytes(target, self.setup))
                if shortcut:
                    summed = self._plan_sum(shortcut, target, block.name)
                    _keep_faster_path(extended, target, path.extend(*body_path.steps, *summed.steps))
        return extended

    def _plan_sum(self, shortcut: PlanPaths, target: ShardPlacement, name: str) -> PlanPath:
        """Return the fastest path of a shortcut, extended by resharding to the placement `target` and the addition."""

        def add_step(placement: ShardPlacement | None, path: PlanPath) -> PlanPath:
            resharding = self._predict_resharding_seconds(placement, target)
            return path.extend(
                NetworkPlanStep(
                    name=name, kind="add", seconds=predict_addition_seconds(target, self.setup), resharding=resharding
                )
            )

        return min((add_step(*item) for item in shortcut.items()), key=lambda path: path.seconds)

    def _plan_global_average(self, paths: PlanPaths, layer: GridLayer, batch: int) -> PlanPaths:
        extended: dict[ShardPlacement | None, PlanPath] = {}
        for placement, path in paths.items():
            assert placement is not None
            target, seconds = plan_global_pool(placement, self.setup, batch)
            _keep_faster_path(
                extended, target, path.extend(NetworkPlanStep(name=layer.name, kind=layer.kind, seconds=seconds))
            )
        return extended

    def _predict_resharding_seconds(self, source: ShardPlacement | None, target: ShardPlacement) -> float:
        if source is None or source == target:
            return 0.0
        if source.sticks != target.sticks:  # flattening images copies them through global memory
            count = source.sticks * self.setup.config.dtype.count_row_bytes(source.channels)
            return 2 * (self.rates.launch + count / self.rates.global_bandwidth)
        return self.rates.launch + compute_reshard_cost(source, target).compute_seconds(
            self.rates, self.setup.config.dtype
        )


def _keep_faster_path(paths: dict[ShardPlacement | None, PlanPath], placement: ShardPlacement, path: PlanPath) -> None:
    if placement not in paths or path.seconds < paths[placement].seconds:
        paths[placement] = path

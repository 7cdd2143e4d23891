"""Plan a whole network: choose placements that minimise the time of layers, moves and program launches together.

Every layer has a few options. A tensor is moved between layers with different placements, and spilled to global memory
if a later layer reads it and the cores need its memory. The layers are planned in execution order. A state is the
placement of every tensor that a later layer reads; for every state, the planner stores the fastest sequence of steps.
The result is the shortest path if a network has at most `MAX_STATES` states at a time, as chains and residual networks
have; beyond, the fastest states are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tessera.coregrid.config import ComputeConfig, Conv2dConfig, MathFidelity
from tessera.coregrid.cost.timeline import predict_time
from tessera.coregrid.device.device import find_machine
from tessera.coregrid.formats import DTYPES, bfloat8_b
from tessera.coregrid.networks.layer_options import GLOBAL, LayerOption, OptionLister, Placement
from tessera.coregrid.networks.layers import NETWORK_INPUT, GridLayer, GridNetwork, count_matrix_size, describe_network
from tessera.coregrid.planning.setup import ConvSetup
from tessera.coregrid.published import PublishedRate, find_published_rate
from tessera.errors import TesseraError
from tessera.machine.machine import Machine

MAX_STATES = 24  # states kept after every layer
# Settings of the published throughput: block formats, lowest fidelity, accumulation in the packer.
DEFAULT_CONV_CONFIG = Conv2dConfig(
    dtype=bfloat8_b, weights_dtype=bfloat8_b, activation="relu", deallocate_activation=True
)
DEFAULT_COMPUTE_CONFIG = ComputeConfig(math_fidelity=MathFidelity.LoFi, packer_l1_acc=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlanStep:
    """One layer of a planned network.

    `seconds` is the time of its kernels, `moving` the time to move its inputs to the required placements and to spill
    other tensors, `launching` the time to start all its programs. `memory` is the peak in bytes per core, including
    tensors that wait for later layers. `spilled` are the layers whose outputs are moved to global memory before.
    """

    number: int
    name: str
    kind: str
    option: LayerOption
    seconds: float
    moving: float = 0.0
    launching: float = 0.0
    memory: int = 0
    spilled: tuple[int, ...] = ()

    @property
    def total(self) -> float:
        return self.seconds + self.moving + self.launching

    @property
    def bound(self) -> str:
        """The lane that limits a convolution, `global memory`, or an empty string."""
        if self.option.plan is not None:
            return predict_time(self.option.plan).bound
        return "global memory" if self.option.target is GLOBAL else ""


@dataclass(frozen=True, slots=True)
class _PlanState:
    """The fastest sequence of steps that leaves the given tensors in the given placements."""

    seconds: float
    live: tuple[tuple[int, Placement], ...]
    step: NetworkPlanStep | None = None
    before: _PlanState | None = None

    def list_steps(self) -> tuple[NetworkPlanStep, ...]:
        steps, state = [], self
        while state.step is not None and state.before is not None:
            steps.append(state.step)
            state = state.before
        return tuple(reversed(steps))


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPlan:
    """A planned network on a machine, layer by layer."""

    network: GridNetwork
    machine: Machine
    config: Conv2dConfig
    compute: ComputeConfig
    steps: tuple[NetworkPlanStep, ...]

    @property
    def seconds(self) -> float:
        """Seconds of a batch, with the launches of all programs."""
        return sum(step.total for step in self.steps)

    @property
    def kernel_seconds(self) -> float:
        """Seconds of a batch in kernels, as the makers' device profiler adds them up."""
        return sum(step.seconds + step.moving for step in self.steps)

    @property
    def moving(self) -> float:
        """Seconds spent on moving tensors between placements."""
        return sum(step.moving for step in self.steps)

    @property
    def images_per_second(self) -> float:
        return self.network.batch / self.seconds

    @property
    def kernel_images_per_second(self) -> float:
        """Images per second of the kernels alone, which published device figures state."""
        return self.network.batch / self.kernel_seconds

    @property
    def published(self) -> PublishedRate | None:
        """The published images/s of this network, machine, batch and image size, or None."""
        return find_published_rate(self.network.name, self.machine.name, self.network.batch, self.network.image)

    @property
    def error(self) -> float | None:
        """Relative error of the predicted images/s of the kernels compared with the published images/s."""
        published = self.published
        return None if published is None else self.kernel_images_per_second / published.rate - 1

    def list_global_layers(self) -> list[NetworkPlanStep]:
        """Return the steps that do not fit the cores and pass through global memory."""
        return [step for step in self.steps if step.option.through_global]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSearch:
    """The fastest plan of a network, and two baselines: `greedy` and the chip's default rule (`auto`).

    `greedy` takes the fastest option of every layer without regard to moves. A baseline is None if a layer does not
    fit.
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
    """Choose the placements of every layer of a network, so that the total time is minimal."""
    setup = ConvSetup(machine=machine, config=replace(config), compute=replace(compute), bias=True)
    lister = OptionLister(setup)
    best = _NetworkPlanner(setup, lister).plan_all(network)
    return NetworkSearch(
        best=best,
        greedy=_plan_or_none(_NetworkPlanner(setup, lister, greedy=True), network),
        auto=_plan_or_none(_NetworkPlanner(setup, OptionLister(setup, default_rule=True)), network),
    )


def _plan_or_none(planner: _NetworkPlanner, network: GridNetwork) -> NetworkPlan | None:
    try:
        return planner.plan_all(network)
    except TesseraError:
        return None


def plan_network_case(params: Mapping[str, Any]) -> NetworkSearch:
    """Describe and plan the network of a benchmark case."""
    size = params.get("image_size")
    image = tuple(size) if isinstance(size, list | tuple) else size
    network = describe_network(str(params["network"]), int(params["batch_size"]), image)
    return plan_network(network, find_machine(str(params["machine"])), *make_network_configs(params))


def make_network_configs(params: Mapping[str, Any]) -> tuple[Conv2dConfig, ComputeConfig]:
    """Return the configs of a network case."""
    formats: dict[str, Any] = {name: DTYPES[params[name]] for name in ("dtype", "weights_dtype") if name in params}
    config = replace(DEFAULT_CONV_CONFIG, **formats)
    fidelity = params.get("math_fidelity")
    return config, replace(DEFAULT_COMPUTE_CONFIG, **({"math_fidelity": fidelity} if fidelity else {}))


class _NetworkPlanner:
    """Planner of a network from the options of every layer. With `greedy`, take the fastest option that fits."""

    def __init__(self, setup: ConvSetup, lister: OptionLister, *, greedy: bool = False) -> None:
        self.setup, self.lister, self.greedy = setup, lister, greedy
        self.capacity = setup.machine.local_memory

    def plan_all(self, network: GridNetwork) -> NetworkPlan:
        """Plan all layers of a network and return the fastest plan."""
        self.sizes = {
            NETWORK_INPUT: count_matrix_size(network.input_shape),
            **{number: layer.matrix_size for number, layer in enumerate(network.layers)},
        }
        self.uses = _list_uses(network)
        states = [_PlanState(0.0, ((NETWORK_INPUT, GLOBAL),))]
        for number, layer in enumerate(network.layers):
            states = self._plan_layer(states, number, layer)
            if not states:
                raise TesseraError(
                    f"no layout of {layer.name} of {network.name} fits the core memory of {self.setup.machine.name}",
                    got=f"a batch of {network.batch} in {self.setup.config.dtype}",
                    do=self._find_remedy(network, layer),
                )
        best = min(states, key=lambda state: state.seconds)
        return NetworkPlan(
            network=network,
            machine=self.setup.machine,
            config=self.setup.config,
            compute=self.setup.compute,
            steps=best.list_steps(),
        )

    def _find_remedy(self, network: GridNetwork, layer: GridLayer) -> str:
        """Return the smallest change with which a layer fits: a shorter format, or a smaller batch."""
        if not self.setup.config.dtype.is_block:
            config = replace(self.setup.config, dtype=bfloat8_b, weights_dtype=bfloat8_b)
            shorter = OptionLister(replace(self.setup, config=config))
            if _has_fitting_option(shorter, layer, self.sizes, self.capacity):
                return "use bfloat8_b"
        batch = network.batch
        while batch > 1 and layer.conv is not None:
            batch //= 2
            smaller = replace(layer, conv=replace(layer.conv, batch=max(1, layer.conv.batch * batch // network.batch)))
            if _has_fitting_option(self.lister, smaller, self.sizes, self.capacity):
                return f"use a batch of {batch}"
        return "use a machine with more memory per core, or smaller images"

    def _plan_layer(self, states: Sequence[_PlanState], number: int, layer: GridLayer) -> list[_PlanState]:
        """Extend all states by one layer. Returns no states if no option of the layer fits."""
        extended: dict[object, _PlanState] = {}
        sizes = [self.sizes[source] for source in layer.inputs]
        for state in states:
            live = dict(state.live)
            options = self.lister.list_options(layer, [live[source] for source in layer.inputs], sizes)
            fitting = [option for option in options if not option.through_global] or options
            found = False
            for option in (*fitting, *(each for each in options if each.through_global)):
                if option.through_global and found:
                    break
                after = self._apply(state, live, number, layer, option)
                if after is None:
                    continue
                found = True
                if after.live not in extended or after.seconds < extended[after.live].seconds:
                    extended[after.live] = after
                if self.greedy:
                    break
        return sorted(extended.values(), key=lambda state: state.seconds)[:MAX_STATES]

    def _apply(
        self, state: _PlanState, live: dict[int, Placement], number: int, layer: GridLayer, option: LayerOption
    ) -> _PlanState | None:
        """Return the state after a layer with one option, or None if it does not fit even if tensors are spilled."""
        lister, moving, launches, held = self.lister, 0.0, option.launches, 0
        kept_in_place, moved = False, 0
        after = dict(live)
        for index, source in enumerate(dict.fromkeys(layer.inputs)):
            place, required = live[source], option.sources[index]
            dies = self._find_next_use(source, number) is None
            if place != required:
                seconds, programs = lister.predict_move_seconds(place, required, *self.sizes[source])
                moving, launches = moving + seconds, launches + programs
                moved = max(moved, lister.count_shard_bytes(place) + lister.count_shard_bytes(required))
                if not dies and required is GLOBAL:
                    after[source] = GLOBAL  # one copy is enough
                elif not dies:
                    held += lister.count_shard_bytes(place)
            elif index == 0 and not dies:
                kept_in_place = True
            if dies:
                del after[source]
        waiting = {
            tensor: lister.count_shard_bytes(place)
            for tensor, place in live.items()
            if tensor not in layer.inputs and place is not GLOBAL
        }
        needed = max(option.memory_kept if kept_in_place else option.memory, moved) + held
        spilled: list[int] = []
        while needed + sum(waiting.values()) > self.capacity:
            if not waiting:
                return None
            farthest = max(waiting, key=lambda tensor: self._find_next_use(tensor, number) or 0)
            del waiting[farthest]
            seconds, programs = lister.predict_move_seconds(live[farthest], GLOBAL, *self.sizes[farthest])
            moving, launches = moving + seconds, launches + programs
            after[farthest] = GLOBAL
            spilled.append(farthest)
        if self._find_next_use(number, number) is not None:
            after[number] = option.target
        step = NetworkPlanStep(
            number=number,
            name=layer.name,
            kind=layer.kind,
            option=option,
            seconds=option.seconds,
            moving=moving,
            launching=launches * lister.rates.launch,
            memory=needed + sum(waiting.values()),
            spilled=tuple(spilled),
        )
        return _PlanState(
            state.seconds + step.total, tuple(sorted(after.items(), key=lambda item: item[0])), step, state
        )

    def _find_next_use(self, tensor: int, number: int) -> int | None:
        """Return the number of the next layer after `number` that reads a tensor, or None."""
        return next((use for use in self.uses.get(tensor, ()) if use > number), None)


def _list_uses(network: GridNetwork) -> dict[int, list[int]]:
    """Return the numbers of the layers that read each tensor. Outputs of the network are read after the last layer."""
    uses: dict[int, list[int]] = {}
    for number, layer in enumerate(network.layers):
        for source in layer.inputs:
            uses.setdefault(source, []).append(number)
    for output in network.outputs:
        uses.setdefault(output, []).append(len(network.layers))
    return uses


def _has_fitting_option(
    lister: OptionLister, layer: GridLayer, sizes: dict[int, tuple[int, int]], capacity: int
) -> bool:
    try:
        options = lister.list_options(layer, [GLOBAL] * len(layer.inputs), [sizes[source] for source in layer.inputs])
    except TesseraError:
        return False
    return any(option.memory <= capacity for option in options)

"""The ways in which one layer of a network can lie and what each costs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tessera.coregrid.cost.durations import durations
from tessera.coregrid.cost.moves import Lying, input_of, output_of
from tessera.coregrid.cost.rates import Rates, rates_of
from tessera.coregrid.cost.timeline import predicted
from tessera.coregrid.formats import TILE, Layout
from tessera.coregrid.networks.layers import Layer
from tessera.coregrid.planning.autoshard import auto_shard
from tessera.coregrid.planning.plan import ConvPlan, Setup, planned
from tessera.coregrid.planning.search import plan_conv2d
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.errors import TesseraError


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A layer done in one way: how its input has to lie, how its output comes to lie, and how long it takes.

    The time has the start of its programs in it: one, and one before it that makes the halo.
    """

    source: Lying
    target: Lying
    seconds: float
    memory: int
    plan: ConvPlan | None = None


def options(layer: Layer, setup: Setup) -> list[Option]:
    """The ways worth a thought, the fastest first: those that nothing beats that lies alike, in time and in memory."""
    if layer.kind == "max_pool":
        return [pooled(layer, setup)]
    every = [_option(plan, seconds) for plan, seconds in _searched(layer, setup)]
    if not every:
        raise TesseraError(f"{layer.name} does not fit {setup.machine.name}", got=layer.conv)
    least: dict[tuple[Lying, Lying], int] = {}  # the memory of the fastest so far
    found = []
    for option in sorted(every, key=lambda option: (option.seconds, option.memory)):
        ends = (option.source, option.target)
        if ends not in least or option.memory < least[ends]:
            least[ends] = option.memory
            found.append(option)
    return found


def chips_own(layer: Layer, setup: Setup) -> list[Option]:
    """The one way that the chip itself would choose."""
    if layer.kind == "max_pool":
        return [pooled(layer, setup)]
    plan = auto_shard(layer.conv, setup)
    return [_option(plan, predicted(plan).seconds)]


def _searched(layer: Layer, setup: Setup) -> list[tuple[ConvPlan, float]]:
    found = plan_conv2d(
        layer.conv,
        setup.machine,
        setup.config,
        setup.compute,
        input_dtype=setup.input_dtype,
        input_layout=setup.input_layout,
        bias=setup.bias,
    )
    return [(candidate.plan, candidate.seconds) for candidate in found.candidates if candidate.fits]


def _option(plan: ConvPlan, seconds: float) -> Option:
    programs = 1 if plan.halo is None else 2
    return Option(
        source=input_of(plan),
        target=output_of(plan),
        seconds=seconds + programs * _rates(plan.setup).launch,
        memory=plan.high_water,
        plan=plan,
    )


def _rates(setup: Setup) -> Rates:
    return rates_of(setup.machine, setup.compute, setup.dtype)


def pooled(layer: Layer, setup: Setup) -> Option:
    """A max pool: the halo, then every window gathered while the one before it is reduced; no weights."""
    plan = planned(layer.conv, ShardLayout.HEIGHT, replace(setup, bias=False))
    rates = _rates(setup)
    steps = durations(plan, rates)
    gathered = plan.blocks.inner_blocks * plan.blocks.height_blocks
    seconds = steps.halo + gathered * max(steps.read, steps.tilize) + 2 * rates.launch
    memory = plan.footprint.halo + max(plan.footprint.input, plan.footprint.output)  # it needs no buffers
    return Option(source=input_of(plan), target=output_of(plan), seconds=seconds, memory=memory)


def added(lying: Lying, setup: Setup) -> float:
    """Seconds of an addition of two tensors that lie alike: both are unpacked while sums are packed."""
    rates = _rates(setup)
    tiles = -(-lying.height // TILE) * -(-lying.width // TILE)
    return rates.launch + rates.touched(2 * tiles * setup.config.dtype.tile_bytes)


def averaged(lying: Lying, setup: Setup, batch: int) -> tuple[Lying, float]:
    """How the averages over whole images lie, where their cores have them, and the seconds of taking them."""
    rates = _rates(setup)
    tiles = -(-lying.height // TILE) * -(-lying.width // TILE)
    kept = replace(lying, sticks=batch, rows=1, height=-(-batch // TILE) * TILE)
    return kept, rates.launch + rates.touched(tiles * setup.config.dtype.tile_bytes)


def shard_bytes(lying: Lying, setup: Setup) -> int:
    """What a tensor takes of each core that it lies on."""
    return setup.config.dtype.bytes_of(lying.height, lying.width, Layout.TILE)

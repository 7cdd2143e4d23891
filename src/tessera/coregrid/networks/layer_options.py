"""Options to execute a layer: placements of input and output, time, and memory."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.cost.durations import CoreRates, compute_durations, get_core_rates
from tessera.coregrid.cost.resharding import ShardPlacement, place_input, place_output
from tessera.coregrid.cost.timeline import predict_time
from tessera.coregrid.formats import TILE_SIZE, Layout
from tessera.coregrid.networks.layers import GridLayer
from tessera.coregrid.planning.plan import ConvPlan, plan_default_layout, plan_layout
from tessera.coregrid.planning.setup import ConvSetup
from tessera.coregrid.search import search_plans
from tessera.errors import TesseraError


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOption:
    """An option to execute a layer: placement of the input and output, seconds, and peak bytes per core.

    The time includes the program launches: one for the layer, and one for the halo if the layer has a halo.
    """

    source: ShardPlacement
    target: ShardPlacement
    seconds: float
    memory: int
    plan: ConvPlan | None = None


def list_options(layer: GridLayer, setup: ConvSetup) -> list[LayerOption]:
    """Return the Pareto-optimal (time, memory) options of a layer for every placement, fastest first."""
    if layer.kind == "max_pool":
        return [plan_max_pool(layer, setup)]
    candidates = search_plans(layer.conv, setup).candidates
    every = [_build_option(candidate.plan, candidate.seconds) for candidate in candidates if candidate.fits]
    if not every:
        raise TesseraError(
            f"no layout of {layer.name} fits the core memory of {setup.machine.name}",
            got=layer.conv,
            do="use a smaller batch, or a larger grid",
        )
    least: dict[tuple[ShardPlacement, ShardPlacement], int] = {}  # least memory of the options so far
    options = []
    for option in sorted(every, key=lambda option: (option.seconds, option.memory)):
        ends = (option.source, option.target)
        if ends not in least or option.memory < least[ends]:
            least[ends] = option.memory
            options.append(option)
    return options


def list_default_options(layer: GridLayer, setup: ConvSetup) -> list[LayerOption]:
    """Return a list with one option, chosen by the chip's default rule."""
    if layer.kind == "max_pool":
        return [plan_max_pool(layer, setup)]
    plan = plan_default_layout(layer.conv, setup)
    return [_build_option(plan, predict_time(plan).seconds)]


def _build_option(plan: ConvPlan, seconds: float) -> LayerOption:
    programs = 1 if plan.halo is None else 2
    return LayerOption(
        source=place_input(plan),
        target=place_output(plan),
        seconds=seconds + programs * _get_setup_rates(plan.setup).launch,
        memory=plan.high_water,
        plan=plan,
    )


def _get_setup_rates(setup: ConvSetup) -> CoreRates:
    return get_core_rates(setup.machine, setup.compute, setup.dtype)


def plan_max_pool(layer: GridLayer, setup: ConvSetup) -> LayerOption:
    """Plan a max pool: exchange the halo, then gather windows while the previously gathered windows are reduced."""
    plan = plan_layout(layer.conv, ShardLayout.HEIGHT, replace(setup, bias=False))
    rates = _get_setup_rates(setup)
    steps = compute_durations(plan, rates)
    gathered = plan.blocks.inner_blocks * plan.blocks.height_blocks
    seconds = steps.halo + gathered * max(steps.read, steps.tilize) + 2 * rates.launch
    memory = plan.footprint.halo + max(plan.footprint.input, plan.footprint.output)  # a pool has no circular buffers
    return LayerOption(source=place_input(plan), target=place_output(plan), seconds=seconds, memory=memory)


def predict_addition_seconds(placement: ShardPlacement, setup: ConvSetup) -> float:
    """Return the seconds to add two tensors with equal placement. Unpacking and packing overlap."""
    rates = _get_setup_rates(setup)
    tiles = -(-placement.height // TILE_SIZE) * -(-placement.width // TILE_SIZE)
    return rates.launch + rates.compute_local_seconds(2 * tiles * setup.config.dtype.tile_bytes)


def plan_global_pool(placement: ShardPlacement, setup: ConvSetup, batch: int) -> tuple[ShardPlacement, float]:
    """Plan a global average pool: return the placement of the output, and the seconds to compute it."""
    rates = _get_setup_rates(setup)
    tiles = -(-placement.height // TILE_SIZE) * -(-placement.width // TILE_SIZE)
    output_placement = replace(placement, sticks=batch, rows=1, height=-(-batch // TILE_SIZE) * TILE_SIZE)
    return output_placement, rates.launch + rates.compute_local_seconds(tiles * setup.config.dtype.tile_bytes)


def count_shard_bytes(placement: ShardPlacement, setup: ConvSetup) -> int:
    """Return the bytes per core of a tensor with this placement."""
    return setup.config.dtype.count_bytes(placement.height, placement.width, Layout.TILE)

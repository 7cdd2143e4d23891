"""Options to execute a layer: placements of inputs and output, time, and memory.

A placement is a `ShardPlacement` on the cores, or `GLOBAL` for a tensor in global memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.cost.durations import CoreRates, compute_durations, get_core_rates
from tessera.coregrid.cost.resharding import ShardPlacement, compute_reshard_cost, place_input, place_output
from tessera.coregrid.cost.timeline import predict_time
from tessera.coregrid.formats import TILE_SIZE, Layout, bfloat16
from tessera.coregrid.networks.layers import CONVOLUTION_KINDS, NETWORK_INPUT, GridLayer
from tessera.coregrid.planning.plan import ConvPlan, plan_default_layout, plan_layout
from tessera.coregrid.planning.setup import ROW_MAJOR_CHANNEL_ALIGNMENT, ConvSetup
from tessera.coregrid.planning.sharding import choose_core_count, round_up
from tessera.coregrid.planning.slicing import plan_sliced
from tessera.coregrid.search import search_plans
from tessera.errors import TesseraError

GLOBAL = None
Placement = ShardPlacement | None
MAX_OPTIONS = 10  # options of a convolution that the planner of a network considers
NORM_PASSES = 3  # passes of a normalisation over its input: mean, variance, result


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOption:
    """An option to execute a layer.

    `sources` are the required placements of the inputs. `seconds` is the time of the kernels, without the `launches`.
    `memory` is the peak in bytes per core, inputs included, if the first input may be freed or overwritten, and
    `memory_kept` the peak if another layer reads the first input later. `through_global` marks a layer that does not
    fit the cores and is computed in global memory.
    """

    sources: tuple[Placement, ...]
    target: Placement
    seconds: float
    launches: int = 1
    memory: int = 0
    memory_kept: int = 0
    plan: ConvPlan | None = None
    through_global: bool = False


class OptionLister:
    """Lists the options of layers for the settings of a network. Options of equal convolutions are computed once."""

    def __init__(self, setup: ConvSetup, *, default_rule: bool = False) -> None:
        self.setup, self.default_rule = setup, default_rule
        self.rates: CoreRates = get_core_rates(setup.machine, setup.compute, setup.dtype)
        self._cache: dict[object, list[LayerOption]] = {}

    def list_options(
        self, layer: GridLayer, placements: Sequence[Placement], sizes: Sequence[tuple[int, int]]
    ) -> list[LayerOption]:
        """Return the options of a layer whose inputs have the given placements and sizes (rows, columns)."""
        if layer.kind in CONVOLUTION_KINDS:
            # images are row-major, all tensors after the first layer are tiled
            rows = layer.kind == "conv" and (NETWORK_INPUT in layer.inputs or layer.folding > 1)
            setup = replace(self.setup, input_layout=Layout.ROW_MAJOR) if rows else self.setup
            key: object = layer.kind, layer.conv, layer.flattened, rows, sizes[0]
            if key not in self._cache:
                self._cache[key] = self._list_convolution_options(layer, setup, sizes[0])
            return self._cache[key]
        if layer.kind in ("max_pool", "avg_pool"):
            return [self._plan_window_pool(layer), self._plan_in_global_memory(layer, placements)]
        if layer.kind in ("fold", "other"):
            return [self._plan_in_global_memory(layer, placements)]
        if layer.kind == "global_pool":
            return self._list_global_pool_options(layer, placements)
        if layer.kind in ("concat", "upsample"):
            return [self._plan_height_copy(layer, sizes), self._plan_in_global_memory(layer, placements)]
        return self._list_elementwise_options(layer, placements)

    def predict_move_seconds(self, source: Placement, target: Placement, rows: int, columns: int) -> tuple[float, int]:
        """Return the seconds to move a tensor to another placement, and the number of programs."""
        if source == target:
            return 0.0, 0
        dtype, chip = self.setup.config.dtype, self.rates.chip
        count = rows * dtype.count_row_bytes(columns)
        if source is GLOBAL:
            count = min(count, rows * round_up(columns, ROW_MAJOR_CHANNEL_ALIGNMENT) * bfloat16.torch.itemsize)
            return count / chip.global_read, 1
        if target is GLOBAL:
            return count / chip.global_write, 1
        return compute_reshard_cost(source, target).compute_seconds(self.rates, dtype), 1

    def count_shard_bytes(self, placement: Placement) -> int:
        """Return the bytes per core of a tensor with this placement."""
        if placement is GLOBAL:
            return 0
        return self.setup.config.dtype.count_bytes(placement.height, placement.width, Layout.TILE)

    def place_by_height(self, rows: int, columns: int) -> ShardPlacement:
        """Return the placement of a matrix that is sharded by height over all cores."""
        grid = self.setup.machine.workers
        cores = choose_core_count(-(-rows // TILE_SIZE), grid.size)
        return ShardPlacement(
            sticks=rows,
            channels=columns,
            rows=cores,
            columns=1,
            height=round_up(rows, cores * TILE_SIZE) // cores,
            width=round_up(columns, TILE_SIZE),
            across=grid.cols,
        )

    def _list_convolution_options(self, layer: GridLayer, setup: ConvSetup, size: tuple[int, int]) -> list[LayerOption]:
        conv = layer.window
        if self.default_rule:
            plan = plan_default_layout(conv, setup)
            plans = [plan if plan.fits else plan_sliced(conv, setup, None)]
        else:
            plans = [candidate.plan for candidate in search_plans(conv, setup, quick=True).candidates if candidate.fits]
        options = [self._build_convolution_option(layer, plan, size) for plan in plans]
        best = _keep_best_options(options)
        return [*best, self._plan_transposed_in_slices(layer, setup)] if layer.kind == "conv_transpose" else best

    def _plan_transposed_in_slices(self, layer: GridLayer, setup: ConvSetup) -> LayerOption:
        """Plan a transposed convolution through global memory, with the time of its sliced convolution."""
        try:
            plan = plan_sliced(layer.window, setup, None)
        except TesseraError:
            plan = plan_default_layout(layer.window, setup)
        return LayerOption(
            sources=(GLOBAL,),
            target=GLOBAL,
            seconds=predict_time(plan).seconds,
            launches=4 * max(len(plan.slices), 1),
            memory=min(plan.high_water, plan.capacity),
            memory_kept=min(plan.high_water, plan.capacity),
            through_global=True,
        )

    def _build_convolution_option(self, layer: GridLayer, plan: ConvPlan, size: tuple[int, int]) -> LayerOption:
        target, dtype, seconds = place_output(plan), self.setup.config.dtype, predict_time(plan).seconds
        sources: tuple[Placement, ...] = (place_input(plan),)
        launches = 1 if plan.halo is None else 2
        if plan.slices:
            return LayerOption(
                sources=(GLOBAL,),
                target=GLOBAL,
                seconds=seconds,
                launches=4 * len(plan.slices),
                memory=plan.high_water,
                memory_kept=plan.high_water,
                plan=plan,
                through_global=True,
            )
        memory, kept = (replace(plan.footprint, input_kept=keeps).high_water for keeps in (False, True))
        if layer.kind == "conv_transpose":
            # the images are zero-stuffed, sharded by height, before the convolution
            before, stuffed = (
                self.place_by_height(*rows_and_columns)
                for rows_and_columns in (size, (layer.window.input_sticks, layer.window.in_channels))
            )
            extra = self.count_shard_bytes(stuffed)
            around = extra + self.count_shard_bytes(before)
            return LayerOption(
                sources=(before,),
                target=target,
                seconds=seconds + self.rates.chip.halo.compute_seconds(extra),
                launches=launches + 1,
                memory=memory + around,
                memory_kept=kept + around,
                plan=plan,
            )
        if layer.flattened is not None:  # flattening copies the images in global memory
            count = layer.window.batch * dtype.count_row_bytes(layer.window.in_channels)
            seconds += count / self.rates.chip.global_read + count / self.rates.chip.global_write
            seconds += count / self.rates.chip.global_read
            sources, launches = (GLOBAL,), launches + 2
        return LayerOption(
            sources=sources,
            target=target,
            seconds=seconds,
            launches=launches,
            memory=memory,
            memory_kept=kept,
            plan=plan,
        )

    def _plan_window_pool(self, layer: GridLayer) -> LayerOption:
        """Plan a pool: exchange the halo, then gather windows while the previously gathered windows are reduced."""
        config = replace(self.setup.config, enable_split_reader=True)
        plan = plan_layout(layer.window, ShardLayout.HEIGHT, replace(self.setup, config=config, bias=False))
        steps = compute_durations(plan, self.rates)
        gathered = plan.blocks.inner_blocks * plan.blocks.height_blocks
        footprint = plan.footprint
        return LayerOption(
            sources=(place_input(plan),),
            target=place_output(plan),
            seconds=steps.halo + gathered * max(steps.read, steps.tilize),
            launches=2,
            memory=footprint.halo + max(footprint.input, footprint.output),  # a pool has no circular buffers
            memory_kept=footprint.halo + footprint.input + footprint.output,
        )

    def _list_global_pool_options(self, layer: GridLayer, placements: Sequence[Placement]) -> list[LayerOption]:
        batch = layer.window.batch
        source = placements[0] or self.place_by_height(layer.window.input_sticks, layer.window.in_channels)
        target = replace(source, sticks=batch, rows=1, height=round_up(batch, TILE_SIZE))
        shard = self.count_shard_bytes(source)
        memory = shard + self.count_shard_bytes(target)
        seconds = self.rates.compute_local_seconds(shard) + self.rates.chip.reshard.latency
        fitting = LayerOption(sources=(source,), target=target, seconds=seconds, memory=memory, memory_kept=memory)
        return [fitting, self._plan_in_global_memory(layer, placements)]

    def _plan_height_copy(self, layer: GridLayer, sizes: Sequence[tuple[int, int]]) -> LayerOption:
        """Plan a concatenation of channels or an upsampling: every core copies sticks of height shards."""
        rows, columns = layer.matrix_size
        target = self.place_by_height(rows, columns)
        shard = self.count_shard_bytes(target)
        sources = tuple(self.place_by_height(*size) for size in sizes)
        messages = target.height * len(layer.inputs)
        memory = shard + sum(map(self.count_shard_bytes, sources))
        rate = self.rates.chip.gather if layer.kind == "concat" else self.rates.chip.halo
        return LayerOption(
            sources=sources,
            target=target,
            seconds=rate.compute_seconds(shard, messages),
            memory=memory,
            memory_kept=memory,
        )

    def _list_elementwise_options(self, layer: GridLayer, placements: Sequence[Placement]) -> list[LayerOption]:
        """List options that keep the placement of one of the inputs of full size, and overwrite the first input."""
        full = [
            number for number, place in enumerate(placements) if place is GLOBAL or place.sticks == layer.matrix_size[0]
        ]
        targets = list(dict.fromkeys(placements[number] for number in full))
        if targets == [GLOBAL]:
            targets = [self.place_by_height(*layer.matrix_size)]
        options = []
        for target in targets:
            if target is GLOBAL:
                continue
            shard = self.count_shard_bytes(target)
            sources = tuple(target if number in full else place for number, place in enumerate(placements))
            passes = NORM_PASSES if layer.kind == "norm" else max(len(full), 1)
            seconds = self.rates.compute_local_seconds(shard * passes)
            if layer.kind == "norm" or len(full) < len(placements):  # statistics or gates are sent to all cores
                seconds += self.rates.compute_multicast_seconds(target.width * 2, hops=target.across)
            gates = (place for number, place in enumerate(placements) if number not in full)
            memory = shard * len(full) + sum(map(self.count_shard_bytes, gates))
            options.append(
                LayerOption(sources=sources, target=target, seconds=seconds, memory=memory, memory_kept=memory + shard)
            )
        return [*options, self._plan_in_global_memory(layer, placements)]

    def _plan_in_global_memory(self, layer: GridLayer, placements: Sequence[Placement]) -> LayerOption:
        """Plan a layer whose inputs and output are in global memory. Tiles pass through the cores."""
        dtype, chip = self.setup.config.dtype, self.rates.chip
        rows, columns = layer.matrix_size
        written = rows * min(
            dtype.count_row_bytes(columns), round_up(columns, ROW_MAJOR_CHANNEL_ALIGNMENT) * bfloat16.torch.itemsize
        )
        seconds = max(written * len(layer.inputs) / chip.global_read, written / chip.global_write)
        return LayerOption(
            sources=(GLOBAL,) * len(placements), target=GLOBAL, seconds=seconds, launches=1, through_global=True
        )


def _keep_best_options(options: list[LayerOption]) -> list[LayerOption]:
    """Return the Pareto-optimal (time, memory) options per pair of placements, fastest first."""
    least: dict[object, int] = {}
    kept = []
    for option in sorted(options, key=lambda option: (option.seconds, option.memory)):
        ends = option.sources, option.target
        if ends not in least or option.memory < least[ends]:
            least[ends] = option.memory
            kept.append(option)
    if len(kept) <= MAX_OPTIONS:
        return kept
    shown = kept[:MAX_OPTIONS]
    layouts = {option.plan.layout for option in shown if option.plan}
    for option in kept[MAX_OPTIONS:]:
        if option.plan and option.plan.layout not in layouts:
            layouts.add(option.plan.layout)
            shown.append(option)
    smallest = min(kept, key=lambda option: option.memory)
    return shown if smallest in shown else [*shown, smallest]

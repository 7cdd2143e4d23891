"""Predicted duration of every step that a core executes per block, from the block size and the machine's rates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from tessera.coregrid.config import ComputeConfig, MathFidelity, ShardLayout
from tessera.coregrid.cost.chip_rates import FALLBACK_CHIP, ChipRates, TransferRate, find_chip_rates
from tessera.coregrid.formats import TILE_SIZE, DataType, Layout
from tessera.coregrid.planning.plan import ConvPlan
from tessera.machine import load_machine
from tessera.machine.machine import Machine

# The bandwidth of a core's memory in the machine's file is the bandwidth of both unpackers together: five accesses per
# cycle. A single unpacker makes four accesses per cycle (the second unpacker keeps its tile), and so do the packers.
ONE_UNPACKER_FRACTION = 4 / 5


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreRates:
    """Rates of one core: FLOP/s of the matrix engine, bytes/s of its memory, and the measured rates of the chip.

    `assumed` names the rates that are not known for the machine and are taken from `FALLBACK_CHIP`.
    """

    flops: float
    local_bandwidth: float
    chip: ChipRates
    assumed: tuple[str, ...] = ()

    @property
    def launch(self) -> float:
        """Seconds to start a program on all cores."""
        return self.chip.launch

    def compute_local_seconds(self, count: float) -> float:
        """Return the seconds to move `count` bytes between the core's memory and its registers."""
        return count / (self.local_bandwidth * ONE_UNPACKER_FRACTION)

    def compute_bank_seconds(self, count: float, messages: int, *, readers: int = 1) -> float:
        """Return the seconds for `readers` cores to read `count` bytes each from global memory concurrently."""
        return max(
            self.chip.bank.compute_seconds(count, messages),
            self.chip.bank.latency + count * readers / self.chip.global_read,
        )

    def compute_multicast_seconds(self, count: float, *, hops: int) -> float:
        """Return the seconds to multicast `count` bytes to the cores of a row or column, once all of them are ready."""
        return self.chip.handshake + self.chip.multicast.compute_seconds(count) + hops * self.chip.hop

    def compute_tilize_seconds(self, tiles: int, sticks: DataType, result: DataType) -> float:
        """Return the seconds to convert sticks to `tiles` tiles."""
        table = self.chip.tilize
        key = sticks.torch.itemsize, result.tile_bytes
        cycles = table.get(key, table[sticks.torch.itemsize, 1088])  # formats shorter than bfloat8_b
        return tiles * cycles / self.chip.clock


@lru_cache(maxsize=256)
def _find_core_rates(
    machine: str,
    flops: float,
    local_bandwidth: float | None,
    link_bandwidth: float | None,
    global_bandwidth: float | None,
) -> CoreRates:
    chip, assumed = find_chip_rates(machine)
    measured = load_machine(FALLBACK_CHIP if assumed else machine).links
    chip = _scale_chip_rates(
        chip,
        link=(link_bandwidth or measured["link"].get_bandwidth(1)) / measured["link"].get_bandwidth(1),
        banks=(global_bandwidth or measured["global"].get_bandwidth(1)) / measured["global"].get_bandwidth(1),
    )
    missing = [*(["links.local"] if local_bandwidth is None else []), *(["transfers", "launch"] if assumed else [])]
    bandwidth = load_machine(FALLBACK_CHIP).get_link("local").get_bandwidth(1)
    return CoreRates(
        flops=flops,
        local_bandwidth=bandwidth if local_bandwidth is None else local_bandwidth,
        chip=chip,
        assumed=tuple(missing),
    )


def get_core_rates(machine: Machine, compute: ComputeConfig, dtype: DataType) -> CoreRates:
    """Return the rates of one core. FLOP/s depend on the fidelity, or on `dtype` for machines without fidelities.

    Measured bandwidths are scaled by the machine's links, relative to the links of the chip that was measured.
    """
    local, link, banks = (
        machine.links[kind].get_bandwidth(1) if kind in machine.links else None for kind in ("local", "link", "global")
    )
    return _find_core_rates(machine.name, _get_flops(machine, compute.math_fidelity, dtype), local, link, banks)


def _scale_chip_rates(chip: ChipRates, *, link: float, banks: float) -> ChipRates:
    """Return measured rates for a machine whose links and memory banks are faster by the given factors."""
    return replace(
        chip,
        gather=_scale_transfers(chip.gather, link),
        halo=_scale_transfers(chip.halo, link),
        reshard=_scale_transfers(chip.reshard, link),
        multicast=_scale_transfers(chip.multicast, link),
        bank=_scale_transfers(chip.bank, banks),
        global_read=chip.global_read * banks,
        global_write=chip.global_write * banks,
    )


def _scale_transfers(rate: TransferRate, factor: float) -> TransferRate:
    return replace(rate, bandwidth=rate.bandwidth * factor)


def _get_flops(machine: Machine, fidelity: MathFidelity, dtype: DataType) -> float:
    if fidelity.name in machine.fidelity:
        return machine.get_rate(dtype.name, fidelity=fidelity.name)
    return (
        machine.get_rate(dtype.name)
        if dtype.name in machine.flops
        else max(table[0] for table in machine.flops.values())
    )


SPLIT_READER_COUNT = 2  # processors that gather activations if the reader is split


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDurations:
    """Seconds that a core spends on each step of a convolution.

    `halo` runs once. `read` and `tilize` gather windows: once per inner block (HEIGHT), or once per height block
    (BLOCK, WIDTH, whose inner blocks are then multicast). `multicast`, `weights` and `matmul` (including packing) run
    once per inner block, `bias` once per height block.
    """

    halo: float
    read: float
    tilize: float
    multicast: float
    weights: float
    matmul: float
    bias: float


def compute_durations(plan: ConvPlan, rates: CoreRates, row: int | None = None) -> StepDurations:
    """Compute the step durations of one row of cores, or of the row with the slowest halo (None)."""
    own_blocks = 1 if plan.layout == ShardLayout.HEIGHT else plan.blocks.inner_blocks // plan.sharding.columns
    gathers = not plan.conv.is_matmul
    return StepDurations(
        halo=_predict_halo_seconds(plan, rates, row),
        read=_predict_read_seconds(plan, rates) * own_blocks if gathers else 0.0,
        tilize=_predict_tilize_seconds(plan, rates) * own_blocks if gathers else 0.0,
        multicast=_predict_multicast_seconds(plan, rates),
        weights=_predict_weights_seconds(plan, rates),
        matmul=_predict_matmul_seconds(plan, rates),
        bias=_predict_bias_seconds(plan, rates),
    )


def _predict_halo_seconds(plan: ConvPlan, rates: CoreRates, row: int | None) -> float:
    """Predict the halo time: untilize the input, copy local sticks, and send sticks to other cores, line by line."""
    if plan.halo is None:
        return 0.0
    stick = plan.sharding.in_width * plan.sticks_dtype.torch.itemsize
    line = plan.conv.width
    sticks = list(zip(plan.halo.copied, plan.halo.sent, strict=True))
    copied, sent = max(sticks, key=sum) if row is None else sticks[row]
    moves = rates.chip.halo.compute_seconds((copied + sent) * stick, -(-copied // line) - (-sent // line))
    if plan.setup.input_layout is Layout.ROW_MAJOR:
        return moves
    tiles = plan.sharding.in_height * -(-plan.sharding.in_width // TILE_SIZE) // TILE_SIZE
    return moves + rates.compute_tilize_seconds(tiles, plan.sticks_dtype, plan.sticks_dtype)


def _predict_read_seconds(plan: ConvPlan, rates: CoreRates) -> float:
    """Predict the time to gather the windows of one activation block. The sticks of one window row are one message."""
    blocks, conv = plan.blocks, plan.conv
    sticks = blocks.act_height * TILE_SIZE
    in_row = 1 if conv.dilation[1] == 1 else conv.kernel[1]
    whole = plan.layout == ShardLayout.WIDTH or (plan.layout == ShardLayout.BLOCK and plan.config.full_inner_dim)
    rows = conv.kernel[0] if whole else 1
    count = sticks * blocks.act_width * TILE_SIZE * plan.sticks_dtype.torch.itemsize
    parts = plan.config.act_block_w_div if plan.layout == ShardLayout.WIDTH else 1
    fraction = _compute_read_fraction(plan)
    seconds = rates.chip.gather.compute_seconds(fraction * count, fraction * -(-sticks * rows * in_row // parts))
    return seconds / SPLIT_READER_COUNT if plan.config.enable_split_reader and blocks.act_height > 1 else seconds


def _compute_read_fraction(plan: ConvPlan) -> float:
    """Return the fraction of the window rows that are read; with activation reuse, rows of the line above are kept."""
    if plan.layout != ShardLayout.HEIGHT or not plan.config.enable_activation_reuse:
        return 1.0
    sticks, line = plan.sharding.out_height, min(plan.conv.output_size[1], plan.sharding.out_height)
    return (line + (sticks - line) / plan.conv.kernel[0]) / sticks


def _predict_tilize_seconds(plan: ConvPlan, rates: CoreRates) -> float:
    """Predict the time to convert the sticks of one activation block to tiles."""
    tiles = plan.blocks.act_height * plan.blocks.act_width
    return rates.compute_tilize_seconds(tiles, plan.sticks_dtype, plan.config.dtype)


def _predict_multicast_seconds(plan: ConvPlan, rates: CoreRates) -> float:
    """Predict the time to multicast one activation block along a row of cores. The cores send one after the other."""
    columns = max(plan.sharding.columns, plan.sharding.out_columns)
    if columns == 1 or plan.layout == ShardLayout.HEIGHT:
        return 0.0
    count = plan.blocks.act_height * plan.blocks.act_width * plan.config.dtype.tile_bytes
    return rates.compute_multicast_seconds(count, hops=min(columns, plan.grid.cols + plan.grid.rows))


def _predict_weights_seconds(plan: ConvPlan, rates: CoreRates) -> float:
    """Predict the time to read a weight block from global memory, tile by tile, and to multicast it to further rows."""
    blocks, sharding = plan.blocks, plan.sharding
    tiles = blocks.act_width * blocks.out_width
    count = tiles * plan.config.weights_dtype.tile_bytes
    seconds = rates.compute_bank_seconds(count, tiles, readers=sharding.out_columns)
    if sharding.rows == 1:
        return seconds
    return seconds + rates.compute_multicast_seconds(count, hops=min(sharding.rows, plan.grid.rows + plan.grid.cols))


def _predict_matmul_seconds(plan: ConvPlan, rates: CoreRates) -> float:
    """Predict the time to multiply one block. Arithmetic, unpacking and packing overlap.

    With `dst_full_sync_en`, packing does not overlap. The source registers hold one tile of each operand. For every
    tile of the inner dim, each row of a sub-block loads one activation tile once and then all weight tiles of the
    sub-block. If the sub-block has fewer columns than rows, each column loads one weight tile and all activation tiles
    instead. Partial sums are reloaded, unless the packer adds them in memory, which takes two accesses.
    """
    blocks = plan.blocks
    out = blocks.act_height * blocks.out_width
    arithmetic = 2 * out * blocks.act_width * TILE_SIZE**3 / rates.flops
    rows, columns = blocks.sub_height, blocks.sub_width
    act, weights = plan.config.dtype.tile_bytes, plan.config.weights_dtype.tile_bytes
    per_step = rows * (act + columns * weights) if columns >= rows else columns * (weights + rows * act)
    unpacked = out // (rows * columns) * blocks.act_width * per_step
    packed = out * plan.partials_dtype.tile_bytes
    if blocks.inner_blocks > 1:
        if plan.compute.packer_l1_acc:
            packed *= 2
        else:
            unpacked += out * plan.partials_dtype.tile_bytes
    unpack, pack = rates.compute_local_seconds(unpacked), rates.compute_local_seconds(packed)
    if plan.compute.dst_full_sync_en:
        return max(arithmetic, unpack) + pack
    return max(arithmetic, unpack, pack)


def _predict_bias_seconds(plan: ConvPlan, rates: CoreRates) -> float:
    """Predict the time to add the bias: a separate pass in which unpacking and packing overlap."""
    if not plan.setup.bias:
        return 0.0
    out = plan.blocks.act_height * plan.blocks.out_width
    unpacked = plan.partials_dtype.tile_bytes + plan.config.weights_dtype.tile_bytes
    return rates.compute_local_seconds(out * max(unpacked, plan.config.dtype.tile_bytes))

"""Predicted duration of every step that a core executes per block, from the block size and the machine's rates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tessera.coregrid.config import ComputeConfig, MathFidelity, ShardLayout
from tessera.coregrid.formats import TILE_SIZE, DataType, Layout
from tessera.coregrid.planning.plan import ConvPlan
from tessera.machine import load_machine
from tessera.machine.cost import transfer_time
from tessera.machine.machine import Link, Machine

# The bandwidth of a core's memory in the machine's file is the bandwidth of both unpackers together: five accesses per
# cycle. A single unpacker makes four accesses per cycle (the second unpacker keeps its tile), and so do the packers.
ONE_UNPACKER_FRACTION = 4 / 5
# Seconds between small programs replayed on the device, measured by the manufacturer: `IterationTime` of
# brisc_only_trace/256 in tt-metal, tests/tt_metal/tt_metal/perf_microbenchmark/dispatch/pgm_dispatch_golden.json and
# pgm_dispatch_blackhole_golden.json.
LAUNCH_SECONDS = {"wormhole-n150": 2.58e-6, "blackhole-p150": 1.29e-6}
FALLBACK_MACHINE = "wormhole-n150"  # machine whose rates replace rates that are missing in a file


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreRates:
    """Rates of one core: FLOP/s of the matrix engine, bandwidths in bytes/s, and the link to other cores.

    `launch` is the time in seconds to start a program on all cores. `assumed` names the rates that are missing in the
    machine's file and are taken from `FALLBACK_MACHINE`.
    """

    flops: float
    local_bandwidth: float
    link: Link
    global_bandwidth: float
    launch: float
    assumed: tuple[str, ...] = ()

    def compute_transfer_seconds(self, count: float, messages: int = 1) -> float:
        """Return the seconds to move `count` bytes over the on-chip network in `messages` sequential messages."""
        return transfer_time(count, self.link, messages=messages) if count else 0.0

    def compute_local_seconds(self, count: float) -> float:
        """Return the seconds to move `count` bytes between the core's memory and its registers."""
        return count / (self.local_bandwidth * ONE_UNPACKER_FRACTION)

    def compute_global_read_seconds(self, count: float, messages: int, *, readers: int = 1) -> float:
        """Return the seconds for `readers` cores to read `count` bytes each from global memory concurrently."""
        return messages * self.link.latency + count / min(self.link.get_bandwidth(1), self.global_bandwidth / readers)


def get_core_rates(machine: Machine, compute: ComputeConfig, dtype: DataType) -> CoreRates:
    """Return the rates of one core. FLOP/s depend on the fidelity, or on `dtype` for machines without fidelities."""
    missing = tuple(name for name in ("local", "link", "global") if name not in machine.links)
    links = {
        name: (_load_fallback_machine() if name in missing else machine).get_link(name)
        for name in ("local", "link", "global")
    }
    return CoreRates(
        flops=_get_flops(machine, compute.math_fidelity, dtype),
        local_bandwidth=links["local"].get_bandwidth(1),
        link=links["link"],
        global_bandwidth=links["global"].get_bandwidth(machine.workers.size),
        launch=LAUNCH_SECONDS.get(machine.name, LAUNCH_SECONDS[FALLBACK_MACHINE]),
        assumed=(*(f"links.{name}" for name in missing), *(() if machine.name in LAUNCH_SECONDS else ("launch",))),
    )


def _get_flops(machine: Machine, fidelity: MathFidelity, dtype: DataType) -> float:
    if fidelity.name in machine.fidelity:
        return machine.get_rate(dtype.name, fidelity=fidelity.name)
    return (
        machine.get_rate(dtype.name)
        if dtype.name in machine.flops
        else max(table[0] for table in machine.flops.values())
    )


@lru_cache(maxsize=1)
def _load_fallback_machine() -> Machine:
    return load_machine(FALLBACK_MACHINE)


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
    moves = max(
        rates.compute_transfer_seconds(copied * stick, -(-copied // line))
        + rates.compute_transfer_seconds(sent * stick, -(-sent // line))
        for copied, sent in (sticks if row is None else [sticks[row]])
    )
    if plan.setup.input_layout is Layout.ROW_MAJOR:
        return moves
    shard = plan.sharding.in_height * plan.sharding.in_width
    return moves + rates.compute_local_seconds(shard * plan.sticks_dtype.torch.itemsize)


def _predict_read_seconds(plan: ConvPlan, rates: CoreRates) -> float:
    """Predict the time to gather the windows of one activation block. The sticks of one window row are one message."""
    blocks, conv = plan.blocks, plan.conv
    sticks = blocks.act_height * TILE_SIZE
    in_row = 1 if conv.dilation[1] == 1 else conv.kernel[1]
    whole = plan.layout == ShardLayout.WIDTH or (plan.layout == ShardLayout.BLOCK and plan.config.full_inner_dim)
    rows = conv.kernel[0] if whole else 1
    count = sticks * blocks.act_width * TILE_SIZE * plan.sticks_dtype.torch.itemsize
    parts = plan.config.act_block_w_div if plan.layout == ShardLayout.WIDTH else 1
    seconds = rates.compute_transfer_seconds(count, -(-sticks * rows * in_row // parts))
    return seconds / SPLIT_READER_COUNT if plan.config.enable_split_reader and blocks.act_height > 1 else seconds


def _predict_tilize_seconds(plan: ConvPlan, rates: CoreRates) -> float:
    """Predict the time to convert sticks to tiles: the maximum of unpacking and packing, which overlap."""
    tiles = plan.blocks.act_height * plan.blocks.act_width
    return rates.compute_local_seconds(tiles * max(plan.sticks_dtype.tile_bytes, plan.config.dtype.tile_bytes))


def _predict_multicast_seconds(plan: ConvPlan, rates: CoreRates) -> float:
    """Predict the time to multicast one activation block along a row of cores. The cores send one after the other."""
    if max(plan.sharding.columns, plan.sharding.out_columns) == 1 or plan.layout == ShardLayout.HEIGHT:
        return 0.0
    return rates.compute_transfer_seconds(plan.blocks.act_height * plan.blocks.act_width * plan.config.dtype.tile_bytes)


def _predict_weights_seconds(plan: ConvPlan, rates: CoreRates) -> float:
    """Predict the time to read a weight block from global memory, tile by tile, and to multicast it to further rows."""
    blocks, sharding = plan.blocks, plan.sharding
    tiles = blocks.act_width * blocks.out_width
    count = tiles * plan.config.weights_dtype.tile_bytes
    seconds = rates.compute_global_read_seconds(count, tiles, readers=sharding.out_columns)
    return seconds + rates.compute_transfer_seconds(count) if sharding.rows > 1 else seconds


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

"""How long each step of a core takes on one block, from the block's size and the machine's rates."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.coregrid.cost.rates import Rates
from tessera.coregrid.formats import TILE, Layout
from tessera.coregrid.planning.plan import ConvPlan
from tessera.coregrid.planning.sharding import ShardLayout

READERS = 2  # that share the work of one when it is split


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Seconds of a core: the halo once; the others for each block.

    `read` and `tilize` are for what a core gathers itself before an inner block (HEIGHT) or before all inner blocks of
    a height block (BLOCK, WIDTH, whose blocks come round by multicast). `matmul` has the packing in it; `finish` comes
    once after the inner blocks.
    """

    halo: float
    read: float
    tilize: float
    multicast: float
    weights: float
    matmul: float
    finish: float


def durations(plan: ConvPlan, rates: Rates, row: int | None = None) -> Durations:
    """The steps of the cores of a row, or (None) of those that have most to do; they differ in their halos."""
    own = 1 if plan.layout == ShardLayout.HEIGHT else plan.blocks.inner_blocks // plan.sharding.columns
    gathers = not plan.conv.is_matmul
    return Durations(
        halo=_halo(plan, rates, row),
        read=_read(plan, rates) * own if gathers else 0.0,
        tilize=_tilize(plan, rates) * own if gathers else 0.0,
        multicast=_multicast(plan, rates),
        weights=_weights(plan, rates),
        matmul=_matmul(plan, rates),
        finish=_finish(plan, rates),
    )


def _halo(plan: ConvPlan, rates: Rates, row: int | None) -> float:
    """Taking the input out of its tiles, then copying its own sticks and pushing those of others, line by line."""
    if plan.halo is None:
        return 0.0
    stick = plan.sharding.in_width * plan.sticks_dtype.torch.itemsize
    line = plan.conv.width
    sticks = list(zip(plan.halo.copied, plan.halo.pushed, strict=True))
    moves = max(
        rates.moved(kept * stick, -(-kept // line)) + rates.moved(gone * stick, -(-gone // line))
        for kept, gone in (sticks if row is None else [sticks[row]])
    )
    if plan.input_layout is Layout.ROW_MAJOR:
        return moves
    shard = plan.sharding.in_height * plan.sharding.in_width
    return moves + rates.touched(shard * plan.sticks_dtype.torch.itemsize)


def _read(plan: ConvPlan, rates: Rates) -> float:
    """Gathering the windows of one activation block: the sticks of a window's row are one message."""
    blocks, conv = plan.blocks, plan.conv
    sticks = blocks.act_height * TILE
    in_row = 1 if conv.dilation[1] == 1 else conv.kernel[1]
    whole = plan.layout == ShardLayout.WIDTH or (plan.layout == ShardLayout.BLOCK and plan.config.full_inner_dim)
    rows = conv.kernel[0] if whole else 1
    count = sticks * blocks.act_width * TILE * plan.sticks_dtype.torch.itemsize
    parts = plan.config.act_block_w_div if plan.layout == ShardLayout.WIDTH else 1
    seconds = rates.moved(count, -(-sticks * rows * in_row // parts))
    return seconds / READERS if plan.config.enable_split_reader and blocks.act_height > 1 else seconds


def _tilize(plan: ConvPlan, rates: Rates) -> float:
    """Reading sticks and packing tiles go on side by side: the slower of them counts."""
    tiles = plan.blocks.act_height * plan.blocks.act_width
    return rates.touched(tiles * max(plan.sticks_dtype.tile_bytes, plan.output_dtype.tile_bytes))


def _multicast(plan: ConvPlan, rates: Rates) -> float:
    """Passing one activation block along a row of cores; each core sends when it is its turn."""
    if max(plan.sharding.columns, plan.sharding.out_columns) == 1 or plan.layout == ShardLayout.HEIGHT:
        return 0.0
    return rates.moved(plan.blocks.act_height * plan.blocks.act_width * plan.output_dtype.tile_bytes)


def _weights(plan: ConvPlan, rates: Rates) -> float:
    """One block of weights from global memory, tile by tile; where cores share it, one reads and passes it on."""
    blocks, sharding = plan.blocks, plan.sharding
    tiles = blocks.act_width * blocks.out_width
    count = tiles * plan.weights_dtype.tile_bytes
    seconds = rates.read(count, tiles, readers=sharding.out_columns)
    return seconds + rates.moved(count) if sharding.rows > 1 else seconds


def _matmul(plan: ConvPlan, rates: Rates) -> float:
    """Multiplying one block: arithmetic, unpacking and packing overlap; packing waits if all registers are one's.

    The source registers hold one tile of each operand: for every tile of the inner dim, each row of a sub-block (or
    each column, if those are fewer) takes its own tile once and those across it one after the other. Partial sums are
    reloaded, unless the packer adds them up in memory, which takes it two accesses.
    """
    blocks = plan.blocks
    out = blocks.act_height * blocks.out_width
    arithmetic = 2 * out * blocks.act_width * TILE**3 / rates.flops
    rows, columns = blocks.sub_height, blocks.sub_width
    act, weights = plan.output_dtype.tile_bytes, plan.weights_dtype.tile_bytes
    per_step = rows * (act + columns * weights) if columns >= rows else columns * (weights + rows * act)
    unpacked = out // (rows * columns) * blocks.act_width * per_step
    packed = out * plan.partials_dtype.tile_bytes
    if blocks.inner_blocks > 1:
        if plan.compute.packer_l1_acc:
            packed *= 2
        else:
            unpacked += out * plan.partials_dtype.tile_bytes
    unpack, pack = rates.touched(unpacked), rates.touched(packed)
    if plan.compute.dst_full_sync_en:
        return max(arithmetic, unpack) + pack
    return max(arithmetic, unpack, pack)


def _finish(plan: ConvPlan, rates: Rates) -> float:
    """A bias is added in a pass of its own: the sums are unpacked with it while those before them are packed."""
    if not plan.bias:
        return 0.0
    out = plan.blocks.act_height * plan.blocks.out_width
    unpacked = plan.partials_dtype.tile_bytes + plan.weights_dtype.tile_bytes
    return rates.touched(out * max(unpacked, plan.output_dtype.tile_bytes))

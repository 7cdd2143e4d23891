"""The bytes that a convolution moves, by the way they go: predicted from the plan, and counted by the execution."""

from __future__ import annotations

from dataclasses import dataclass

from tessera.coregrid.config import Conv2dConfig
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import TILE, DataType
from tessera.coregrid.planning.blocks import Blocks
from tessera.coregrid.planning.haloing import HaloCount
from tessera.coregrid.planning.memory import sticks_dtype
from tessera.coregrid.planning.sharding import Sharding, ShardLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Bytes moved by all cores together.

    - `local`: copied by a core within its own memory: the local runs of the halo, and every window gathered into an
      activation block (one stick per output, tap and column of cores; tile padding is not copied).
    - `remote`: pushed from one core to another: the remote runs of the halo, in every column of cores.
    - `multicast`: delivered by one core to several, counted once for each that receives it (the sender does not):
      whole tiles of activation blocks along a row of cores (BLOCK, WIDTH), of weights and bias from the core that
      read them to those that share them (HEIGHT: all others; BLOCK: those below it).
    - `global_read`, `global_written`: between the cores and global memory: the weights in tiles, once (BLOCK: once
      for every activation block of the height, since its buffer holds one block), the bias once; of a convolution in
      slices also the input sticks of every slice and its output.

    What a core computes, packs or pads is not a move. A matmul has no halo and gathers nothing.

    >>> Ledger(local=2, remote=1) + Ledger(remote=3)
    Ledger(local=2, remote=4, multicast=0, global_read=0, global_written=0)
    """

    local: int = 0
    remote: int = 0
    multicast: int = 0
    global_read: int = 0
    global_written: int = 0

    @property
    def global_bytes(self) -> int:
        """Read from and written to global memory together."""
        return self.global_read + self.global_written

    @property
    def total(self) -> int:
        return self.local + self.remote + self.multicast + self.global_bytes

    def __add__(self, other: Ledger) -> Ledger:
        return Ledger(
            local=self.local + other.local,
            remote=self.remote + other.remote,
            multicast=self.multicast + other.multicast,
            global_read=self.global_read + other.global_read,
            global_written=self.global_written + other.global_written,
        )


def predicted_ledger(
    conv: Convolution,
    sharding: Sharding,
    blocks: Blocks,
    halo: HaloCount | None,
    config: Conv2dConfig,
    *,
    input_dtype: DataType,
    bias: bool,
) -> Ledger:
    """The ledger of one convolution whose input lies sharded as the plan says, and whose output stays so."""
    stick = sharding.in_width * sticks_dtype(input_dtype).torch.itemsize
    local = remote = 0
    if halo is not None:
        windows = conv.outputs * conv.kernel[0] * conv.kernel[1]
        local = (sum(halo.copied) + windows) * stick * sharding.columns
        remote = sum(halo.received) * stick * sharding.columns
    passes = [-(-len(run) // (blocks.act_height * TILE)) for run in sharding.outputs(conv.outputs)]
    weights = weights_bytes(sharding, blocks, config)
    beside = blocks.out_width * sharding.out_columns * config.weights_dtype.tile_bytes if bias else 0
    others = sum(count > 0 for count in passes[1:])
    if sharding.layout == ShardLayout.HEIGHT:
        delivered = (weights + beside) * others
        return Ledger(local=local, remote=remote, multicast=delivered, global_read=weights + beside)
    # every core of a row sends its blocks to those that make output, but not to itself
    pairs = sharding.columns * sharding.out_columns - min(sharding.columns, sharding.out_columns)
    block = blocks.act_height * blocks.act_width * config.dtype.tile_bytes
    sent = sum(passes) * (blocks.inner_blocks // sharding.columns) * pairs * block
    return Ledger(
        local=local,
        remote=remote,
        multicast=sent + weights * sum(passes[1:]) + beside * others,
        global_read=weights * passes[0] + beside,
    )


def weights_bytes(sharding: Sharding, blocks: Blocks, config: Conv2dConfig) -> int:
    """All weights in tiles, as they lie in global memory, padding included."""
    tiles = blocks.inner_blocks * blocks.act_width * blocks.out_width * sharding.out_columns
    return tiles * config.weights_dtype.tile_bytes

"""Bytes that a convolution moves, by kind of transfer: predicted by the plan, and counted by the execution."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import add, sub

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import TILE_SIZE
from tessera.coregrid.planning.halo import HaloCounts
from tessera.coregrid.planning.memory import get_sticks_dtype
from tessera.coregrid.planning.setup import ConvSetup
from tessera.coregrid.planning.sharding import BlockSizes, Sharding


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """Bytes moved by all cores together.

    - `local`: copied within a core's memory: sticks that a core copies to its own haloed shard, and windows gathered
      into activation blocks (one stick per output, window pixel and column of cores; tile padding is not copied).
    - `remote`: sent from one core to another: the sticks of the halo, in every column of cores.
    - `multicast`: sent from one core to several, counted once per receiver: whole tiles of activation blocks along a
      row of cores (BLOCK, WIDTH), and whole tiles of weights and bias from the core that read them to all other cores
      (HEIGHT) or to the cores below it (BLOCK).
    - `global_read`, `global_written`: moved between cores and global memory. Weights are read in tiles, once (BLOCK:
      once per height block, because the buffer holds one block), and the bias once. A sliced convolution also reads the
      input sticks of every slice and writes the output of every slice.

    Computing, packing and padding are not moves. A matmul has no halo and gathers nothing.

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
        """Bytes read from and written to global memory."""
        return self.global_read + self.global_written

    @property
    def total(self) -> int:
        return self.local + self.remote + self.multicast + self.global_bytes

    def __add__(self, other: Ledger) -> Ledger:
        return self._combine(other, add)

    def __sub__(self, other: Ledger) -> Ledger:
        return self._combine(other, sub)

    def _combine(self, other: Ledger, operation: Callable[[int, int], int]) -> Ledger:
        return Ledger(**{name: operation(getattr(self, name), getattr(other, name)) for name in self.__slots__})


def predict_ledger(
    conv: Convolution,
    sharding: Sharding,
    blocks: BlockSizes,
    halo: HaloCounts | None,
    setup: ConvSetup,
) -> Ledger:
    """Predict the bytes that a convolution moves if the input is sharded as planned and the output stays sharded."""
    stick = sharding.in_width * get_sticks_dtype(setup.dtype).torch.itemsize
    local = remote = 0
    if halo is not None:
        windows = conv.output_sticks * conv.kernel[0] * conv.kernel[1]
        local = (sum(halo.copied) + windows) * stick * sharding.columns
        remote = sum(halo.received) * stick * sharding.columns
    passes = [-(-len(run) // (blocks.act_height * TILE_SIZE)) for run in sharding.split_outputs(conv.output_sticks)]
    tile_row = blocks.out_width * sharding.out_columns * setup.config.weights_dtype.tile_bytes  # a row of weight tiles
    weights, bias_bytes = blocks.inner_blocks * blocks.act_width * tile_row, tile_row if setup.bias else 0
    receivers = sum(count > 0 for count in passes[1:])
    if sharding.layout == ShardLayout.HEIGHT:
        delivered = (weights + bias_bytes) * receivers
        return Ledger(local=local, remote=remote, multicast=delivered, global_read=weights + bias_bytes)
    # every core of a row sends its blocks to all other cores of the row that compute outputs
    pairs = sharding.columns * sharding.out_columns - min(sharding.columns, sharding.out_columns)
    block = blocks.act_height * blocks.act_width * setup.config.dtype.tile_bytes
    sent = sum(passes) * (blocks.inner_blocks // sharding.columns) * pairs * block
    return Ledger(
        local=local,
        remote=remote,
        multicast=sent + weights * sum(passes[1:]) + bias_bytes * receivers,
        global_read=weights * passes[0] + bias_bytes,
    )

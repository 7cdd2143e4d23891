"""Convolution as a product of matrices: the activations, the weights and the bias, as they lie for it.

`[N*Ho*Wo, Kh*Kw*Ci]` times `[Kh*Kw*Ci, Co]`: a row of the first is the window of one output, pixel after pixel with
all its channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from tessera.coregrid.convolution import Convolution
from tessera.coregrid.formats import TILE
from tessera.coregrid.planning.plan import ConvPlan
from tessera.coregrid.planning.sharding import ShardLayout
from tessera.coregrid.planning.sticks import Sticks
from tessera.errors import TesseraError


def activation_matrix(images: Tensor, conv: Convolution) -> Tensor:
    """The windows of images `(N, H, W, C)` as rows: `[N*Ho*Wo, Kh*Kw*Ci]`, in im2col order."""
    sticks = Sticks((conv.batch, conv.height, conv.width), conv.window)
    # a stick of zeros stands for all padding
    padded = torch.cat([images.reshape(-1, conv.in_channels), images.new_zeros(1, conv.in_channels)])
    source = torch.from_numpy(sticks.source[sticks.trace[:, None] + sticks.taps])
    return padded[source].reshape(conv.outputs, -1)


def weight_matrix(weight: Tensor, groups: int = 1) -> Tensor:
    """Weights `(Co, Ci / groups, Kh, Kw)` as a matrix `[Kh*Kw*Ci, Co]`; those of groups lie on its block diagonal."""
    outputs, inputs, *kernel = weight.shape
    if groups > 1:
        each = outputs // groups
        dense = weight.new_zeros(outputs, inputs * groups, *kernel)
        for group in range(groups):
            rows, columns = slice(group * each, (group + 1) * each), slice(group * inputs, (group + 1) * inputs)
            dense[rows, columns] = weight[rows]
        weight = dense
    return weight.permute(2, 3, 1, 0).reshape(-1, outputs)


def bias_matrix(bias: Tensor, columns: int) -> Tensor:
    """A bias of `Co` numbers as a tile's height of rows, `[32, columns]`: itself, and zeros below and beside it."""
    flat = bias.reshape(-1)
    return F.pad(flat[None], (0, columns - len(flat), 0, TILE - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightLayout:
    """How prepared weights lie in global memory: whose blocks come after which, and what is padded.

    Rows go by (kh, kw, ci); with BLOCK, by (shard of ci, kh, kw, ci). `block_rows` of every `block_height` are real:
    each block is padded to whole tiles.
    """

    layout: ShardLayout
    kernel: tuple[int, int]
    in_channels: int
    out_channels: int
    groups: int
    columns: int
    in_width: int
    blocks: int
    block_rows: int
    block_height: int
    width: int

    @classmethod
    def of(cls, plan: ConvPlan) -> WeightLayout:
        conv, sharding, blocks = plan.conv, plan.sharding, plan.blocks
        inner = blocks.inner_blocks // sharding.columns
        return cls(
            layout=sharding.layout,
            kernel=conv.kernel,
            in_channels=conv.in_channels,
            out_channels=conv.out_channels,
            groups=conv.groups,
            columns=sharding.columns,
            in_width=sharding.in_width,
            blocks=inner,
            block_rows=conv.kernel[0] * conv.kernel[1] * sharding.in_width // inner,
            block_height=blocks.act_width * TILE,
            width=sharding.out_width * sharding.out_columns,
        )

    def tile_rows(self, block: int) -> list[int]:
        """The rows of tiles of an inner block: those of a shard's channels, block after block."""
        tiles = self.block_height // TILE
        if self.layout != ShardLayout.WIDTH:
            return list(range(block * tiles, (block + 1) * tiles))
        shard, within = divmod(block, self.blocks)
        wide = self.in_width // TILE
        found = []
        for tile in range(within * tiles, (within + 1) * tiles):
            tap, channels = divmod(tile, wide)
            found.append((tap * self.columns + shard) * wide + channels)
        return found


def prepared_weights(weight: Tensor, layout: WeightLayout) -> Tensor:
    """Weights `(Co, Ci / groups, Kh, Kw)` as they lie in global memory for a plan."""
    allowed = layout.out_channels, layout.in_channels // layout.groups, *layout.kernel
    if tuple(weight.shape) != allowed:
        raise TesseraError(
            "the weights do not belong to this convolution", got=tuple(weight.shape), allowed=str(allowed)
        )
    taps, (inputs, outputs) = layout.kernel[0] * layout.kernel[1], (layout.in_channels, layout.out_channels)
    dense = weight_matrix(weight, layout.groups).view(taps, inputs, outputs)
    dense = F.pad(dense, (0, layout.width - outputs, 0, layout.columns * layout.in_width - inputs))
    if layout.layout == ShardLayout.WIDTH:
        return dense.reshape(-1, layout.width)
    by_shard = dense.view(taps, layout.columns, layout.in_width, -1).transpose(0, 1)
    blocks = by_shard.reshape(layout.columns * layout.blocks, layout.block_rows, -1)
    return F.pad(blocks, (0, 0, 0, layout.block_height - layout.block_rows)).reshape(-1, layout.width)

"""Weights and bias of a convolution as matrices in global memory.

A convolution is the matrix product `[N*Ho*Wo, Kh*Kw*Ci]` x `[Kh*Kw*Ci, Co]` of activations and weights. A row of the
activation matrix is the window of one output, pixel by pixel with all channels. Prepared weights can be passed to later
calls.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.nn import functional as F

from tessera.coregrid.config import ShardLayout
from tessera.coregrid.device.device import Device
from tessera.coregrid.device.storage import InterleavedStorage, MatrixSpec, write_values
from tessera.coregrid.device.tensors import Tensor, allocate_tensor, deallocate
from tessera.coregrid.formats import TILE_SIZE, DataType, Layout
from tessera.coregrid.memory_config import DRAM_MEMORY_CONFIG
from tessera.coregrid.planning.plan import ConvPlan
from tessera.errors import TesseraError


def build_weight_matrix(weight: torch.Tensor, groups: int = 1) -> torch.Tensor:
    """Return weights `(Co, Ci / groups, Kh, Kw)` as a matrix `[Kh*Kw*Ci, Co]`, block-diagonal if grouped."""
    outputs, inputs, *kernel = weight.shape
    if groups > 1:
        dense = weight.new_zeros(outputs, inputs * groups, *kernel)
        for group, (target, part) in enumerate(zip(dense.chunk(groups), weight.chunk(groups), strict=True)):
            target[:, group * inputs : (group + 1) * inputs] = part
        weight = dense
    return weight.permute(2, 3, 1, 0).reshape(-1, outputs)


def build_bias_matrix(bias: torch.Tensor, columns: int) -> torch.Tensor:
    """Return a bias of `Co` values as the first row of a matrix `[32, columns]` that is zero elsewhere."""
    flat = bias.reshape(-1)
    return F.pad(flat[None], (0, columns - len(flat), 0, TILE_SIZE - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightLayout:
    """Order and padding of prepared weights in global memory.

    Rows of the weight matrix are ordered by (kh, kw, ci); with BLOCK, by (shard of ci, kh, kw, ci). Every inner block
    has `block_rows` rows of data, padded to `block_height` rows (whole tiles).
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
            block_height=blocks.act_width * TILE_SIZE,
            width=sharding.out_width * sharding.out_columns,
        )

    def list_tile_rows(self, block: int) -> list[int]:
        """Return the numbers of the tile rows that contain the weights of an inner block."""
        tiles = self.block_height // TILE_SIZE
        if self.layout != ShardLayout.WIDTH:
            return list(range(block * tiles, (block + 1) * tiles))
        shard, within = divmod(block, self.blocks)
        wide = self.in_width // TILE_SIZE
        rows = []
        for tile in range(within * tiles, (within + 1) * tiles):
            tap, channels = divmod(tile, wide)
            rows.append((tap * self.columns + shard) * wide + channels)
        return rows


def lay_out_weights(weight: torch.Tensor, layout: WeightLayout) -> torch.Tensor:
    """Return weights `(Co, Ci / groups, Kh, Kw)` as a matrix in the order and padding of `layout`."""
    allowed = layout.out_channels, layout.in_channels // layout.groups, *layout.kernel
    missing = allowed[1] - weight.shape[1] if weight.ndim == 4 else 0
    if missing > 0 and layout.groups == 1:  # weights of unpadded images
        weight = F.pad(weight, (0, 0, 0, 0, 0, missing))
    if tuple(weight.shape) != allowed:
        raise TesseraError("the weights do not match the convolution", got=tuple(weight.shape), allowed=str(allowed))
    taps, (inputs, outputs) = layout.kernel[0] * layout.kernel[1], (layout.in_channels, layout.out_channels)
    dense = build_weight_matrix(weight, layout.groups).view(taps, inputs, outputs)
    dense = F.pad(dense, (0, layout.width - outputs, 0, layout.columns * layout.in_width - inputs))
    if layout.layout == ShardLayout.WIDTH:
        return dense.reshape(-1, layout.width)
    by_shard = dense.view(taps, layout.columns, layout.in_width, -1).transpose(0, 1)
    blocks = by_shard.reshape(layout.columns * layout.blocks, layout.block_rows, -1)
    return F.pad(blocks, (0, 0, 0, layout.block_height - layout.block_rows)).reshape(-1, layout.width)


class PreparedTensor(Tensor):
    """Weights or bias on a device, prepared for the weight layout `weight_layout`."""

    weight_layout: WeightLayout

    @property
    def pages(self) -> InterleavedStorage:
        storage = self.storage
        assert isinstance(storage, InterleavedStorage)
        return storage


def prepare_weights(tensor: Tensor, layout: WeightLayout, dtype: DataType, device: Device) -> PreparedTensor:
    """Return prepared weights in global memory: prepare host weights, or check that prepared weights fit the layout."""
    if tensor.is_on_device:
        return _check_prepared(tensor, layout, dtype, device, "weights")
    return _upload_matrix(lay_out_weights(tensor.host.float(), layout), layout, dtype, device, "weights")


def prepare_bias(tensor: Tensor, layout: WeightLayout, dtype: DataType, device: Device) -> PreparedTensor:
    """Return a prepared bias in global memory: prepare a host bias, or check that a prepared bias fits the layout."""
    if tensor.is_on_device:
        return _check_prepared(tensor, layout, dtype, device, "bias")
    if tensor.host.numel() != layout.out_channels:
        raise TesseraError(
            "the bias must have one number per output channel",
            got=tensor.shape,
            allowed=f"(1, 1, 1, {layout.out_channels})",
        )
    return _upload_matrix(build_bias_matrix(tensor.host.float(), layout.width), layout, dtype, device, "bias")


def _upload_matrix(
    matrix: torch.Tensor, layout: WeightLayout, dtype: DataType, device: Device, label: str
) -> PreparedTensor:
    shape = (1, 1, *matrix.shape)
    tensor = allocate_tensor(device, MatrixSpec.of(shape, dtype, Layout.TILE), shape, DRAM_MEMORY_CONFIG, label)
    write_values(tensor.storage, matrix)
    prepared = PreparedTensor(shape, dtype, Layout.TILE, allocation=tensor.allocation)
    prepared.weight_layout = layout
    return prepared


def _check_prepared(
    tensor: Tensor, layout: WeightLayout, dtype: DataType, device: Device, label: str
) -> PreparedTensor:
    if not isinstance(tensor, PreparedTensor):
        raise TesseraError(
            f"{label} on a device must be prepared by conv2d",
            got=tensor,
            do="pass host tensors, or those that return_weights_and_bias=True returned",
        )
    if tensor.device() is not device:
        raise TesseraError(f"{label} must be on the device of the call", got=tensor.device(), allowed=f"{device}")
    if tensor.weight_layout != layout or tensor.dtype is not dtype:
        raise TesseraError(
            f"{label} was prepared for a different convolution, sharding or format",
            got=f"{tensor.dtype}, {tensor.weight_layout}",
            allowed=f"{dtype}, {layout}",
            do="pass host tensors",
        )
    return tensor


class ConvOperands:
    """The weights and bias of a `conv2d` call, prepared on first use for every weight layout."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: DataType, device: Device) -> None:
        self._weight, self._bias, self._dtype, self._device = weight, bias, dtype, device
        self._ready: dict[WeightLayout, tuple[PreparedTensor, PreparedTensor | None]] = {}

    def get_prepared(self, layout: WeightLayout) -> tuple[PreparedTensor, PreparedTensor | None]:
        """Return the weights and bias prepared for a layout."""
        if layout not in self._ready:
            weights = prepare_weights(self._weight, layout, self._dtype, self._device)
            self._ready[layout] = weights, None
            if self._bias is not None:
                self._ready[layout] = weights, prepare_bias(self._bias, layout, self._dtype, self._device)
        return self._ready[layout]

    def get_pages(self, layout: WeightLayout) -> tuple[InterleavedStorage, InterleavedStorage | None]:
        """Return the storages of the weights and bias prepared for a layout."""
        weights, bias = self.get_prepared(layout)
        return weights.pages, None if bias is None else bias.pages

    def free(self, *, except_for: WeightLayout | None = None) -> None:
        """Free the tensors that were prepared in this call, except those for the layout `except_for`."""
        for layout, tensors in self._ready.items():
            for tensor in tensors if layout != except_for else ():
                if tensor is not None and tensor is not self._weight and tensor is not self._bias:
                    deallocate(tensor)

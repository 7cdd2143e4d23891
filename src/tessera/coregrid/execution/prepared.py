"""Weights and bias as a convolution reads them from global memory; they may be kept and passed again."""

from __future__ import annotations

import torch

from tessera.coregrid.device.device import Device
from tessera.coregrid.device.memory_config import DRAM_MEMORY_CONFIG
from tessera.coregrid.device.storage import Interleaved, Matrix, fill
from tessera.coregrid.device.tensors import Tensor, deallocate, empty
from tessera.coregrid.execution.layouts import WeightLayout, bias_matrix, prepared_weights
from tessera.coregrid.formats import DataType, Layout
from tessera.errors import TesseraError


class PreparedTensor(Tensor):
    """Weights or a bias on a device, laid out for convolutions that read them so (`made_for`)."""

    made_for: WeightLayout

    @property
    def pages(self) -> Interleaved:
        storage = self.storage
        assert isinstance(storage, Interleaved)
        return storage


def ready_weights(given: Tensor, layout: WeightLayout, dtype: DataType, device: Device) -> PreparedTensor:
    """The weights in global memory as a plan needs them: laid out and rounded now, or passed as they were before."""
    if given.is_on_device:
        return _checked(given, layout, dtype, device, "weights")
    return _placed(prepared_weights(given.host.float(), layout), layout, dtype, device, "weights")


def ready_bias(given: Tensor, layout: WeightLayout, dtype: DataType, device: Device) -> PreparedTensor:
    """The bias likewise: a tile's height of rows."""
    if given.is_on_device:
        return _checked(given, layout, dtype, device, "bias")
    if given.host.numel() != layout.out_channels:
        raise TesseraError(
            "a bias has a number for every output channel", got=given.shape, allowed=f"(1, 1, 1, {layout.out_channels})"
        )
    return _placed(bias_matrix(given.host.float(), layout.width), layout, dtype, device, "bias")


def _placed(matrix: torch.Tensor, layout: WeightLayout, dtype: DataType, device: Device, what: str) -> PreparedTensor:
    shape = (1, 1, *matrix.shape)
    found = empty(device, Matrix.of(shape, dtype, Layout.TILE), shape, DRAM_MEMORY_CONFIG, what)
    fill(found.storage, matrix)
    prepared = PreparedTensor(shape, dtype, Layout.TILE, placed=found.placed)
    prepared.made_for = layout
    return prepared


def _checked(given: Tensor, layout: WeightLayout, dtype: DataType, device: Device, what: str) -> PreparedTensor:
    if not isinstance(given, PreparedTensor):
        raise TesseraError(
            f"{what} on a device are as conv2d prepared them",
            got=given,
            do="pass them on the host, or those of return_weights_and_bias=True",
        )
    if given.device() is not device:
        raise TesseraError(f"the {what} are on another device", got=given.device())
    if given.made_for != layout or given.dtype is not dtype:
        raise TesseraError(
            f"the {what} were prepared for another convolution or another sharding",
            got=f"{given.dtype}, {given.made_for}",
            allowed=f"{dtype}, {layout}",
            do="pass them on the host",
        )
    return given


class Operands:
    """The weights and the bias of a call, prepared once for every way in which its programs read them."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: DataType, device: Device) -> None:
        self._weight, self._bias, self._dtype, self._device = weight, bias, dtype, device
        self._ready: dict[WeightLayout, tuple[PreparedTensor, PreparedTensor | None]] = {}

    def of(self, layout: WeightLayout) -> tuple[PreparedTensor, PreparedTensor | None]:
        """Weights and bias in global memory, as a program reads them."""
        if layout not in self._ready:
            weights = ready_weights(self._weight, layout, self._dtype, self._device)
            self._ready[layout] = weights, None
            if self._bias is not None:
                self._ready[layout] = weights, ready_bias(self._bias, layout, self._dtype, self._device)
        return self._ready[layout]

    def pages(self, layout: WeightLayout) -> tuple[Interleaved, Interleaved | None]:
        """Where they lie."""
        weights, bias = self.of(layout)
        return weights.pages, None if bias is None else bias.pages

    def free(self, *, but: WeightLayout | None = None) -> None:
        """Free what was prepared for this call, except for one layout's."""
        for layout, tensors in self._ready.items():
            for tensor in tensors:
                if layout != but and tensor is not None and tensor is not self._weight and tensor is not self._bias:
                    deallocate(tensor)

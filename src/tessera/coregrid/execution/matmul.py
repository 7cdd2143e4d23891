"""Numerical model of a core's matrix engine: rounding by fidelity, registers and packer.

One pass multiplies five mantissa bits of the weights by seven mantissa bits of the activations. LoFi makes one pass,
HiFi4 all four passes. Products accumulate in the destination registers in 16 bits (rounded after every tile) or 32
bits. Between inner blocks, the partial sums are stored in the core's memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tessera.coregrid.config import ComputeConfig, MathFidelity
from tessera.coregrid.device.arena import BufferMatrix
from tessera.coregrid.formats import TILE_SIZE, DataType, float32

WEIGHT_BITS_PER_PASS, ACTIVATION_BITS_PER_PASS = 5, 7  # mantissa bits per pass, including the leading one


def keep_leading_bits(values: Tensor, bits: int) -> Tensor:
    """Truncate values to the leading bits of their mantissas.

    >>> keep_leading_bits(torch.tensor([1.99, -1.99]), 5)
    tensor([ 1.9375, -1.9375])
    """
    return (values.view(torch.int32) & -(1 << 24 - bits)).view(torch.float32)


def multiply_in_passes(activations: Tensor, weights: Tensor, fidelity: MathFidelity) -> Tensor:
    """Multiply matrices in the number of passes of the fidelity."""
    if fidelity is MathFidelity.HiFi4:
        return activations @ weights
    high = keep_leading_bits(activations, ACTIVATION_BITS_PER_PASS)
    if fidelity is MathFidelity.LoFi:
        return high @ keep_leading_bits(weights, WEIGHT_BITS_PER_PASS)
    product = high @ weights
    if fidelity is MathFidelity.HiFi3:
        product += (activations - high) @ keep_leading_bits(weights, WEIGHT_BITS_PER_PASS)
    return product


@dataclass(frozen=True, slots=True)
class MatrixEngine:
    """Accumulation of partial sums for an output format. A float32 output is computed entirely in float32."""

    compute: ComputeConfig
    dtype: DataType

    @property
    def is_float32(self) -> bool:
        return self.dtype is float32

    def accumulate(self, sums: BufferMatrix, activations: Tensor, weights: Tensor, *, first: bool) -> None:
        """Multiply activation blocks by a weight block (float32 tensors), and add the products to the partial sums."""
        if self.is_float32:
            product = activations @ weights
            sums.store_values(product if first else product.add_(sums.load_values()))
            return
        fidelity, packed = self.compute.math_fidelity, self.compute.packer_l1_acc and not first
        waiting = None if first else sums.load_values()
        begin = None if packed else waiting  # registers start with the sums unless the packer accumulates
        if self.compute.fp32_dest_acc_en:
            product = multiply_in_passes(activations, weights, fidelity)
            product = product if begin is None else product.add_(begin)
        else:
            product = self._accumulate_16_bits(begin, activations, weights, fidelity)
        if packed:
            assert waiting is not None
            product = product + waiting
        sums.store_values(product)

    def multiply(self, activations: Tensor, weights: Tensor) -> Tensor:
        """Multiply whole matrices, without partial sums in memory; the product is not yet rounded to the format."""
        fidelity = self.compute.math_fidelity
        if self.is_float32:
            return activations @ weights
        if self.compute.fp32_dest_acc_en:
            return multiply_in_passes(activations, weights, fidelity)
        return self._accumulate_16_bits(None, activations, weights, fidelity)

    def _accumulate_16_bits(
        self, begin: Tensor | None, activations: Tensor, weights: Tensor, fidelity: MathFidelity
    ) -> Tensor:
        """Add the products tile by tile, and round the sums to bfloat16 after each tile, as 16-bit registers do."""
        registers = None if begin is None else begin.bfloat16()
        for start in range(0, weights.shape[-2], TILE_SIZE):
            part = multiply_in_passes(
                activations[..., start : start + TILE_SIZE], weights[..., start : start + TILE_SIZE, :], fidelity
            )
            registers = part.bfloat16() if registers is None else torch.add(part, registers).bfloat16()
        assert registers is not None
        return registers.float()

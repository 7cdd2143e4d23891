"""The arithmetic of a core's matrix engine: what its fidelity, its registers and its packer do to the numbers.

The weights go to one source register, which takes five bits of a mantissa a pass, the activations to the other, which
takes seven. A pass multiplies a part of one by a part of the other: LoFi makes the first of four, HiFi4 all. Products
are added up in the destination registers, in 16 bits (rounded after every tile) or in 32; between inner blocks the
sums wait in the core's memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tessera.coregrid.config import ComputeConfig, MathFidelity
from tessera.coregrid.device.slab import Slab
from tessera.coregrid.formats import TILE, DataType, float32

WEIGHT_BITS, ACTIVATION_BITS = 5, 7  # of a mantissa with its leading one, a pass


def leading_bits(values: Tensor, bits: int) -> Tensor:
    """Numbers cut to the leading bits of their mantissas.

    >>> leading_bits(torch.tensor([1.99, -1.99]), 5)
    tensor([ 1.9375, -1.9375])
    """
    return (values.view(torch.int32) & -(1 << 24 - bits)).view(torch.float32)


def product(activations: Tensor, weights: Tensor, fidelity: MathFidelity) -> Tensor:
    """A product of matrices in as many passes as the fidelity makes."""
    if fidelity is MathFidelity.HiFi4:
        return activations @ weights
    high = leading_bits(activations, ACTIVATION_BITS)
    if fidelity is MathFidelity.LoFi:
        return high @ leading_bits(weights, WEIGHT_BITS)
    found = high @ weights
    if fidelity is MathFidelity.HiFi3:
        found += (activations - high) @ leading_bits(weights, WEIGHT_BITS)
    return found


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How partial sums are made for an output of a format. A float32 output is computed in float32 throughout."""

    compute: ComputeConfig
    dtype: DataType

    @property
    def is_full(self) -> bool:
        return self.dtype is float32

    def accumulate(self, sums: Slab, activations: Tensor, weights: Tensor, *, first: bool) -> None:
        """Multiply blocks of activations by a block of weights, all in float32, and add them to the sums."""
        if self.is_full:
            found = activations @ weights
            sums.store(found if first else found.add_(sums.load()))
            return
        fidelity, packed = self.compute.math_fidelity, self.compute.packer_l1_acc and not first
        waiting = None if first else sums.load()
        begin = None if packed else waiting  # the packer adds afterwards, the registers begin with the sums
        if self.compute.fp32_dest_acc_en:
            found = product(activations, weights, fidelity)
            found = found if begin is None else found.add_(begin)
        else:
            found = self._in_16_bits(begin, activations, weights, fidelity)
        if packed:
            assert waiting is not None
            found = found + waiting
        sums.store(found)

    def _in_16_bits(self, begin: Tensor | None, activations: Tensor, weights: Tensor, fidelity: MathFidelity) -> Tensor:
        """The sum of the products tile by tile, rounded to bfloat16 after each, as the registers hold it."""
        registers = None if begin is None else begin.bfloat16()
        for start in range(0, weights.shape[0], TILE):
            part = product(activations[..., start : start + TILE], weights[start : start + TILE], fidelity)
            registers = part.bfloat16() if registers is None else torch.add(part, registers).bfloat16()
        assert registers is not None
        return registers.float()

"""A pass on the meta device, to find the execution order of a network's modules and their FLOPs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tessera.errors import TesseraError, get_first_line
from tessera.phased.paging.network_copy import copy_network
from tessera.phased.paging.weight_table import WeightSlot


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """Units in the order of their first use, and the FLOPs of every unit, by number."""

    order: tuple[int, ...]
    flops: tuple[int, ...]


class _MetaWeights:
    """Provides meta tensors as weights; FLOPs after a weight was read are counted for the unit of this weight."""

    current: object = object()  # the phase of no weight, so that every read calls `fetch`

    def __init__(self, units: int) -> None:
        from torch.utils.flop_counter import FlopCounterMode

        self.counter = FlopCounterMode(display=False)
        self.order: dict[int, None] = {}
        self.flops = [0] * units
        self._unit, self._counted = 0, 0

    def fetch(self, slot: WeightSlot) -> Tensor:
        self.order.setdefault(slot.unit)
        self.count_flops()
        self._unit = slot.unit
        assert slot.tensor is not None
        return slot.tensor

    def count_flops(self) -> None:
        total = self.counter.get_total_flops()
        self.flops[self._unit] += total - self._counted
        self._counted = total


def rehearse(model: nn.Module, shapes: Sequence[Sequence[int]]) -> Rehearsal:
    """Run a copy of a network on the meta device, for inputs of these shapes."""
    network = copy_network(model)
    weights = _MetaWeights(len(network.units))
    for slot in network.slots.values():
        slot.set_tensor(torch.empty(slot.shape, dtype=slot.dtype, device="meta"))
        slot.owner = weights
    for module in network.model.modules():
        for name, value in list(module._buffers.items()):
            if type(value) is Tensor:
                module._buffers[name] = value.to("meta")
    dtypes = (slot.dtype for slot in network.slots.values() if slot.dtype.is_floating_point)
    dtype = next(dtypes, torch.get_default_dtype())
    inputs = [torch.empty(tuple(shape), dtype=dtype, device="meta") for shape in shapes]
    name = type(model).__name__
    try:
        with torch.no_grad(), weights.counter:
            network.model(*inputs)
            weights.count_flops()
    except Exception as error:
        reason = get_first_line(error)
        if isinstance(error, NotImplementedError) or "meta" in reason:
            raise TesseraError(
                f"cannot count the FLOPs of {name}, because it reads values of tensors: {reason}",
                do="create the PhasedModel without `input_shape`",
            ) from error
        sizes = ", ".join("x".join(map(str, shape)) for shape in shapes)
        raise TesseraError(f"{name} does not run on inputs of shape {sizes}: {reason}") from error
    return Rehearsal(order=tuple(weights.order), flops=tuple(weights.flops))

"""Cut large linear and embedding layers into parts of rows, so that a budget smaller than the layer suffices.

A part is a unit of its own. When the network passes the weight of such a layer to `F.linear` or `F.embedding`, the
result is computed part by part. Other functions get the whole weight, beyond the budget. A layer is cut only if the
budget does not hold it: a product of fewer rows may be summed in another order, and differ in the last bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from tessera.phased.paging.network_copy import NetworkCopy, WeightUnit
from tessera.phased.paging.weight_table import PartsReader, WeightSlot
from tessera.phased.store.weights_file import StoredTensor

MIN_PART_BYTES = 256 << 10  # smaller parts take longer to start than to load
SHRINKING = 0.75  # ratio of the sizes of parts that are tried one after the other
CUT_LAYERS = (nn.Linear, nn.Embedding)


@dataclass(frozen=True, slots=True, kw_only=True)
class CutNetwork:
    """A network whose large layers are cut: `parts` has the numbers of the parts of every original unit."""

    network: NetworkCopy
    tensors: Mapping[str, StoredTensor]
    parts: tuple[tuple[int, ...], ...]

    def map_order(self, order: Sequence[int] | None) -> list[int] | None:
        """Return an order of the original units as an order of the parts."""
        return None if order is None else [part for unit in order for part in self.parts[unit]]

    def map_flops(self, flops: Sequence[int] | None) -> list[int] | None:
        """Divide the FLOPs of the original units among their parts."""
        if flops is None:
            return None
        return [count // len(parts) for count, parts in zip(flops, self.parts, strict=True) for _ in parts]

    def install(self, whole: Mapping[str, WeightSlot]) -> None:
        """Number the units, and give the parts of the cut weights to the slots of the whole weights."""
        parts: dict[str, list[tuple[int, int, WeightSlot]]] = {}
        for number, unit in enumerate(self.network.units):
            for name in unit.weights:
                slot = self.network.slots[name]
                slot.unit = number
                if unit.rows is not None:
                    parts.setdefault(name.rpartition("[")[0], []).append((*unit.rows, slot))
        for name, own in parts.items():
            whole[name].owner = PartsReader(own)


def cut_layers(network: NetworkCopy, tensors: Mapping[str, StoredTensor], limit: int) -> CutNetwork:
    """Cut the linear and embedding layers with more than `limit` stored bytes into parts of at most `limit` bytes."""
    units: list[WeightUnit] = []
    slots, table = dict(network.slots), dict(tensors)
    numbers: list[tuple[int, ...]] = []
    for unit in network.units:
        rows, nbytes = _count_rows(network, tensors, unit), sum(tensors[name].nbytes for name in unit.weights)
        if rows < 2 or nbytes <= limit:
            numbers.append((len(units),))
            units.append(unit)
            continue
        count = -(-rows // max(1, limit * rows // nbytes))
        bounds = [rows * number // count for number in range(count + 1)]
        numbers.append(tuple(range(len(units), len(units) + count)))
        for start, stop in itertools.pairwise(bounds):
            names = [f"{name}[{start}:{stop}]" for name in unit.weights]
            for whole, name in zip(unit.weights, names, strict=True):
                slots[name], table[name] = _cut_weight(slots[whole], table[whole], name, start, stop)
            units.append(WeightUnit(module=f"{unit.module}.[{start}:{stop}]", weights=tuple(names), rows=(start, stop)))
        for whole in unit.weights:
            del slots[whole], table[whole]
    return CutNetwork(network=replace(network, units=tuple(units), slots=slots), tensors=table, parts=tuple(numbers))


def choose_cut(
    network: NetworkCopy, tensors: Mapping[str, StoredTensor], fits: Callable[[CutNetwork, int], bool]
) -> CutNetwork:
    """Return the network with the largest parts that `fits` accepts for prefetching, or else without prefetching.

    `fits(cut, count)` says whether `count` consecutive units fit into the budget. A network that fits is not cut.
    """
    uncut = CutNetwork(network=network, tensors=tensors, parts=tuple((number,) for number in range(len(network.units))))
    sizes = [
        sum(tensors[name].nbytes for name in unit.weights)
        for unit in network.units
        if _count_rows(network, tensors, unit) > 1
    ]
    if fits(uncut, 1) or max(sizes, default=0) <= MIN_PART_BYTES:
        return uncut
    limit, alone = max(sizes) // 2, None
    while True:
        limit = max(limit, MIN_PART_BYTES)
        cut = cut_layers(network, tensors, limit)
        if fits(cut, 2):
            return cut
        if alone is None and fits(cut, 1):
            alone = cut
        if limit == MIN_PART_BYTES:
            return alone or cut
        limit = int(limit * SHRINKING)


def _count_rows(network: NetworkCopy, tensors: Mapping[str, StoredTensor], unit: WeightUnit) -> int:
    """Return the number of rows of a layer that can be cut; 0 if it cannot."""
    rows = {network.slots[name].shape[:1] for name in unit.weights}
    if len(rows) != 1 or not (size := rows.pop()):
        return 0
    for weight in unit.weights:
        slot, tensor = network.slots[weight], tensors[weight]
        if slot.strides is not None or tensor.shape != slot.shape or not slot.is_parameter:
            return 0
        if tensor.encoding or tensor.nbytes != tensor.dtype.itemsize * torch.Size(slot.shape).numel():
            return 0
        for name in slot.names:
            if not _is_cut_layer(network.model, name.rpartition(".")[0], unit.module if name == weight else None):
                return 0
    return size[0]


def _is_cut_layer(model: nn.Module, owner: str, module: str | None) -> bool:
    """Return whether a module is a linear or embedding layer with torch's `forward`, and (if given) a unit itself."""
    layer = model.get_submodule(owner)
    if not isinstance(layer, CUT_LAYERS) or getattr(layer, "max_norm", None) is not None:
        return False
    standard = any(type(layer).forward is kind.forward for kind in CUT_LAYERS)
    return standard and "forward" not in vars(layer) and module in (None, owner)


def _cut_weight(
    slot: WeightSlot, tensor: StoredTensor, name: str, start: int, stop: int
) -> tuple[WeightSlot, StoredTensor]:
    shape = (stop - start, *slot.shape[1:])
    row = tensor.nbytes // slot.shape[0]
    part = WeightSlot((name,), nn.Parameter(torch.empty(shape, dtype=slot.dtype, device="meta"), requires_grad=False))
    part.module = slot.module
    place = replace(tensor, name=name, shape=shape, start=tensor.start + start * row, stop=tensor.start + stop * row)
    return part, place

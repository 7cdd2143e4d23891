"""Group the units of a network into phases: phase boundaries, layout in the store, and division of the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from tessera.errors import TesseraError, suggest_similar
from tessera.phased.memory.budget import ALIGNMENT_BYTES, PhaseNeed, choose_resident, compute_max_phase_bytes
from tessera.phased.paging.cutting import MIN_PART_BYTES, CutNetwork, choose_cut, cut_layers
from tessera.phased.paging.network_copy import NetworkCopy, WeightUnit
from tessera.phased.paging.phase_starts import TARGET_PHASE_BYTES, UnitCost, choose_phase_starts, find_phase_starts
from tessera.phased.paging.residents import LoadComputeTimes, choose_by_benefit
from tessera.phased.paging.weight_table import WeightSlot
from tessera.phased.plan import MIN_PHASES, Phase, PhaseTable, PhasingRequest, get_host_balance
from tessera.phased.store.encoding import ENCODINGS, is_encodable
from tessera.phased.store.layout import PhaseLayout, lay_out_phase
from tessera.phased.store.weights_file import DTYPE_CODES, SAFETENSORS_DTYPES, StoredTensor
from tessera.phased.store.weights_writer import WeightEntry, plan_file
from tessera.phased.traits import WEIGHT_DTYPES
from tessera.report.figures import format_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryShares:
    """The division of the budget: bytes of the stream area, of the conversion area, and of resident phases.

    `pinned` is the size of weights that always stay in memory. `regions`: phases that may be mapped at the same time
    (mapped store only).
    """

    stream: int
    converted: int
    resident: tuple[int, ...]
    resident_bytes: int
    pinned: int
    regions: int

    @property
    def nbytes(self) -> int:
        return self.stream + self.converted + self.resident_bytes + self.pinned


@dataclass(frozen=True, slots=True, kw_only=True)
class PagingPlan(PhaseTable):
    """The phases of a network in execution order, their layouts, and the division of the working memory."""

    groups: tuple[tuple[int, ...], ...]
    layouts: tuple[PhaseLayout, ...]
    shares: MemoryShares

    def permits_more(self, budget: int) -> bool:
        """Return whether a budget permits more resident phases than this plan has."""
        streamed = [layout.nbytes for index, layout in enumerate(self.layouts) if index not in self.shares.resident]
        return bool(streamed) and budget >= self.shares.nbytes + min(streamed)


def build_entries(network: NetworkCopy, names: Sequence[str], dtype: str | None) -> list[WeightEntry]:
    """Return the file entries of the named weights; `dtype` applies to floating-point weights only."""
    return [build_entry(name, network.slots[name].dtype, network.slots[name].shape, dtype) for name in names]


def build_entry(name: str, kind: torch.dtype, shape: tuple[int, ...], dtype: str | None) -> WeightEntry:
    """Return the file entry of a weight of dtype `kind`; `dtype` applies to floating-point weights only."""
    if dtype is not None and dtype not in WEIGHT_DTYPES:
        raise TesseraError("unknown dtype for stored weights", got=dtype, allowed=WEIGHT_DTYPES)
    if dtype in ENCODINGS:
        encoding = dtype if is_encodable(kind, shape) and kind in DTYPE_CODES else ""
        return WeightEntry(name=name, dtype=kind, shape=shape, encoding=encoding)
    stored = getattr(torch, dtype) if dtype is not None and kind.is_floating_point else kind
    if stored not in DTYPE_CODES:
        raise TesseraError(f"{name} has a dtype that cannot be stored", got=str(stored), allowed=map(str, DTYPE_CODES))
    return WeightEntry(name=name, dtype=stored, shape=shape)


def match_tensors(
    network: NetworkCopy,
    tensors: Mapping[str, StoredTensor],
    dtype: str | None,
    unsupported: Mapping[str, str] | None = None,
) -> dict[str, StoredTensor]:
    """Return the stored tensor of every weight, or raise an error that names weights that do not match.

    `unsupported` maps names of tensors to dtypes that torch does not have; using such a tensor is an error.
    """
    matches: dict[str, StoredTensor] = {}
    missing = []
    for name, slot in network.slots.items():
        tensor = next((tensors[alias] for alias in slot.names if alias in tensors), None)
        if tensor is None:
            if code := next((unsupported[alias] for alias in slot.names if alias in (unsupported or {})), ""):  # type: ignore[index]
                raise TesseraError(f"{name} has a dtype that cannot be streamed", got=code, allowed=SAFETENSORS_DTYPES)
            missing.append(name)
            continue
        if tensor.shape != slot.shape:
            raise TesseraError(
                f"the file does not match the model: the shape of {name} differs",
                got=tensor.shape,
                allowed=str(slot.shape),
            )
        given = dtype is not None and dtype not in ENCODINGS and slot.dtype.is_floating_point
        wanted = getattr(torch, str(dtype), None) if given else slot.dtype
        convertible = dtype is None and tensor.dtype.is_floating_point and slot.dtype.is_floating_point
        if tensor.dtype != wanted and not convertible:
            raise TesseraError(
                f"the file does not match the model: the dtype of {name} differs",
                got=str(tensor.dtype),
                allowed=str(wanted),
                do="convert the model or the file",
            )
        if dtype in ENCODINGS and is_encodable(slot.dtype, slot.shape) and tensor.encoding != dtype:
            raise TesseraError(
                f"the file does not match the model: {name} is not stored as {dtype}",
                got=tensor.encoding or str(tensor.dtype),
                do=f"leave `dtype` out, or write another file: tessera phases --rewrite FILE --dtype {dtype}",
            )
        matches[name] = tensor
    if missing:
        more = f" and {len(missing) - 1} others are" if len(missing) > 1 else " is"
        raise TesseraError(
            f"the file does not match the model: {missing[0]}{more} missing", do=suggest_similar(missing[0], tensors)
        )
    return matches


def needs_conversion(slot: WeightSlot, tensor: StoredTensor) -> bool:
    """Return whether a weight is copied after loading, because its dtype, memory format or alignment must change."""
    return (
        bool(tensor.encoding)
        or tensor.dtype != slot.dtype
        or slot.strides is not None
        or tensor.start % tensor.dtype.itemsize != 0
    )


def get_converted_bytes(slot: WeightSlot) -> int:
    """Return the aligned size in bytes of a converted weight."""
    return slot.nbytes + -slot.nbytes % ALIGNMENT_BYTES


def plan_phases(
    network: NetworkCopy,
    tensors: Mapping[str, StoredTensor],
    request: PhasingRequest,
    *,
    order: Sequence[int] | None = None,
    flops: Sequence[int] | None = None,
    times: Sequence[LoadComputeTimes] | None = None,
) -> PagingPlan:
    """Group the units of a network into phases, in execution order, and divide the budget among the phases.

    `times` are the measured times of the same phases, by which resident phases are chosen.
    """
    order = list(range(len(network.units))) if order is None else list(order)
    order += [unit for unit in range(len(network.units)) if unit not in set(order)]
    units = [network.units[number] for number in order]
    alone = [_measure_units(network, tensors, [unit], request) for unit in units]
    if request.starts is not None:
        starts = find_phase_starts([unit.module for unit in units], request.starts)
        starts = sorted({*starts, *(number for number, unit in enumerate(units) if unit.rows is not None)})
    else:
        largest = max(need.buffer for need in alone)
        widening = max((need.wide / need.buffer for need in alone if need.buffer), default=0.0)
        limit = compute_max_phase_bytes(
            request.schedule,
            request.devices,
            max(1, request.budget - network.pinned_bytes),
            largest_unit=largest,
            widening=widening,
        )
        target = min(TARGET_PHASE_BYTES, sum(need.buffer for need in alone) // MIN_PHASES)
        if request.fine:
            limit = 0
        costs = [
            UnitCost(bytes=need.buffer, flops=None if flops is None else flops[order[number]])
            for number, need in enumerate(alone)
        ]
        balance = 1.0 if flops is None else get_host_balance(request.store, request.cold, "float32", request.cores)
        most = target if flops is None else max(largest, target)
        starts = choose_phase_starts(costs, min(limit, most), balance)
    spans = list(zip(starts, [*starts[1:], len(units)], strict=True))
    groups = [units[start:stop] for start, stop in spans]
    needs = [_measure_units(network, tensors, group, request) for group in groups]
    if request.starts is None and not request.fine and not _fits(needs, request, network.pinned_bytes):
        return plan_phases(network, tensors, replace(request, fine=True), order=order, flops=flops, times=times)
    measured = times if times is not None and len(times) == len(needs) else None
    shares = divide_memory(needs, request, network.pinned_bytes, measured)
    layouts = [
        lay_out_phase([tensors[name] for unit in group for name in unit.weights], mapped=request.store.mapped)
        for group in groups
    ]
    numbers = [tuple(order[start:stop]) for start, stop in spans]
    phases = tuple(
        _build_phase(index, group, layout, network, index in shares.resident, _sum_flops(flops, numbers[index]))
        for index, (group, layout) in enumerate(zip(groups, layouts, strict=True))
    )
    return PagingPlan(phases=phases, groups=tuple(numbers), layouts=tuple(layouts), shares=shares)


def _sum_flops(flops: Sequence[int] | None, units: Sequence[int]) -> int | None:
    return None if flops is None else sum(flops[unit] for unit in units)


def plan_unit_file(network: NetworkCopy, dtype: str | None) -> dict[str, StoredTensor]:
    """Return the layout of a new weights file; every unit is page-aligned."""
    return plan_file([build_entries(network, unit.weights, dtype) for unit in network.units])


def compute_network_min_budget(
    network: NetworkCopy, tensors: Mapping[str, StoredTensor], request: PhasingRequest, *, prefetch: bool = True
) -> int:
    """Return the minimum budget in bytes for a schedule: every unit is a phase, and large layers are cut.

    With `prefetch`, it holds the consecutive phases that the schedule needs for loading ahead.
    """
    if not request.schedule.holds_all_weights:
        cut = cut_layers(network, tensors, MIN_PART_BYTES)
        network, tensors = cut.network, cut.tensors
    needs = [_measure_units(network, tensors, [unit], request) for unit in network.units]
    if request.schedule.holds_all_weights:
        return sum(need.resident for need in needs) + network.pinned_bytes
    least = request.schedule.limit_buffers(request.schedule.count_buffers(request.devices)[0], len(needs))
    least = least if prefetch else 1
    return compute_peak_buffer_bytes(needs, least) + max(need.wide for need in needs) + network.pinned_bytes


def cut_to_budget(
    network: NetworkCopy, tensors: Mapping[str, StoredTensor], request: PhasingRequest, *, cuts: bool = True
) -> CutNetwork:
    """Cut the large layers of a network if the budget of the request does not hold them."""

    def fits(cut: CutNetwork, count: int) -> bool:
        if request.schedule.holds_all_weights or not cuts:
            return True
        needs = [_measure_units(cut.network, cut.tensors, [unit], request) for unit in cut.network.units]
        wide = max(need.wide for need in needs)
        return compute_peak_buffer_bytes(needs, count) + wide + network.pinned_bytes <= request.budget

    return choose_cut(network, tensors, fits)


def compute_peak_buffer_bytes(needs: Sequence[PhaseNeed], count: int) -> int:
    """Return the largest total buffer size of `count` consecutive phases, cyclically.

    >>> needs = [PhaseNeed(name="", units=(), buffer=size, wide=0) for size in (4, 1, 3)]
    >>> compute_peak_buffer_bytes(needs, 1), compute_peak_buffer_bytes(needs, 2), compute_peak_buffer_bytes(needs, 5)
    (4, 7, 8)
    """
    count = min(count, len(needs))
    sizes = [need.buffer for need in needs]
    return max(sum(sizes[(start + step) % len(sizes)] for step in range(count)) for start in range(len(sizes)))


def _fits(needs: Sequence[PhaseNeed], request: PhasingRequest, pinned: int) -> bool:
    """Return whether the budget holds the consecutive phases that the schedule needs for prefetching."""
    if request.schedule.holds_all_weights:
        return True
    least = request.schedule.count_buffers(request.devices)[0]
    return compute_peak_buffer_bytes(needs, least) + max(need.wide for need in needs) + pinned <= request.budget


def divide_memory(
    needs: Sequence[PhaseNeed], request: PhasingRequest, pinned: int, times: Sequence[LoadComputeTimes] | None = None
) -> MemoryShares:
    """Divide the budget among phases, or raise an error that names the phase that is too large.

    Memory for the largest phase suffices, without prefetching. Prefetching needs memory for two consecutive phases.
    """
    schedule, budget = request.schedule, request.budget - pinned
    keep = request.keep and schedule.keeps_phases
    everything = sum(need.resident for need in needs)
    staging = max(
        (need.buffer for need in needs if need.wide or need.decoded), default=0
    )  # resident phases are converted from here
    if schedule.holds_all_weights or (keep and everything + staging <= budget):
        return MemoryShares(
            stream=staging,
            converted=0,
            resident=tuple(range(len(needs))),
            resident_bytes=everything,
            pinned=pinned,
            regions=1,
        )
    least, most = (schedule.limit_buffers(count, len(needs)) for count in schedule.count_buffers(request.devices))
    converted = max(need.wide for need in needs)
    windows = {count: compute_peak_buffer_bytes(needs, count) for count in range(1, most + 1)}
    fitting = [count for count, size in windows.items() if size + converted <= budget]
    if not fitting:
        raise _build_budget_error(needs, windows[1], windows[least], converted, pinned, request.budget)
    free = budget - windows[fitting[-1]] - converted
    if not keep:
        resident: tuple[int, ...] = ()
    elif times is None:
        resident = choose_resident(needs, free)
    else:
        resident = choose_by_benefit(needs, times, free, fitting[-1])
    streamed = [need for index, need in enumerate(needs) if index not in resident]
    regions = min(fitting[-1], len(streamed))
    # Without the resident phases, other streamed phases become consecutive.
    stream = min(compute_peak_buffer_bytes(streamed, regions), windows[fitting[-1]])
    stream = max(stream, max(need.buffer for need in streamed), staging if resident else 0)
    return MemoryShares(
        stream=stream,
        converted=max(need.wide for need in streamed),
        resident=resident,
        resident_bytes=sum(needs[index].resident for index in resident),
        pinned=pinned,
        regions=regions,
    )


def _build_budget_error(
    needs: Sequence[PhaseNeed], alone: int, window: int, converted: int, pinned: int, budget: int
) -> TesseraError:
    index, need = max(enumerate(needs), key=lambda item: item[1].buffer + item[1].wide)
    parts = [f"{format_bytes(alone)} for the largest phase"]
    parts += [f"{format_bytes(converted)} for weights converted after loading"] if converted else []
    parts += [f"{format_bytes(pinned)} for weights that always stay in memory"] if pinned else []
    remedies = [f"raise the budget to {alone + converted + pinned} bytes or more"]
    if window > alone:
        remedies[0] += f" ({window + converted + pinned} to load ahead)"
    if len(need.units) > 1:
        remedies.append(f"begin phases at more of its modules: {', '.join(need.units[1:6])}")
    return TesseraError(
        f"phase {index} ({need.name or 'the network itself'}) does not fit into the budget: "
        f"the phases require {' and '.join(parts)}",
        got=format_bytes(budget),
        do=", or ".join(remedies),
    )


def _measure_units(
    network: NetworkCopy, tensors: Mapping[str, StoredTensor], units: Sequence[WeightUnit], request: PhasingRequest
) -> PhaseNeed:
    names = [name for unit in units for name in unit.weights]
    converted = [name for name in names if needs_conversion(network.slots[name], tensors[name])]
    # If one weight of a phase is converted, all weights of the phase are copied to the conversion area.
    wide = sum(get_converted_bytes(network.slots[name]) for name in names) if converted else 0
    encoded = any(tensors[name].encoding for name in names)  # decoded while it is loaded, beside the stored bytes
    return PhaseNeed(
        name=units[0].module,
        units=tuple(unit.module for unit in units),
        buffer=lay_out_phase([tensors[name] for name in names]).nbytes + (wide if encoded else 0),
        wide=0 if encoded else wide,
        decoded=wide if encoded else 0,
    )


def _build_phase(
    index: int,
    units: Sequence[WeightUnit],
    layout: PhaseLayout,
    network: NetworkCopy,
    resident: bool,
    flops: int | None,
) -> Phase:
    modules = tuple(unit.module for unit in units)
    names = tuple(name for unit in units for name in unit.weights)
    return Phase(
        index=index,
        name=modules[0] if len(modules) == 1 else f"{modules[0]} … {modules[-1]}",
        modules=modules,
        tensors=names,
        bytes=layout.stored_bytes,
        working_bytes=sum(network.slots[name].nbytes for name in names),
        flops=flops,
        resident=resident,
    )

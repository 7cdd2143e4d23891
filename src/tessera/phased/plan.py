"""Plan the phases of a model: sizes of its units, boundaries of its phases, and the division of the budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from tessera.machine.catalogue import load_host
from tessera.measure.environment import compute_host_fingerprint, describe_environment
from tessera.phased.memory.budget import MemoryDivision, PhaseNeed, compute_max_phase_bytes, divide_budget
from tessera.phased.memory.working import compute_wide_bytes
from tessera.phased.network.graph import Unit, count_unit_flops, get_input_dtype, split_units, trace_model
from tessera.phased.network.phase_starts import TARGET_PHASE_BYTES, UnitCost, choose_phase_starts, find_phase_starts
from tessera.phased.network.programs import PhasePart, split_parts
from tessera.phased.network.skeleton import Skeleton
from tessera.phased.network.stored_weights import build_entry, find_stored_tensors
from tessera.phased.store.layout import PhaseLayout, lay_out_phase
from tessera.phased.store.weights_file import PAGE_BYTES, StoredTensor, get_compute_dtype
from tessera.phased.store.weights_writer import WeightEntry, plan_file
from tessera.phased.traits import ScheduleTraits, WeightStoreTraits
from tessera.tabular import Tabular

MIN_PHASES = 8  # if the budget permits: small phases, because the first load of a pass overlaps with no computation
# FLOPs computed while one byte is loaded over a link; defaults for a host that is not calibrated.
DEFAULT_FLOPS_PER_BYTE = {"streaming": 50.0, "streaming_warm": 16.0, "copy": 16.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasingRequest:
    """Settings for splitting a model into phases: the schedule, the weight store and the budget.

    `areas` is how many phases may be widened at the same time. With `keep`, phases stay resident in the memory left by
    the buffers. `starts` names the modules at which phases begin, or the numbers of units; None to choose them by
    size, and by FLOPs if the `shapes` of the inputs are known. `cores` is the number of cores that compute. With
    `fine`, every unit is a phase.
    """

    schedule: ScheduleTraits
    store: WeightStoreTraits
    devices: int
    cores: int
    areas: int
    budget: int
    dtype: str | None = None
    keep: bool = True
    cold: bool = False
    starts: Sequence[str | int] | None = None
    shapes: Sequence[Sequence[int]] | None = None
    fine: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSize:
    """Bytes of a unit: in a separate buffer, and widened to its compute dtype (0 if it is not widened)."""

    buffer: int
    wide: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedModel:
    """A traced model split into phases: `groups` holds the units of each phase, `flops` the FLOPs if known."""

    skeleton: Skeleton
    graph: fx.Graph
    groups: tuple[tuple[Unit, ...], ...]
    flops: tuple[tuple[int, ...], ...] | None

    @property
    def parts(self) -> list[PhasePart]:
        return split_parts(self.skeleton, self.graph, self.groups)

    def list_weights(self, phase: int) -> list[str]:
        """Return the stored names of a phase's weights."""
        return list(dict.fromkeys(name for unit in self.groups[phase] for name in unit.weights))

    def list_entries(self, dtype: str | None) -> list[list[WeightEntry]]:
        """Return the tensors to write, phase by phase."""
        phases = range(len(self.groups))
        return [[build_entry(self.skeleton, name, dtype) for name in self.list_weights(phase)] for phase in phases]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Consecutive calls of a network, and the weights that they use.

    `modules` are its layers in the order of their calls, `tensors` the names of its weights. `bytes` is the size of the
    weights in the store, which one load moves; `working_bytes` is their size in working memory, which is larger if
    16-bit weights are widened. `flops` counts one pass of one batch of the input shape; None if the shape is unknown.
    `inputs` are activations from earlier phases, `outputs` are activations for later phases. A `resident` phase is
    loaded once and stays in working memory.
    """

    index: int
    name: str
    modules: tuple[str, ...]
    tensors: tuple[str, ...]
    bytes: int
    working_bytes: int
    flops: int | None
    resident: bool
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTable(Tabular):
    """The phases of a model as rows, for pandas and notebooks."""

    phases: tuple[Phase, ...]

    def to_rows(self) -> list[dict[str, Any]]:
        """Return one row per phase: name, layers, bytes, FLOPs, and whether the phase is resident."""
        columns = ("index", "name", "bytes", "working_bytes", "flops", "resident")
        return [
            {name: getattr(phase, name) for name in columns} | {"layers": len(phase.modules)} for phase in self.phases
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the phases as plain (JSON-compatible) values."""
        return {"phases": self.to_rows()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePlan(PhaseTable):
    """The plan of a model: its phases, the layout of each phase in the store, and the division of working memory."""

    layouts: tuple[PhaseLayout, ...]
    division: MemoryDivision

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The stored names of every phase's weights, in the order of its layout."""
        return tuple(phase.tensors for phase in self.phases)


def partition_model(
    skeleton: Skeleton, request: PhasingRequest, tensors: Mapping[str, StoredTensor] | None = None
) -> PartitionedModel:
    """Trace a model and split it into phases: at named modules, or by budget and balance of load and compute time.

    `tensors` are the tensors of an existing file; None if the file is written after the split.
    """
    graph = trace_model(skeleton)
    units = split_units(skeleton, graph)
    flops = None if request.shapes is None else count_unit_flops(skeleton, graph, units, request.shapes)
    if request.starts is not None:
        starts = find_phase_starts([unit.module for unit in units], request.starts)
    else:
        stored = plan_unit_file(skeleton, units, request.dtype) if tensors is None else tensors
        sizes = compute_max_unit_sizes(skeleton, units, stored, request.dtype)
        largest = max(size.buffer for size in sizes)
        widening = max((size.wide / size.buffer for size in sizes if size.buffer), default=0.0)
        limit = compute_max_phase_bytes(
            request.schedule,
            request.devices,
            request.budget,
            largest_unit=largest,
            widening=request.areas * widening,
        )
        target = min(TARGET_PHASE_BYTES, sum(size.buffer for size in sizes) // MIN_PHASES)
        costs = [
            UnitCost(bytes=size.buffer, flops=None if flops is None else flops[number])
            for number, size in enumerate(sizes)
        ]
        dtype = str(get_compute_dtype(get_input_dtype(skeleton))).removeprefix("torch.")
        # the balance only matters if FLOPs are known
        balance = 1.0 if flops is None else get_host_balance(request.store, request.cold, dtype, request.cores)
        starts = choose_phase_starts(costs, min(limit, max(largest, target)), balance)
    stops = [*starts[1:], len(units)]
    spans = list(zip(starts, stops, strict=True))
    return PartitionedModel(
        skeleton=skeleton,
        graph=graph,
        groups=tuple(tuple(units[start:stop]) for start, stop in spans),
        flops=None if flops is None else tuple(tuple(flops[start:stop]) for start, stop in spans),
    )


def get_host_balance(store: WeightStoreTraits, cold: bool, dtype: str, cores: int) -> float:
    """Return the FLOPs that `cores` cores compute while one byte is loaded, from this host's calibration if available.

    Mapped weights use the rate of reads from the page cache, because mapping is not slower than such reads.
    """
    link = store.get_link(cold=cold) or "streaming_warm"
    host = load_host(compute_host_fingerprint(describe_environment()))
    if host is None or link not in host.links or dtype not in host.flops:
        return DEFAULT_FLOPS_PER_BYTE[link]
    return host.get_rate(dtype, workers=cores) / host.get_bandwidth(link)


def compute_max_unit_sizes(
    skeleton: Skeleton, units: Sequence[Unit], tensors: Mapping[str, StoredTensor], dtype: str | None
) -> list[UnitSize]:
    """Return upper bounds for the sizes of units in a file: units in one phase never need more than their sum."""
    sizes = []
    earlier: set[str] = set()
    for unit in units:
        stored = find_stored_tensors(skeleton, tensors, unit.weights, dtype)
        # A weight of an earlier unit may share its first and last page with other tensors there.
        elsewhere = PAGE_BYTES * len(earlier.intersection(unit.weights))
        sizes.append(UnitSize(buffer=lay_out_phase(stored).nbytes + elsewhere, wide=compute_wide_bytes(stored)))
        earlier.update(unit.weights)
    return sizes


def plan_unit_file(skeleton: Skeleton, units: Sequence[Unit], dtype: str | None) -> dict[str, StoredTensor]:
    """Return the layout of the weights in a new file; every unit is page-aligned."""
    return plan_file([[build_entry(skeleton, name, dtype) for name in unit.weights] for unit in units])


def compute_min_budget(
    skeleton: Skeleton,
    tensors: Mapping[str, StoredTensor] | None,
    *,
    dtype: str | None,
    schedule: ScheduleTraits,
    devices: int,
    areas: int,
) -> int:
    """Return the minimum budget in bytes for the buffers of a schedule; every unit is a phase.

    `tensors` are the tensors of an existing file; None to compute offsets for a file that is not yet written.
    """
    units = split_units(skeleton, trace_model(skeleton))
    stored = plan_unit_file(skeleton, units, dtype) if tensors is None else tensors
    sizes = compute_max_unit_sizes(skeleton, units, stored, dtype)
    if schedule.holds_all_weights:
        return sum(size.wide or size.buffer for size in sizes)
    buffers = schedule.limit_buffers(schedule.count_buffers(devices)[0], len(units))
    return buffers * max(size.buffer for size in sizes) + areas * max(size.wide for size in sizes)


def plan_memory(partition: PartitionedModel, request: PhasingRequest, tensors: Mapping[str, StoredTensor]) -> PhasePlan:
    """Lay out the phases of a model and divide the budget among them, or raise an error if they do not fit."""
    names = [partition.list_weights(phase) for phase in range(len(partition.groups))]
    stored = [find_stored_tensors(partition.skeleton, tensors, own, request.dtype) for own in names]
    layouts = [lay_out_phase(own, mapped=request.store.mapped) for own in stored]
    needs = [
        PhaseNeed(
            name=group[0].module,
            units=tuple(unit.module for unit in group),
            buffer=layout.nbytes,
            wide=compute_wide_bytes(own),
        )
        for group, layout, own in zip(partition.groups, layouts, stored, strict=True)
    ]
    keep = request.keep and request.schedule.keeps_phases
    division = divide_budget(needs, request.schedule, request.devices, request.budget, areas=request.areas, keep=keep)
    phases = tuple(
        _build_phase(index, partition, part, layout, index in division.resident)
        for index, (part, layout) in enumerate(zip(partition.parts, layouts, strict=True))
    )
    return PhasePlan(phases=phases, layouts=tuple(layouts), division=division)


def _build_phase(
    index: int, partition: PartitionedModel, part: PhasePart, layout: PhaseLayout, resident: bool
) -> Phase:
    modules = tuple(unit.module for unit in partition.groups[index])
    tensors = [tensor for tensor, _ in layout.places]
    return Phase(
        index=index,
        name=modules[0] if len(modules) == 1 else f"{modules[0]} … {modules[-1]}",
        modules=modules,
        tensors=tuple(partition.list_weights(index)),
        bytes=layout.stored_bytes,
        working_bytes=sum(t.nbytes // t.dtype.itemsize * get_compute_dtype(t.dtype).itemsize for t in tensors),
        flops=None if partition.flops is None else sum(partition.flops[index]),
        inputs=part.boundary.inputs,
        outputs=part.boundary.outputs,
        resident=resident,
    )

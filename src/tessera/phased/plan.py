"""From a model to its phases: how large its units are, where it is cut, and how the budget is divided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from torch import fx

from tessera.phased.memory.budget import Division, Need, buffers_for, divide, largest_phase
from tessera.phased.memory.working import wide_bytes
from tessera.phased.network.cutting import TARGET, UnitCost, cut
from tessera.phased.network.graph import Unit, flops_of, input_dtype, trace, units_of
from tessera.phased.network.programs import Part, parts_of
from tessera.phased.network.skeleton import Skeleton
from tessera.phased.network.stored import entry_of, find_stored, first_units
from tessera.phased.phase import Phase
from tessera.phased.store.dtypes import computed_dtype
from tessera.phased.store.layout import Layout, layout_of
from tessera.phased.store.weights_file import PAGE, StoredTensor
from tessera.phased.store.weights_writer import Entry, planned

FEWEST = 8  # phases, where the limit leaves a choice: the first load of a pass is hidden by nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What phases are made for, and where a user wants them.

    `areas` is how many of them may have to be widened at a time. `names` are modules at which phases begin, or numbers
    of units; without them they are found, and better so if the `shapes` of the inputs are known, for then their FLOPs
    are. `balance` gives how many FLOPs of a dtype are computed while one byte is loaded.
    """

    schedule: str
    devices: int
    areas: int
    budget: int
    dtype: str | None
    keep: bool
    mapped: bool
    names: Sequence[str | int] | None
    shapes: Sequence[Sequence[int]] | None
    balance: Callable[[str], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSize:
    """Bytes of a unit in a buffer of its own, and as it is computed with if that is another form (else 0)."""

    buffer: int
    wide: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A model that was traced and cut; `groups` are the units of each phase, `flops` those of each unit if known."""

    skeleton: Skeleton
    graph: fx.Graph
    groups: tuple[tuple[Unit, ...], ...]
    flops: tuple[tuple[int, ...], ...] | None

    @property
    def parts(self) -> list[Part]:
        return parts_of(self.skeleton, self.graph, self.groups)

    def weights(self, phase: int) -> list[str]:
        """The stored names of a phase's weights."""
        return list(dict.fromkeys(name for unit in self.groups[phase] for name in unit.weights))

    def entries(self, dtype: str | None) -> list[list[Entry]]:
        """What is to be written, phase by phase."""
        phases = range(len(self.groups))
        return [[entry_of(self.skeleton, name, dtype) for name in self.weights(phase)] for phase in phases]


def cut_model(skeleton: Skeleton, asked: Asked, tensors: Mapping[str, StoredTensor] | None = None) -> Cut:
    """Trace a model and cut it: at the modules named, or else by the budget and by the balance of loads and FLOPs.

    `tensors` are those of a file that is there; without one it will be written as the phases turn out.
    """
    graph = trace(skeleton)
    units = units_of(skeleton, graph)
    flops = None if asked.shapes is None else flops_of(skeleton, graph, units, asked.shapes)
    if asked.names is not None:
        starts = first_units(units, asked.names)
    else:
        stored = unit_by_unit(skeleton, units, asked.dtype) if tensors is None else tensors
        sizes = unit_sizes(skeleton, units, stored, asked.dtype)
        largest = max(size.buffer for size in sizes)
        widening = max((size.wide / size.buffer for size in sizes if size.buffer), default=0.0)
        limit = largest_phase(
            asked.schedule, asked.devices, asked.budget, largest_unit=largest, widening=asked.areas * widening
        )
        target = min(TARGET, sum(size.buffer for size in sizes) // FEWEST)
        costs = [
            UnitCost(bytes=size.buffer, flops=None if flops is None else flops[number])
            for number, size in enumerate(sizes)
        ]
        dtype = str(computed_dtype(input_dtype(skeleton))).removeprefix("torch.")
        balance = 1.0 if flops is None else asked.balance(dtype)  # without FLOPs it has no meaning
        starts = cut(costs, min(limit, max(largest, target)), balance)
    stops = [*starts[1:], len(units)]
    spans = list(zip(starts, stops, strict=True))
    return Cut(
        skeleton=skeleton,
        graph=graph,
        groups=tuple(tuple(units[start:stop]) for start, stop in spans),
        flops=None if flops is None else tuple(tuple(flops[start:stop]) for start, stop in spans),
    )


def unit_sizes(
    skeleton: Skeleton, units: Sequence[Unit], tensors: Mapping[str, StoredTensor], dtype: str | None
) -> list[UnitSize]:
    """The sizes of units in a file; those of several together are never larger than their sum."""
    sizes = []
    seen: set[str] = set()
    for unit in units:
        own = find_stored(skeleton, tensors, unit.weights, dtype)
        # what lies with an earlier unit may share its first and last page with more than it does here
        elsewhere = PAGE * len(seen.intersection(unit.weights))
        sizes.append(UnitSize(buffer=layout_of(own).nbytes + elsewhere, wide=wide_bytes(own)))
        seen.update(unit.weights)
    return sizes


def unit_by_unit(skeleton: Skeleton, units: Sequence[Unit], dtype: str | None) -> dict[str, StoredTensor]:
    """Where weights would lie in a file with every unit by itself."""
    return planned([[entry_of(skeleton, name, dtype) for name in unit.weights] for unit in units])


def least_budget(
    skeleton: Skeleton,
    tensors: Mapping[str, StoredTensor] | None,
    *,
    dtype: str | None,
    schedule: str,
    devices: int,
    areas: int,
) -> int:
    """The smallest budget with which a model can be streamed: every unit a phase of its own.

    `tensors` are those of a file that is there; without one it is reckoned as it would be written.
    """
    units = units_of(skeleton, trace(skeleton))
    stored = unit_by_unit(skeleton, units, dtype) if tensors is None else tensors
    sizes = unit_sizes(skeleton, units, stored, dtype)
    if buffers_for(schedule, devices) == (0, 0):
        return sum(size.wide or size.buffer for size in sizes)
    buffers, _ = buffers_for(schedule, devices)
    if schedule != "phased":
        buffers = min(buffers, len(units))
    return buffers * max(size.buffer for size in sizes) + areas * max(size.wide for size in sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Where every phase lies in the store, and how working memory is divided for them."""

    phases: tuple[Phase, ...]
    layouts: tuple[Layout, ...]
    division: Division

    @property
    def names(self) -> tuple[tuple[str, ...], ...]:
        """The stored names of every phase's weights, in the order of its layout."""
        return tuple(phase.tensors for phase in self.phases)


def plan_memory(found: Cut, asked: Asked, tensors: Mapping[str, StoredTensor]) -> Plan:
    """Lay out the phases of a model that was cut, or raise an error if the budget does not hold them."""
    names = [found.weights(phase) for phase in range(len(found.groups))]
    stored = [find_stored(found.skeleton, tensors, own, asked.dtype) for own in names]
    layouts = [layout_of(own, mapped=asked.mapped) for own in stored]
    needs = [
        Need(
            name=group[0].module,
            units=tuple(unit.module for unit in group),
            buffer=layout.nbytes,
            wide=wide_bytes(own),
        )
        for group, layout, own in zip(found.groups, layouts, stored, strict=True)
    ]
    keep = asked.keep and asked.schedule != "sequential"
    division = divide(needs, asked.schedule, asked.devices, asked.budget, areas=asked.areas, keep=keep)
    phases = tuple(
        _phase(index, found, part, layout, index in division.resident)
        for index, (part, layout) in enumerate(zip(found.parts, layouts, strict=True))
    )
    return Plan(phases=phases, layouts=tuple(layouts), division=division)


def _phase(index: int, found: Cut, part: Part, layout: Layout, resident: bool) -> Phase:
    modules = tuple(unit.module for unit in found.groups[index])
    tensors = [tensor for tensor, _ in layout.places]
    return Phase(
        index=index,
        name=modules[0] if len(modules) == 1 else f"{modules[0]} … {modules[-1]}",
        modules=modules,
        tensors=tuple(found.weights(index)),
        bytes=layout.stored_bytes,
        working_bytes=sum(t.nbytes // t.dtype.itemsize * computed_dtype(t.dtype).itemsize for t in tensors),
        flops=None if found.flops is None else sum(found.flops[index]),
        inputs=part.border.inputs,
        outputs=part.border.outputs,
        resident=resident,
    )

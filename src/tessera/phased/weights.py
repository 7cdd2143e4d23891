"""The weights of a model in a weight store: written phase by phase, or opened from an existing file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import nn

from tessera.errors import TesseraError
from tessera.phased.network.graph import split_units, trace_model
from tessera.phased.network.phase_starts import find_phase_starts
from tessera.phased.network.skeleton import build_skeleton, get_weights
from tessera.phased.network.stored_weights import build_entry
from tessera.phased.plan import PartitionedModel, PhasingRequest, partition_model, plan_memory
from tessera.phased.store.stores import WeightStore, open_store, write_store
from tessera.phased.store.weights_writer import ValueSource, WeightEntry, plan_file, write_weights_file


def write_weights(
    path: Path | str,
    model: nn.Module,
    values: ValueSource | None = None,
    *,
    phases: Sequence[str | int] | None = None,
    dtype: str | None = None,
    checksums: bool = False,
) -> None:
    """Write the weights of a model to a file, one tensor at a time.

    `values` returns the weight with a given name; it is required for a model on the meta device. `phases` says where
    phases begin, as for `PhasedModel`; by default every layer is laid out as a phase, which suits any split. The
    file is created atomically, and an existing file is never replaced.
    """
    groups = _list_groups(model, phases, dtype)
    write_weights_file(Path(path), groups, values or get_weights(model).__getitem__, checksums=checksums)


@contextmanager
def write_temporary_weights(
    model: nn.Module, values: ValueSource | None = None, *, dtype: str | None = None
) -> Iterator[Path]:
    """Write the weights of a model to an unnamed file, which is removed when the block ends or the process dies."""
    groups = _list_groups(model, None, dtype)
    source = values or get_weights(model).__getitem__
    store = write_store(groups, source, path=None, directory=None, checksums=False)
    try:
        yield store.file.path
    finally:
        store.close()


def open_weights(
    model: nn.Module, request: PhasingRequest, *, path: Path | None, directory: Path | None, checksums: bool
) -> tuple[WeightStore, PartitionedModel]:
    """Open the weight store of a model, and split the model into phases.

    If the model is on the meta device, the file at `path` must exist; otherwise a new store is written.
    """
    in_memory = request.store.in_host_memory
    skeleton, weights = build_skeleton(model), get_weights(model)
    unfilled = [name for name, tensor in weights.items() if tensor.is_meta]
    if unfilled and len(unfilled) < len(weights):
        raise TesseraError(
            "some weights are on the meta device, and others are not",
            got=unfilled[0],
            do="build the whole model on one device",
        )
    if not unfilled:
        partition = partition_model(skeleton, request)
        groups = partition.list_entries(request.dtype)
        plan_memory(partition, request, plan_file(groups))  # raises an error before writing if phases do not fit
        store = write_store(
            groups, weights.__getitem__, path=path, directory=directory, checksums=checksums, in_memory=in_memory
        )
        return store, partition
    if path is None:
        raise TesseraError("a model on the meta device requires a weights file", do="pass `path`")
    store = open_store(path, in_memory=in_memory)
    try:
        return store, partition_model(skeleton, request, store.file.tensors)
    except BaseException:
        store.close()
        raise


def _list_groups(model: nn.Module, phases: Sequence[str | int] | None, dtype: str | None) -> list[list[WeightEntry]]:
    """Return the tensors to write, phase by phase."""
    skeleton = build_skeleton(model)
    units = split_units(skeleton, trace_model(skeleton))
    starts = (
        set(range(len(units))) if phases is None else set(find_phase_starts([unit.module for unit in units], phases))
    )
    groups: list[list[WeightEntry]] = []
    for number, unit in enumerate(units):
        if number in starts:
            groups.append([])
        groups[-1] += [build_entry(skeleton, name, dtype) for name in unit.weights]
    return groups

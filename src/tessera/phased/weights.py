"""Write the weights of a network to a file, laid out so that they can be streamed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch import Tensor, nn

from tessera.phased.paging.meta_copy import BATCH_COUNTER
from tessera.phased.paging.network_copy import copy_network
from tessera.phased.paging.phase_starts import find_phase_starts
from tessera.phased.paging.phasing import build_entries, build_entry
from tessera.phased.store.stores import write_store
from tessera.phased.store.weights_writer import ValueSource, WeightEntry, write_weights_file


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
    groups, source = _list_groups(model, phases, dtype)
    write_weights_file(Path(path), groups, values or source, checksums=checksums)


@contextmanager
def write_temporary_weights(
    model: nn.Module, values: ValueSource | None = None, *, dtype: str | None = None
) -> Iterator[Path]:
    """Write the weights of a model to an unnamed file, which is removed when the block ends or the process dies."""
    groups, source = _list_groups(model, None, dtype)
    store = write_store(groups, values or source, path=None, directory=None, checksums=False)
    try:
        yield store.file.path
    finally:
        store.close()


def _list_groups(
    model: nn.Module, phases: Sequence[str | int] | None, dtype: str | None
) -> tuple[list[list[WeightEntry]], ValueSource]:
    """Return the tensors to write, phase by phase, and a function that returns their values."""
    network = copy_network(model)
    state = {name: value for name, value in model.state_dict(keep_vars=True).items() if isinstance(value, Tensor)}
    units = network.units
    starts = range(len(units)) if phases is None else find_phase_starts([unit.module for unit in units], phases)
    groups: list[list[WeightEntry]] = []
    for number, unit in enumerate(units):
        if number in starts:
            groups.append([])
        groups[-1] += build_entries(network, [name for name in unit.weights if name not in network.unstored], dtype)
    streamed = {name for names in network.aliases.values() for name in names}
    held = {id(value): name for name, value in reversed(state.items()) if name not in streamed}  # tied: the first name
    names = [name for name in state if held.get(id(state[name])) == name and not name.endswith(BATCH_COUNTER)]
    groups.append([build_entry(name, state[name].dtype, tuple(state[name].shape), dtype) for name in names])
    return [group for group in groups if group], (state | network.values).__getitem__
